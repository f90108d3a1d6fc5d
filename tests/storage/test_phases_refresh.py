"""The two transactions of a renewal: who may begin one, what settles it, and what comes late."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from oncefence.domain.claim import ClaimVerdict
from oncefence.domain.effect import Outcome
from oncefence.domain.grant import GrantRotation, RefreshOutcome, Refusal
from oncefence.domain.ids import LeaseToken, WorkId
from oncefence.domain.redaction import Secret
from oncefence.storage.claims import NotStarted
from oncefence.storage.generation_change import NewTokens, renew
from oncefence.storage.phases.begin_refresh import RefreshBegun, due_after, unseal_refresh
from oncefence.storage.phases.expire_refreshes import expire_refreshes
from oncefence.storage.phases.find_work import find_due_work
from oncefence.storage.phases.release_waiters import release_waiters
from tests.storage.racing import all_at_once
from tests.support.clubs import ClubsWorld, plant
from tests.support.fault import fault
from tests.support.oauth_server import OAuthServer, oauth_server
from tests.support.servers import Database
from tests.support.world import an_end
from tests.tokens.ends import a_lost_answer, a_refusal, a_token, an_unsent_call

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOLD_ITEMS = "SELECT FROM oncefence.work_items WHERE org_id = $1 FOR UPDATE"


@pytest.fixture
def server() -> Iterator[OAuthServer]:
    with oauth_server() as running:
        yield running


def verdict(found: object) -> ClaimVerdict:
    assert isinstance(found, NotStarted), found
    return found.verdict


class TestTheMark:
    async def test_is_claim_ownership_and_ledger_in_one(
        self, store: Database, server: OAuthServer
    ) -> None:
        """From COMMIT on one token owns the item, the grant and the call (C286)."""
        world = await ClubsWorld.connected(store, server)
        accepted = await world.command()

        begun = await world.begun(accepted)

        item, grant = await world.item(accepted.work), await world.grant_row()
        (row,) = await world.ledger()
        assert (item.state, item.lease_token, item.attempt) == ("processing", begun.fence.token, 0)
        assert grant.open_refresh == row.refresh_id == begun.refresh
        assert (row.lease_token, row.ownership_epoch) == (begun.fence.token, begun.fence.epoch)
        assert (row.from_version, row.because, row.outcome) == (1, "expired", None)
        assert row.lease_until == item.lease_until

    async def test_is_found_by_its_own_token_after_a_lost_answer(
        self, store: Database, server: OAuthServer
    ) -> None:
        """Whoever did not hear the COMMIT still makes its one call, and no second row (C172)."""
        world = await ClubsWorld.connected(store, server)
        accepted, token = await world.command(), LeaseToken(uuid4())

        first = await world.begin(accepted, token=token)
        again = await world.begin(accepted, token=token, may_begin=False)

        assert isinstance(first, RefreshBegun)
        assert isinstance(again, RefreshBegun)
        assert (again.refresh, again.fence) == (first.refresh, first.fence)
        assert len(await world.ledger()) == 1

    async def test_is_not_made_past_the_deadline(
        self, store: Database, server: OAuthServer
    ) -> None:
        """A process that may not send any more must not own what it cannot use (C166)."""
        world = await ClubsWorld.connected(store, server)
        accepted = await world.command()

        found = await world.begin(accepted, may_begin=False)

        assert verdict(found) is ClaimVerdict.NOT_MARKED
        assert await world.ledger() == []

    async def test_is_made_once_by_however_many_come_at_once(
        self, store: Database, server: OAuthServer
    ) -> None:
        """Eight items of one principal, eight claimants, one call (C286)."""
        world = await ClubsWorld.connected(store, server)
        commands = [await world.command(f"lead-{number}") for number in range(8)]

        ends = await all_at_once(
            store, [world.begin(each) for each in commands], HOLD_ITEMS, world.org
        )

        begun = [end for end in ends if isinstance(end, RefreshBegun)]
        others = [end for end in ends if isinstance(end, NotStarted)]
        assert (len(begun), len(others)) == (1, 7)
        assert {end.verdict for end in others} == {ClaimVerdict.TOKEN_BUSY}
        assert len(await world.ledger()) == 1

    async def test_costs_those_who_come_too_late_nothing(
        self, store: Database, server: OAuthServer
    ) -> None:
        """They wait for the end of the lease, with no attempt and no lost claim counted."""
        world = await ClubsWorld.connected(store, server)
        first, second = await world.command("lead-1"), await world.command("lead-2")
        begun = await world.begun(first)

        held = await world.try_to_start(second)

        item = await world.item(second.work)
        assert verdict(held) is ClaimVerdict.TOKEN_BUSY
        assert item.run_after == due_after(begun.lease_until)
        assert (item.state, item.attempt, item.claims_lost) == ("pending", 0, 0)

    async def test_needs_nothing_where_the_token_is_fresh_by_now(
        self, store: Database, server: OAuthServer
    ) -> None:
        """Whoever was told of a stale token and comes after the renewal starts at once."""
        world = await ClubsWorld.connected(store, server)
        first, second = await world.command("lead-1"), await world.command("lead-2")
        await world.settle_call(await world.begun(first), a_token())

        assert await world.begin(second) is None
        assert (await world.item(second.work)).ownership_epoch == 0

    async def test_is_not_made_of_a_generation_that_has_ended(
        self, store: Database, server: OAuthServer
    ) -> None:
        """Its command ends as stale by its own run, and nobody renews for it (C284)."""
        world = await ClubsWorld.connected(store, server)
        accepted = await world.command()
        await world.reconnect(family=world.family)

        assert await world.begin(accepted) is None
        assert await world.ledger() == []

    async def test_opens_to_what_was_sealed(self, store: Database, server: OAuthServer) -> None:
        """The refresh token and our own secret, for the one who marked it."""
        world = await ClubsWorld.connected(store, server)
        begun = await world.begun(await world.command())

        unsealed = unseal_refresh(world.ring, begun)

        assert unsealed is not None
        assert unsealed.refresh is not None
        assert unsealed.refresh.reveal() == world.family.refresh
        assert world.family.refresh not in repr(begun)


class TestSettling:
    async def test_activates_the_token_and_gives_the_claim_back(
        self, store: Database, server: OAuthServer
    ) -> None:
        """One transaction: nobody ever sees the token without its ledger row (C286)."""
        world = await ClubsWorld.connected(store, server)
        accepted = await world.command()

        settled = await world.settle_call(await world.begun(accepted), a_token())

        item, grant = await world.item(accepted.work), await world.grant_row()
        (row,) = await world.ledger()
        assert (settled.outcome, settled.held) == (RefreshOutcome.ACTIVATED, None)
        assert (item.state, item.lease_token, item.attempt) == ("retry", None, 0)
        assert (grant.state, grant.token_version, grant.open_refresh) == ("healthy", 2, None)
        assert (row.outcome, row.to_version) == ("activated", 2)
        started = await world.start(accepted)
        assert started.ordinal == 1

    async def test_twice_is_the_same(self, store: Database, server: OAuthServer) -> None:
        """The answer to a COMMIT may be lost; a second version of one answer would be a lie."""
        world = await ClubsWorld.connected(store, server)
        begun = await world.begun(await world.command())

        await world.settle_call(begun, a_token())
        again = await world.settle_call(begun, a_token())

        assert again.outcome is RefreshOutcome.ACTIVATED
        assert (await world.grant_row()).token_version == 2

    async def test_a_refusal_asks_for_a_person_and_parks_the_work(
        self, store: Database, server: OAuthServer
    ) -> None:
        """invalid_grant is final for this grant; its work waits unspent (C292)."""
        world = await ClubsWorld.connected(store, server)
        accepted = await world.command()

        settled = await world.settle_call(await world.begun(accepted), a_refusal())

        item, grant = await world.item(accepted.work), await world.grant_row()
        assert (settled.held is not None, grant.state) == (True, "needs_reauthorization")
        assert (item.state, item.attempt, item.claims_lost) == ("retry", 0, 0)
        assert verdict(await world.try_to_start(accepted)) is ClaimVerdict.CREDENTIAL_HELD

    async def test_a_failure_backs_off_for_all_commands_of_the_principal(
        self, store: Database, server: OAuthServer
    ) -> None:
        """Of many commands none hammers the endpoint on its own account (C294)."""
        world = await ClubsWorld.connected(store, server)
        first, second = await world.command("lead-1"), await world.command("lead-2")

        settled = await world.settle_call(await world.begun(first), an_unsent_call())

        assert settled.held is not None
        held = await world.try_to_start(second)
        grant, item = await world.grant_row(), await world.item(second.work)
        assert verdict(held) is ClaimVerdict.CREDENTIAL_HELD
        assert (grant.state, grant.failures) == ("healthy", 1)
        assert item.run_after == due_after(grant.not_before)
        assert (item.attempt, item.claims_lost) == (0, 0)

    async def test_a_token_ends_the_count_of_failures(
        self, store: Database, server: OAuthServer
    ) -> None:
        """A bad hour must not make the next one slow (C294)."""
        world = await ClubsWorld.connected(store, server)
        accepted = await world.command()
        await world.settle_call(await world.begun(accepted), an_unsent_call())
        await world.allow_calls()

        await world.settle_call(await world.begun(accepted), a_token())

        grant = await world.grant_row()
        assert (grant.failures, grant.failure_class, grant.state) == (0, None, "healthy")

    async def test_invalid_grant_after_the_version_moved_on_changes_nothing(
        self, store: Database, server: OAuthServer
    ) -> None:
        """The late loser must not end what the winner renewed (C292)."""
        world = await ClubsWorld.connected(
            store, server, grant="steady", rotation=GrantRotation.STATIC
        )
        late, winner = await world.command("lead-1"), await world.command("lead-2")
        slow = await world.begun(late)
        await world.end_refresh_lease()
        await world.settle_call(await world.begun(winner), a_token())

        settled = await world.settle_call(slow, a_refusal())

        grant = await world.grant_row()
        assert (grant.state, grant.token_version) == ("healthy", 2)
        assert settled.outcome is RefreshOutcome.SUPERSEDED


class TestALostAnswer:
    @fault("lost refresh answer", at="token call", then="parked, not asked for a second time")
    async def test_of_a_rotating_token_parks_the_principal(
        self, store: Database, server: OAuthServer
    ) -> None:
        """The token may be spent: to show it again could end the whole grant (C291)."""
        world = await ClubsWorld.connected(store, server)
        accepted = await world.command()

        settled = await world.settle_call(await world.begun(accepted), a_lost_answer())
        await world.allow_calls()

        assert settled.outcome is RefreshOutcome.UNKNOWN
        assert (await world.grant_row()).state == "refresh_unknown"
        assert verdict(await world.begin(accepted)) is ClaimVerdict.CREDENTIAL_HELD
        assert len(await world.ledger()) == 1

    @pytest.mark.parametrize(
        "rotation", [GrantRotation.STATIC, GrantRotation.GRACE, GrantRotation.MINT]
    )
    async def test_of_any_other_is_asked_for_again(
        self, store: Database, server: OAuthServer, rotation: GrantRotation
    ) -> None:
        """A second call does no harm there, and nobody has to be woken at night (C288)."""
        grant = "install" if rotation is GrantRotation.MINT else "steady"
        world = await ClubsWorld.connected(store, server, grant=grant, rotation=rotation)
        accepted = await world.command()
        await world.settle_call(await world.begun(accepted), a_lost_answer())
        await world.allow_calls()

        await world.settle_call(await world.begun(accepted), a_token())

        assert await world.outcomes() == ["unknown", "activated"]
        assert (await world.grant_row()).state == "healthy"


class TestABeginnerWhoIsGone:
    @fault("crash at a step of a refresh", at="after the mark", then="parked when the lease ends")
    async def test_leaves_a_rotating_grant_unknown_by_whoever_comes_next(
        self, store: Database, server: OAuthServer
    ) -> None:
        """Nobody knows whether it called; past its lease that is said once (C291)."""
        world = await ClubsWorld.connected(store, server)
        gone, other = await world.command("lead-1"), await world.command("lead-2")
        await world.begun(gone)
        await world.end_refresh_lease()

        found = await world.begin(other)

        assert verdict(found) is ClaimVerdict.CREDENTIAL_HELD
        assert await world.outcomes() == ["unknown"]
        assert (await world.grant_row()).state == "refresh_unknown"
        assert (await world.item(other.work)).state == "retry"

    async def test_leaves_it_unknown_by_the_sweep_where_nobody_comes(
        self, store: Database, server: OAuthServer
    ) -> None:
        """A principal without work is listed, too (C291)."""
        world = await ClubsWorld.connected(store, server)
        await world.begun(await world.command())
        await expire_refreshes(world.engine)
        while_it_lives = await world.outcomes()
        await world.end_refresh_lease()

        assert await expire_refreshes(world.engine) >= 1
        assert await expire_refreshes(world.engine) == 0

        assert while_it_lives == [None]
        grant = await world.grant_row()
        assert (grant.state, await world.outcomes()) == ("refresh_unknown", ["unknown"])

    async def test_leaves_any_other_grant_to_the_next_call(
        self, store: Database, server: OAuthServer
    ) -> None:
        """What may be called twice is, and the first call is told as superseded (C288)."""
        world = await ClubsWorld.connected(
            store, server, grant="steady", rotation=GrantRotation.STATIC
        )
        gone, other = await world.command("lead-1"), await world.command("lead-2")
        await world.begun(gone)
        await world.end_refresh_lease()

        await world.begun(other)

        assert await world.outcomes() == ["superseded", None]

    async def test_counts_a_lost_claim_of_its_item_and_no_attempt(
        self, store: Database, server: OAuthServer
    ) -> None:
        """Its item is reclaimed as any other whose claimant is gone (C50)."""
        world = await ClubsWorld.connected(
            store, server, grant="steady", rotation=GrantRotation.STATIC
        )
        accepted = await world.command()
        await world.begun(accepted)
        await world.end_refresh_lease()

        await world.settle_call(await world.begun(accepted), a_token())

        item = await world.item(accepted.work)
        assert (item.claims_lost, item.attempt, item.ownership_epoch) == (1, 0, 2)


class TestALateWord:
    async def _told_as_lost(
        self, store: Database, server: OAuthServer
    ) -> tuple[ClubsWorld, RefreshBegun]:
        world = await ClubsWorld.connected(store, server)
        begun = await world.begun(await world.command())
        await world.end_refresh_lease()
        await expire_refreshes(world.engine)
        return world, begun

    @fault("slow refresh beyond the lease", at="token call", then="its late answer is activated")
    async def test_of_the_beginner_is_the_truth_and_is_activated(
        self, store: Database, server: OAuthServer
    ) -> None:
        """Nobody else has the token that came; without it a person would be asked for nothing."""
        world, begun = await self._told_as_lost(store, server)

        settled = await world.settle_call(begun, a_token())

        grant = await world.grant_row()
        assert (settled.outcome, settled.held) == (RefreshOutcome.ACTIVATED, None)
        assert (grant.state, grant.token_version) == ("healthy", 2)
        assert await world.outcomes() == ["activated"]

    @fault("frozen owner", at="before the token call", then="it says that it sent nothing")
    async def test_that_nothing_was_sent_lifts_the_doubt(
        self, store: Database, server: OAuthServer
    ) -> None:
        """A process that stood still past its deadline never called (C166)."""
        world, begun = await self._told_as_lost(store, server)

        await world.settle_call(begun, an_unsent_call())
        await world.allow_calls()

        assert (await world.grant_row()).state == "healthy"
        accepted = await world.command("lead-2")
        await world.settle_call(await world.begun(accepted), a_token())
        assert await world.outcomes() == ["unsent", "activated"]

    async def test_that_the_answer_is_lost_adds_nothing(
        self, store: Database, server: OAuthServer
    ) -> None:
        """It is what everybody supposed already."""
        world, begun = await self._told_as_lost(store, server)

        settled = await world.settle_call(begun, a_lost_answer())

        assert settled.outcome is RefreshOutcome.UNKNOWN
        assert (await world.grant_row()).state == "refresh_unknown"

    async def test_does_not_touch_what_a_later_call_brought(
        self, store: Database, server: OAuthServer
    ) -> None:
        """Of two answers the one that the grant waits for counts (C287)."""
        world = await ClubsWorld.connected(
            store, server, grant="steady", rotation=GrantRotation.STATIC
        )
        slow = await world.begun(await world.command("lead-1"))
        await world.end_refresh_lease()
        winner = await world.begun(await world.command("lead-2"))
        await world.settle_call(winner, a_token("of the winner"))

        settled = await world.settle_call(slow, a_token("of the late one"))

        assert settled.outcome is RefreshOutcome.SUPERSEDED
        assert (await world.grant_row()).token_version == 2

    @fault("reconnect", at="token call", then="the answer is of no use to the new generation")
    async def test_after_a_reconnect_makes_nothing_of_the_new_generation(
        self, store: Database, server: OAuthServer
    ) -> None:
        """Tokens of one account must never come under another (C284)."""
        world = await ClubsWorld.connected(store, server)
        begun = await world.begun(await world.command())
        old = world.generation
        await world.reconnect(family=world.family, account="club-b")

        settled = await world.settle_call(begun, a_token("of the old one"))

        assert settled.outcome is RefreshOutcome.SUPERSEDED
        assert (await world.grant_row()).token_version == 1
        world.generation = old
        assert (await world.grant_row()).state == "revoked"

    async def test_of_a_claim_that_others_hold_leaves_theirs_alone(
        self, store: Database, server: OAuthServer
    ) -> None:
        """It may tell of its own call, and not end somebody else's claim (C160)."""
        world = await ClubsWorld.connected(
            store, server, grant="steady", rotation=GrantRotation.STATIC
        )
        accepted = await world.command()
        slow = await world.begun(accepted)
        await world.end_refresh_lease()
        fresh = await world.begun(accepted)

        await world.settle_call(slow, a_token())

        item = await world.item(accepted.work)
        assert (item.state, item.lease_token) == ("processing", fresh.fence.token)
        assert await world.outcomes() == ["superseded", None]


