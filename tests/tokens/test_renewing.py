"""A command whose token has expired: one call, one new version, and the command is sent by it."""

from dataclasses import replace
from datetime import timedelta

import pytest

from oncefence.activities.contracts import Step
from oncefence.domain.effect import Outcome
from oncefence.domain.grant import GrantRotation
from oncefence.storage.phases.settle_attempt import AttemptEnd
from tests.support.clubs import ClubsProcess, ClubsWorld, plant
from tests.support.dialect import Form
from tests.support.oauth_server import OAuthServer
from tests.support.servers import Database
from tests.support.world import an_end

pytestmark = pytest.mark.asyncio(loop_scope="module")

GRANTS = {
    GrantRotation.ROTATING: "app",
    GrantRotation.STATIC: "steady",
    GrantRotation.GRACE: "app",
    GrantRotation.MINT: "install",
}


def a_401() -> AttemptEnd:
    """The end of an attempt whose token the provider refused."""
    end = an_end(Outcome.REPLAY_SAFE_RETRY, failure_class="credential", response_status=401)
    return replace(end, is_credential_refused=True)


@pytest.mark.parametrize("rotation", GRANTS)
async def test_an_expired_token_is_renewed_before_its_command_is_sent(
    store: Database, server: OAuthServer, rotation: GrantRotation
) -> None:
    """The mark comes first, then one call, then the send; no attempt is spent on it (C286)."""
    world = await ClubsWorld.connected(store, server, grant=GRANTS[rotation], rotation=rotation)
    accepted = await world.command()

    result = await ClubsProcess(world).run(accepted.work)

    assert (result.item_state, result.execution_status) == ("succeeded", "succeeded")
    assert await world.outcomes() == ["activated"]
    assert (world.token_calls(), world.writes()) == (1, 1)
    (attempt,) = await world.attempts(accepted)
    item = await world.item(accepted.work)
    assert (attempt.token_version, item.attempt, item.claims_lost) == (2, 1, 0)
    assert item.ownership_epoch == 2, "one claim for the token and one for the send"


async def test_a_fresh_token_is_used_as_it_is(store: Database, server: OAuthServer) -> None:
    """A call that is not needed is one more that can be lost (C286)."""
    world = await ClubsWorld.connected(store, server, is_fresh=True)
    accepted = await world.command()

    result = await ClubsProcess(world).run(accepted.work)

    assert (result.item_state, world.token_calls(), await world.ledger()) == ("succeeded", 0, [])


async def test_a_token_is_renewed_a_bit_before_its_end(
    store: Database, server: OAuthServer
) -> None:
    """Clocks differ, and a request takes its time: the last minute belongs to neither (C286)."""
    world = await ClubsWorld.connected(store, server, is_fresh=True)
    accepted = await world.command()
    await plant(
        store,
        "UPDATE token_versions SET expires_at = clock_timestamp() + interval '50 seconds',"
        f" made_at = clock_timestamp() - interval '1 hour' WHERE generation_id ="
        f" '{world.generation}'",
    )

    await ClubsProcess(world).run(accepted.work)

    assert await world.outcomes() == ["activated"]


async def test_a_short_life_keeps_nine_tenths_of_it(store: Database, server: OAuthServer) -> None:
    """A margin of a minute would make a token of a minute useless from its birth on (C286)."""
    world = await ClubsWorld.connected(store, server, is_fresh=True)
    accepted = await world.command()
    await plant(
        store,
        "UPDATE token_versions SET expires_at = clock_timestamp() + interval '40 seconds',"
        " made_at = clock_timestamp() - interval '20 seconds'"
        f" WHERE generation_id = '{world.generation}'",
    )

    await ClubsProcess(world).run(accepted.work)

    assert await world.ledger() == []


