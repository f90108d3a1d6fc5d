"""What a token endpoint's failures do to the grant, and what they never do to the work."""

from dataclasses import dataclass

import pytest

from oncefence.activities.contracts import Step
from oncefence.domain.grant import GrantRotation
from tests.support.clubs import ClubsProcess, ClubsWorld
from tests.support.oauth_server import CLIENT, Fault, OAuthServer
from tests.support.servers import Database

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A fault of the endpoint, and what it makes of a rotating grant and of a static one."""

    fault: Fault
    rotating: str = "healthy"
    static: str = "healthy"
    outcome: str = "answered"


CASES = (
    Case(fault=Fault.TOO_MANY),
    Case(fault=Fault.AWAY, static="healthy", outcome="answered"),
    Case(fault=Fault.ERROR, rotating="refresh_unknown", outcome="unknown"),
    Case(fault=Fault.LOST, rotating="refresh_unknown", outcome="unknown"),
    Case(fault=Fault.CUT, rotating="refresh_unknown", outcome="unknown"),
    Case(fault=Fault.NOT_JSON, rotating="refresh_unknown", outcome="unknown"),
    Case(fault=Fault.HANG, rotating="refresh_unknown", outcome="unknown"),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.fault.value)
async def test_a_fault_of_the_endpoint_is_told_for_what_it_is(
    store: Database, server: OAuthServer, case: Case
) -> None:
    """An answer proves that nothing changed; without one a rotating token may be spent (C289)."""
    world = await ClubsWorld.connected(store, server)
    accepted = await world.command()
    server.meet(case.fault)

    await ClubsProcess(world).run(accepted.work)

    item = await world.item(accepted.work)
    assert (await world.grant_row()).state == case.rotating
    assert await world.outcomes() == [case.outcome]
    assert (item.state, item.attempt, item.claims_lost) == ("retry", 0, 0)
    assert (world.token_calls(), world.writes()) == (1, 0)


@pytest.mark.parametrize(
    "fault", [Fault.ERROR, Fault.LOST, Fault.CUT, Fault.NOT_JSON], ids=lambda fault: fault.value
)
async def test_a_lost_answer_of_a_static_grant_is_asked_for_again(
    store: Database, server: OAuthServer, fault: Fault
) -> None:
    """Its refresh token stays as it is, so a second call does no harm (C288)."""
    world = await ClubsWorld.connected(store, server, grant="steady", rotation=GrantRotation.STATIC)
    accepted = await world.command()
    server.meet(fault)
    process = ClubsProcess(world)

    await process.run(accepted.work)
    await world.allow_calls()
    result = await process.run(accepted.work)

    assert await world.outcomes() == ["unknown", "activated"]
    assert result.item_state == "succeeded"


async def test_a_5xx_that_the_pack_does_not_declare_counts_as_lost(
    store: Database, server: OAuthServer
) -> None:
    """The same 503 is an answer of one endpoint and a lost call of another (C289)."""
    world = await ClubsWorld.connected(store, server, grant="user")
    server.meet(Fault.AWAY)

    await ClubsProcess(world).run((await world.command()).work)

    assert (await world.grant_row()).state == "refresh_unknown"


class TestOurOwnFault:
    async def test_keeps_the_binding_and_is_tried_again_when_it_is_mended(
        self, store: Database, server: OAuthServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A wrong client secret is not the account's fault, and nobody has to connect again."""
        world = await ClubsWorld.connected(store, server)
        accepted = await world.command()
        server.clients[CLIENT] = "exchanged at the provider"
        process = ClubsProcess(world)

        result = await process.run(accepted.work)
        state = (await world.grant_row()).state
        told = [record for record in caplog.records if record.levelname == "ERROR"]
        server.clients.update(OAuthServer().clients)
        await world.allow_calls()
        again = await process.run(accepted.work)

        assert (result.step, result.verdict, state) == (
            Step.WAIT,
            "credential_held",
            "misconfigured",
        )
        assert [record.message for record in told] == ["tokens cannot be renewed"]
        assert again.item_state == "succeeded"
        assert (await world.grant_row()).state == "healthy"

    async def test_of_an_app_that_nobody_added_sends_nothing(
        self, store: Database, server: OAuthServer
    ) -> None:
        """Without a client there is no call to make, and no token is spent on finding out."""
        world = await ClubsWorld.connected(store, server)
        accepted = await world.command()
        await world.sql(
            "UPDATE oncefence.provider_apps SET retired_at = clock_timestamp() WHERE org_id = :org"
        )

        await ClubsProcess(world).run(accepted.work)

        (row,) = await world.ledger()
        assert (row.outcome, row.failure_class) == ("unsent", "app_missing")
        assert (await world.grant_row()).state == "misconfigured"
        assert world.token_calls() == 0


async def test_a_refused_grant_parks_its_work_and_ends_its_workflow(
    store: Database, server: OAuthServer
) -> None:
    """Nobody polls for what a person must do; whoever authorises it anew wakes it (C291)."""
    world = await ClubsWorld.connected(store, server)
    accepted = await world.command()
    world.family.is_revoked = True

    result = await ClubsProcess(world).run(accepted.work)

    grant, item = await world.grant_row(), await world.item(accepted.work)
    assert (result.step, result.verdict) == (Step.BLOCKED, "credential_held")
    assert (grant.state, grant.failure_class) == ("needs_reauthorization", "invalid_grant")
    assert (item.state, item.attempt) == ("retry", 0)


async def test_a_reply_of_another_account_is_not_used(store: Database, server: OAuthServer) -> None:
    """Its tokens would write into somebody else's records (C282)."""
    world = await ClubsWorld.connected(store, server)
    server.reply["club_id"] = "club-b"

    await ClubsProcess(world).run((await world.command()).work)

    grant = await world.grant_row()
    assert (grant.state, grant.failure_class) == ("needs_reauthorization", "another_account")
    assert (grant.token_version, world.writes()) == (1, 0)