class TestWhoWaited:
    async def test_is_due_when_the_renewal_has_ended(
        self, store: Database, server: OAuthServer
    ) -> None:
        """They were put off to the end of its lease, and need not wait for that."""
        world = await ClubsWorld.connected(store, server)
        first, second = await world.command("lead-1"), await world.command("lead-2")
        begun = await world.begun(first)
        await world.try_to_start(second)
        await world.settle_call(begun, a_token())

        classes = await release_waiters(world.engine, begun, until=None)

        item = await world.item(second.work)
        assert classes == [item.queue_class]
        assert item.run_after <= await world.now()

    async def test_for_a_time_of_its_own_is_left_to_it(
        self, store: Database, server: OAuthServer
    ) -> None:
        """What a provider asked to wait for must not come early because a token came (C250)."""
        world = await ClubsWorld.connected(store, server)
        first, other = await world.command("lead-1"), await world.command("lead-2")
        begun = await world.begun(first)
        await world.sql(
            "UPDATE oncefence.work_items SET run_after = :due"
            " WHERE org_id = :org AND work_id = :work",
            work=other.work,
            due=begun.lease_until,
        )

        assert await release_waiters(world.engine, begun, until=None) == []
        assert (await world.item(other.work)).run_after == begun.lease_until

    async def test_is_due_after_the_back_off_where_the_renewal_failed(
        self, store: Database, server: OAuthServer
    ) -> None:
        """Not at the end of a lease that means nothing any more, and not before (C294)."""
        world = await ClubsWorld.connected(store, server)
        first, second = await world.command("lead-1"), await world.command("lead-2")
        begun = await world.begun(first)
        await world.try_to_start(second)
        settled = await world.settle_call(begun, a_refusal("temporarily_unavailable", Refusal.WAIT))
        assert settled.held is not None

        assert await release_waiters(world.engine, begun, until=settled.held.until) == []

        assert (await world.item(second.work)).run_after == settled.held.until