async def test_a_token_that_is_born_expired_is_used_once_and_renewed_before_the_next_use(
    store: Database, server: OAuthServer
) -> None:
    """Zero seconds mean: ask before each use; asking without end would be a hot loop (C286)."""
    server.reply["expires_in"] = 0
    world = await ClubsWorld.connected(store, server)
    process = ClubsProcess(world)
    first, second = await world.command("lead-1"), await world.command("lead-2")

    await process.run(first.work)
    calls_for_the_first = world.token_calls()
    await plant(
        store,
        "UPDATE token_versions SET made_at = made_at - interval '2 seconds'"
        f" WHERE generation_id = '{world.generation}'",
    )
    await world.allow_calls()
    await process.run(second.work)

    assert calls_for_the_first == 1
    assert await world.outcomes() == ["activated", "activated"]
    assert (await world.item(second.work)).state == "succeeded"


async def test_two_calls_for_one_grant_keep_their_distance(
    store: Database, server: OAuthServer
) -> None:
    """However short its tokens live, nobody asks twice within the second or the pack's gap."""
    server.reply["expires_in"] = 0
    world = await ClubsWorld.connected(store, server)
    process = ClubsProcess(world)
    await process.run((await world.command("lead-1")).work)
    second = await world.command("lead-2")
    await plant(
        store,
        "UPDATE token_versions SET made_at = made_at - interval '2 seconds'"
        f" WHERE generation_id = '{world.generation}'",
        "UPDATE authorization_grants SET not_before = clock_timestamp() + interval '1 hour'"
        f" WHERE generation_id = '{world.generation}'",
    )

    result = await process.run(second.work)

    grant = await world.grant_row()
    assert (result.step, result.verdict) == (Step.WAIT, "credential_held")
    assert result.until is not None
    assert grant.not_before <= result.until, "a workflow's whole milliseconds are rounded up"
    assert world.token_calls() == 1


async def test_the_grant_keeps_the_packs_own_gap(store: Database, server: OAuthServer) -> None:
    """A provider that allows one grant a minute refuses the second one in it (C294)."""
    dialect = server.as_provider().dialect
    view = replace(
        dialect,
        pack_text=dialect.pack_text.replace(
            "access_ttl_s = 1800\nnot_applied = [503]",
            "access_ttl_s = 1800\nmin_gap_s = 60\nnot_applied = [503]",
        ),
    ).view()
    world = await ClubsWorld.connected(store, server, view=view)

    await ClubsProcess(world).run((await world.command()).work)

    (row,) = await world.ledger()
    grant = await world.grant_row()
    assert timedelta(seconds=59) < grant.not_before - row.settled_at < timedelta(seconds=61)


async def test_a_lookup_reads_with_the_renewed_token_of_its_pinned_generation(
    store: Database, server: OAuthServer
) -> None:
    """The pinned generation's current token, whichever version that is by now (C284)."""
    world = await ClubsWorld.connected(store, server, is_fresh=True)
    accepted = await world.command()
    server.member_answers.append(500)
    process = ClubsProcess(world)
    await process.run(accepted.work)
    await world.expire_token()
    looking = await world.lookup_work(accepted)
    assert looking is not None

    result = await process.run(looking)

    item = await world.item(looking)
    assert (result.item_state, result.execution_status) == ("succeeded", "succeeded")
    assert await world.outcomes() == ["activated"]
    assert (item.claims_lost, item.ownership_epoch) == (0, 2)


async def test_the_journal_of_a_call_holds_how_far_it_got_and_nothing_else(
    store: Database, server: OAuthServer
) -> None:
    """What is kept of a call can be shown to anybody (C290)."""
    world = await ClubsWorld.connected(store, server)

    await ClubsProcess(world).run((await world.command()).work)

    (row,) = await world.ledger()
    assert row.response_status == 200
    assert {"phase", "bytes_out", "bytes_in"} <= set(row.phases)
    text = repr(row)
    for secret in world.family.access | world.own_refresh_tokens():
        assert secret not in text


async def test_the_client_is_proven_in_the_header_where_the_pack_says_so(
    store: Database, server: OAuthServer
) -> None:
    """Some endpoints take the secret in the body, others in a header, none in both."""
    world = await ClubsWorld.connected(store, server, grant="steady", rotation=GrantRotation.STATIC)

    await ClubsProcess(world).run((await world.command()).work)

    (call,) = server.calls_of("/oauth/token")
    assert "client_secret" not in call.form
    assert (call.authorization or "").startswith("Basic ")
    assert await world.outcomes() == ["activated"]


