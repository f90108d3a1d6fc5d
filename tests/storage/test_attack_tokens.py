"""Where a token cannot be used just then: whoever waits for it comes to an end, or is listed."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from oncefence.domain.claim import ClaimVerdict
from oncefence.domain.grant import Refusal
from oncefence.domain.ids import WorkId
from oncefence.domain.redaction import Secret
from oncefence.storage.claims import NotStarted
from oncefence.storage.generation_change import NewTokens, renew
from oncefence.storage.phases.begin_refresh import RefreshBegun
from oncefence.storage.phases.expire_refreshes import expire_refreshes
from oncefence.storage.phases.rewrap_generation import (
    GenerationRef,
    Rewrapped,
    rewrap_generation,
)
from oncefence.storage.read_admission import note_refused
from oncefence.storage.sealing import KeyRing
from tests.support.clubs import ClubsWorld, plant
from tests.support.fault import fault
from tests.support.oauth_server import OAuthServer, oauth_server
from tests.support.servers import Database
from tests.tokens.ends import a_refusal, a_token

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def server() -> Iterator[OAuthServer]:
    with oauth_server() as running:
        yield running


async def authorised_anew(world: ClubsWorld) -> None:
    """A person authorised the same account again."""
    async with world.engine.begin() as connection:
        await renew(
            connection,
            world.ring,
            world.org,
            world.generation,
            binding=world.binding,
            tokens=NewTokens(access=Secret("A9"), refresh=Secret("R9"), lifetime_s=1800),
        )


class TestALookupThatIsGivenUp:
    @pytest.mark.parametrize("is_parked", [False, True])
    async def test_needs_no_token_for_that(
        self, store: Database, server: OAuthServer, *, is_parked: bool
    ) -> None:
        """Past the ceiling it goes to a person, and must not ask for a token for ever (C50)."""
        world = await ClubsWorld.connected(store, server, is_fresh=True)
        accepted, _, looking = await world.an_unknown_command("lead-1")
        await world.start_looking(looking)
        await plant(
            store,
            f"UPDATE work_items SET claims_lost = {world.limits.claims_lost_max - 1},"
            " lease_until = clock_timestamp() - interval '1 second'"
            f" WHERE org_id = '{world.org}' AND work_id = '{looking}'",
        )
        await world.expire_token()
        if is_parked:
            await plant(
                store,
                "UPDATE authorization_grants SET state = 'needs_reauthorization'"
                f" WHERE generation_id = '{world.generation}'",
            )

        found = await world.try_to_look(looking)

        assert isinstance(found, NotStarted)
        assert (found.verdict, found.failure_class) == (ClaimVerdict.CANNOT_PROCEED, "poison")
        assert (await world.execution(accepted)).status == "needs_attention"
        assert await world.ledger() == []


class TestARenewalThatAPersonWasFasterThan:
    async def _overtaken(self, store: Database, server: OAuthServer) -> ClubsWorld:
        world = await ClubsWorld.connected(store, server)
        await world.begun(await world.command("lead-1"))
        await authorised_anew(world)
        await world.end_refresh_lease()
        return world

    @fault("frozen owner", at="reauthorising", then="the person's tokens are used, nothing parked")
    async def test_parks_nothing_when_its_lease_ends(
        self, store: Database, server: OAuthServer
    ) -> None:
        """The token that it may have spent is not the one that is used (C291, C292)."""
        world = await self._overtaken(store, server)

        await expire_refreshes(world.engine)

        grant = await world.grant_row()
        assert (grant.state, grant.token_version) == ("healthy", 2)
        assert await world.outcomes() == ["unknown"]

    async def test_parks_nothing_for_whoever_renews_the_newer_token(
        self, store: Database, server: OAuthServer
    ) -> None:
        """Nobody has shown the newer refresh token, so it may be shown once (C286)."""
        world = await self._overtaken(store, server)
        await plant(
            store,
            "UPDATE token_versions SET made_at = clock_timestamp() - interval '61 minutes',"
            " expires_at = clock_timestamp() - interval '1 minute'"
            f" WHERE generation_id = '{world.generation}' AND version = 2",
        )

        begun = await world.begin(await world.command("lead-2"))

        assert isinstance(begun, RefreshBegun), begun
        assert begun.version == 2
        assert await world.outcomes() == ["unknown", None]
        await world.settle_call(begun, a_token())
        assert (await world.grant_row()).state == "healthy"


class TestWhatWaitsForABackOff:
    async def _waiting(self, store: Database, server: OAuthServer) -> tuple[ClubsWorld, WorkId]:
        world = await ClubsWorld.connected(store, server)
        accepted = await world.command()
        begun = await world.begun(accepted)
        await world.settle_call(begun, a_refusal("invalid_client", Refusal.RECONFIGURE))
        await plant(
            store,
            "UPDATE authorization_grants SET not_before = clock_timestamp() + interval '1 day'"
            f" WHERE generation_id = '{world.generation}'",
        )
        held = await world.try_to_start(accepted)
        assert isinstance(held, NotStarted)
        assert held.verdict is ClaimVerdict.CREDENTIAL_HELD
        assert (await world.item(accepted.work)).run_after > await world.now()
        return world, accepted.work

    async def test_is_due_when_a_person_has_authorised_its_principal_anew(
        self, store: Database, server: OAuthServer
    ) -> None:
        """The back-off was for tokens that are not used any more (C294)."""
        world, work = await self._waiting(store, server)

        await authorised_anew(world)

        assert (await world.item(work)).run_after <= await world.now()

    @fault("reconnect", at="a back-off", then="what waited ends at once and frees its lanes")
    async def test_is_due_to_end_when_its_account_was_connected_anew(
        self, store: Database, server: OAuthServer
    ) -> None:
        """Until it has ended it would hold its lanes against the new account's work (C284)."""
        world, work = await self._waiting(store, server)

        await world.reconnect(family=world.family, account="club-b")

        assert (await world.item(work)).run_after <= await world.now()