class TestParkedWork:
    async def _parked(self, store: Database, server: OAuthServer) -> tuple[ClubsWorld, WorkId]:
        world = await ClubsWorld.connected(store, server)
        accepted = await world.command()
        await world.settle_call(await world.begun(accepted), a_lost_answer())
        await plant(
            store,
            "UPDATE work_items SET run_after = clock_timestamp() - interval '1 hour'"
            f" WHERE org_id = '{world.org}'",
        )
        return world, accepted.work

    async def _due(self, world: ClubsWorld) -> list[WorkId]:
        due = await find_due_work(world.engine, page=1000, limits=world.limits)
        return [item.ref.work for item in due if item.ref.org == world.org]

    async def test_is_not_nudged_while_it_waits_for_a_person(
        self, store: Database, server: OAuthServer
    ) -> None:
        """The sweep nudges nothing that a start would refuse (C389)."""
        world, _ = await self._parked(store, server)

        assert await self._due(world) == []

    async def test_is_nudged_when_its_principal_is_authorised_anew(
        self, store: Database, server: OAuthServer
    ) -> None:
        """Whoever does that wakes it, and the sweep covers a lost wake (C390)."""
        world, work = await self._parked(store, server)
        async with world.engine.begin() as connection:
            await renew(
                connection,
                world.ring,
                world.org,
                world.generation,
                binding=world.binding,
                tokens=NewTokens(access=Secret("A"), refresh=Secret("R"), lifetime_s=1800),
            )

        assert await self._due(world) == [work]
        assert (await world.grant_row()).state == "healthy"

    async def test_is_nudged_to_its_end_when_its_generation_has_ended(
        self, store: Database, server: OAuthServer
    ) -> None:
        """It ends as stale by its own run, and must not stand parked for ever (C284)."""
        world, work = await self._parked(store, server)
        await world.reconnect(family=world.family)

        assert await self._due(world) == [work]

    async def test_of_a_lookup_is_nudged_where_its_starter_has_spoken(
        self, store: Database, server: OAuthServer
    ) -> None:
        """A late word settles it, and that needs no token (C274)."""
        world = await ClubsWorld.connected(store, server, is_fresh=True)
        _, started, looking = await world.an_unknown_command("lead-1")
        await plant(
            store,
            "UPDATE authorization_grants SET state = 'needs_reauthorization'"
            f" WHERE generation_id = '{world.generation}'",
            "UPDATE work_items SET run_after = clock_timestamp() - interval '1 hour'"
            f" WHERE org_id = '{world.org}' AND state = 'pending'",
        )
        before = await self._due(world)

        await world.tell(started, an_end(Outcome.ACCEPTED, response_status=200))
        await plant(
            store,
            "UPDATE work_items SET run_after = clock_timestamp() - interval '1 hour'"
            f" WHERE org_id = '{world.org}' AND state = 'pending'",
        )

        assert before == []
        assert await self._due(world) == [looking]