class TestA401:
    async def test_makes_its_version_suspect_and_costs_one_renewal(
        self, store: Database, server: OAuthServer
    ) -> None:
        """A token may be refused long before its end; the next one is asked for once (C293)."""
        world = await ClubsWorld.connected(store, server, is_fresh=True)
        accepted = await world.command()
        world.family.access.clear()
        process = ClubsProcess(world)

        refused = await process.run(accepted.work)
        again = await process.run(accepted.work)

        assert (refused.step, refused.outcome) == (Step.WAIT, "REPLAY_SAFE_RETRY")
        assert again.item_state == "succeeded"
        (row,) = await world.ledger()
        assert (row.because, row.outcome, row.to_version) == ("suspect", "activated", 2)
        assert [each.token_version for each in await world.attempts(accepted)] == [1, 2]

    async def test_is_tried_again_soon_and_not_after_half_an_hour(
        self, store: Database, server: OAuthServer
    ) -> None:
        """A renewal cures it, so it is no fault of the configuration that time must cure."""
        world = await ClubsWorld.connected(store, server, is_fresh=True)
        accepted = await world.command()
        world.family.access.clear()

        result = await ClubsProcess(world).run(accepted.work)

        assert result.until is not None
        assert result.until - await world.now() < timedelta(seconds=10)

    async def test_under_a_version_that_was_renewed_meanwhile_spoils_nothing(
        self, store: Database, server: OAuthServer
    ) -> None:
        """Of two that were sent with the old token, the second tells nothing new (C293)."""
        world = await ClubsWorld.connected(store, server, is_fresh=True)
        first, second = await world.command("lead-1"), await world.command("lead-2")
        slow = await world.start(second)
        world.family.access.clear()
        process = ClubsProcess(world)
        await process.run(first.work)
        await process.run(first.work)

        await world.settle(slow, a_401())

        grant = await world.grant_row()
        assert (grant.state, grant.suspect_version, grant.token_version) == ("healthy", None, 2)

    async def test_of_a_token_that_a_person_handed_over_is_the_fault_itself(
        self, store: Database, server: OAuthServer
    ) -> None:
        """Nothing could renew it, so the command fails at once and says why (C293)."""
        world = await ClubsWorld.on(store, server.as_provider(), token="unknown-to-the-provider")
        accepted = await world.accept_in(Form.LOCAL)

        result = await ClubsProcess(world).run(accepted.work)

        assert (result.item_state, result.execution_status, result.failure_class) == (
            "dead",
            "failed",
            "credential_fault",
        )
        (grant,) = await world.sql(
            "SELECT * FROM oncefence.authorization_grants WHERE org_id = :org"
        )
        assert (grant.state, grant.failure_class) == ("needs_reauthorization", "credential_fault")

    async def test_of_a_lookup_costs_one_renewal_and_none_of_its_tries(
        self, store: Database, server: OAuthServer
    ) -> None:
        """A read is refused like a write, and proves as little (C266, C293)."""
        world = await ClubsWorld.connected(store, server, is_fresh=True)
        accepted = await world.command()
        server.member_answers.append(500)
        process = ClubsProcess(world)
        await process.run(accepted.work)
        looking = await world.lookup_work(accepted)
        assert looking is not None
        world.family.access.clear()

        await process.run(looking)
        result = await process.run(looking)

        assert result.execution_status == "succeeded"
        assert [row.because for row in await world.ledger()] == ["suspect"]

    async def test_that_meets_a_lookup_twice_parks_the_principal(
        self, store: Database, server: OAuthServer
    ) -> None:
        """It must not renew a token for each of its reads without end (C293)."""
        world = await ClubsWorld.connected(store, server, is_fresh=True)
        accepted = await world.command()
        server.member_answers.extend([500, 401, 401])
        process = ClubsProcess(world)
        await process.run(accepted.work)
        looking = await world.lookup_work(accepted)
        assert looking is not None

        await process.run(looking)
        await process.run(looking)
        parked = await process.run(looking)

        assert (await world.grant_row()).state == "needs_reauthorization"
        assert (parked.step, parked.verdict) == (Step.BLOCKED, "credential_held")
        assert world.token_calls() == 1