class TestATokenThatIsWrappedAnew:
    async def test_is_as_old_as_it_was(self, store: Database, server: OAuthServer) -> None:
        """One that has ended is not used for another second because its key changed (C297)."""
        ring = KeyRing({"old": b"o" * 32})
        world = await ClubsWorld.connected(store, server, ring=ring)
        accepted = await world.command()
        ref = GenerationRef(org=world.org, generation=world.generation)
        both = KeyRing({"new": b"n" * 32, "old": b"o" * 32})

        ended = await rewrap_generation(world.engine, both, ref, actor="tests")
        held = await world.try_to_start(accepted)

        assert ended is Rewrapped.DONE
        assert isinstance(held, NotStarted)
        assert held.verdict is ClaimVerdict.TOKEN_STALE


class TestAReadThatIsRefused:
    async def test_beside_another_of_the_same_token_is_no_second_time(
        self, store: Database, server: OAuthServer
    ) -> None:
        """Two looks at once are refused for one token, and that one can be renewed (C293)."""
        world = await ClubsWorld.connected(store, server, is_fresh=True)
        accepted, _, looking = await world.an_unknown_command("lead-1")
        await plant(store, *[_refused_look(world, looking) for _ in range(2)])

        async with world.engine.begin() as connection:
            await note_refused(connection, world.org, looking, accepted.command, version=1)

        grant = await world.grant_row()
        assert (grant.state, grant.suspect_version) == ("healthy", 1)


def _refused_look(world: ClubsWorld, looking: WorkId) -> str:
    return (
        "INSERT INTO lookups (org_id, lookup_id, execution_id, work_id, ownership_epoch, reading,"
        " verdict, grade, response_status, provider_receipt, phases)"
        f" SELECT w.org_id, '{uuid4()}', w.execution_id, w.work_id, 1, '', 'unreachable', 'none',"
        " 401, '{}', '{}' FROM work_items AS w"
        f" WHERE w.org_id = '{world.org}' AND w.work_id = '{looking}'"
    )
