"""A person's word on a breaker: opening and closing one, and whom it held."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
import pytest_asyncio

from oncefence.app.local_postgres import LocalPostgres
from oncefence.domain.breaker import OPEN_SECONDS_MAX, BreakerKey, BreakerState
from oncefence.domain.claim import ClaimVerdict
from oncefence.domain.effect import Outcome
from oncefence.domain.errors import ActRefused, NoSuchTarget, VersionMoved
from oncefence.domain.ids import OrgId, PrincipalBindingId
from oncefence.domain.operator import EVERY_ORG
from oncefence.storage.claims import NotStarted
from oncefence.storage.phases.bring_forward import bring_forward
from oncefence.storage.phases.list_breakers import count_breakers, list_breakers, read_breaker
from oncefence.storage.phases.override_breaker import Overridden, override_breaker
from oncefence.storage.phases.start_attempt import Started
from tests.storage.breaking import Teller, fail, let_pass, of_binding, standing
from tests.support import servers
from tests.support.world import World, an_end

pytestmark = pytest.mark.asyncio(loop_scope="module")

NOTE = "they told us on the phone"
OF_CLASS = BreakerKey(provider="hubspot", endpoint_class="crm.objects.write")


@pytest_asyncio.fixture(loop_scope="module")
async def world(postgres: LocalPostgres) -> AsyncIterator[World]:
    """A world in a database of its own: its provider's breaker is that of all orgs in there."""
    async with servers.fresh_database(postgres) as alone:
        yield await World.make(alone)


async def override(
    world: World,
    target: BreakerState,
    *,
    key: BreakerKey | None = None,
    expected: str = "0",
    actor: str = "olga",
    note: str = NOTE,
    open_seconds: float = 60.0,
) -> Overridden:
    return await override_breaker(
        world.engine,
        key or of_binding(world),
        target,
        actor=actor,
        note=note,
        expected_version=expected,
        open_seconds=open_seconds,
    )


async def acts(world: World, org: OrgId) -> list[tuple[str, str, str, str]]:
    rows = await world.sql(
        "SELECT act, subject_id, note, expected_version FROM oncefence.audit"
        " WHERE org_id = :of AND subject_kind = 'breaker' ORDER BY sequence",
        of=org,
    )
    return [(row.act, row.subject_id, row.note, row.expected_version) for row in rows]


class TestOpening:
    async def test_holds_back_at_once_and_keeps_who_and_why(self, world: World) -> None:
        """Who knows of an outage need not wait for ten unknowns (C406)."""
        done = await override(world, BreakerState.OPEN)

        assert done.is_new
        breaker = done.breaker
        assert (breaker.state, breaker.version) == (BreakerState.OPEN, "1")
        assert (breaker.changed_by, breaker.changed_note) == ("olga", NOTE)
        assert breaker.until is not None
        assert breaker.opened_at is not None
        assert round((breaker.until - breaker.opened_at).total_seconds()) == 60
        held = await world.try_to_start(await world.accept_command())
        assert isinstance(held, NotStarted)
        assert held.verdict is ClaimVerdict.BREAKER_OPEN
        assert await acts(world, world.org) == [("breaker.open", str(of_binding(world)), NOTE, "0")]

    async def test_of_a_class_is_an_act_on_every_org(self, world: World) -> None:
        """It holds all of them back, so it stands in the audit of all (C406)."""
        await override(world, BreakerState.OPEN, key=OF_CLASS)

        other = await World.make(world.database)
        held = await other.try_to_start(await other.accept_command())
        assert isinstance(held, NotStarted)
        assert held.verdict is ClaimVerdict.BREAKER_OPEN
        assert [act for act, *_ in await acts(world, EVERY_ORG)] == ["breaker.open"]

    async def test_ends_like_any_opening(self, world: World) -> None:
        """Nobody needs to remember it: it is half-open when its time is over (C307)."""
        waiting = await world.accept_command()
        await override(world, BreakerState.OPEN)
        await let_pass(world.database, of_binding(world), 60 + 11)

        found = await read_breaker(world.engine, of_binding(world), tells_orgs=False)

        assert found is not None
        assert found.state is BreakerState.HALF_OPEN
        assert isinstance(await world.try_to_start(waiting), Started)

    async def test_is_possible_where_it_is_half_open(self, world: World) -> None:
        """Whether somebody came since its time or not, a person may shut it again (C304)."""
        await override(world, BreakerState.OPEN)
        await let_pass(world.database, of_binding(world), 61)

        done = await override(world, BreakerState.OPEN, expected="1", note="not yet")

        # Its own move to half-open came in between.
        assert (done.breaker.state, done.breaker.version) == (BreakerState.OPEN, "3")

    @pytest.mark.parametrize("open_seconds", [0.0, -1.0, OPEN_SECONDS_MAX + 1, float("nan")])
    async def test_for_no_time_or_for_too_long_is_refused(
        self, world: World, open_seconds: float
    ) -> None:
        """What is to be held back until somebody says so is paused (C57)."""
        with pytest.raises(ActRefused, match="pause the work"):
            await override(world, BreakerState.OPEN, open_seconds=open_seconds)

        assert await standing(world.database, of_binding(world)) is None

    @pytest.mark.parametrize(
        "key",
        [
            BreakerKey(org=OrgId("nobody"), binding=PrincipalBindingId(UUID(int=7))),
            BreakerKey(provider="hubspot", endpoint_class="crm.objects.paint"),
            BreakerKey(provider="nobody", endpoint_class="crm.objects.write"),
        ],
        ids=str,
    )
    async def test_of_what_is_not_there_is_refused(self, world: World, key: BreakerKey) -> None:
        """The breaker of nothing would only look like one (C12)."""
        with pytest.raises(NoSuchTarget):
            await override(world, BreakerState.OPEN, key=key)

        assert await standing(world.database, key) is None


class TestClosing:
    async def test_lets_go_what_it_held_at_once(self, world: World) -> None:
        """Who knows that they are back need not wait for the rest of ten minutes (C304)."""
        waiting = await world.accept_command()
        _, _, lookup = await world.an_unknown_command("lead-unknown")
        await fail(world, 10)
        held = (await world.try_to_start(waiting), await world.try_to_look(lookup))
        assert all(isinstance(each, NotStarted) for each in held)

        await override(world, BreakerState.CLOSED, expected="1")
        classes = await bring_forward(world.engine, of_binding(world))

        assert set(classes) == {
            (world.org, "crm.objects.write"),
            (world.org, "lookup:crm.objects.write"),
        }
        now = await world.now()
        assert (await world.item(waiting.work)).run_after <= now
        assert (await world.item(lookup)).run_after <= now
        assert isinstance(await world.try_to_start(waiting, as_of=now), Started)

    async def test_leaves_what_waits_for_another_reason(self, world: World) -> None:
        """A provider that asked for an hour is left alone for an hour (C250)."""
        asked = await world.accept_command("lead-asked")
        end = replace(an_end(Outcome.REPLAY_SAFE_RETRY), retry_after_seconds=3600.0)
        await world.settle(await world.start(asked), end)
        before = (await world.item(asked.work)).run_after
        await fail(world, 10)

        await override(world, BreakerState.CLOSED, expected="1")
        await bring_forward(world.engine, of_binding(world))

        assert (await world.item(asked.work)).run_after == before

    async def test_brings_nothing_forward_while_it_is_open(self, world: World) -> None:
        """The wake after an act may come when it has opened again (C304)."""
        waiting = await world.accept_command()
        await fail(world, 10)
        held = await world.try_to_start(waiting)
        assert isinstance(held, NotStarted)

        assert await bring_forward(world.engine, of_binding(world)) == []
        assert (await world.item(waiting.work)).run_after == held.until

    async def test_begins_its_lengths_anew(self, world: World) -> None:
        """What a person vouches for is not an outage that goes on (C304)."""
        await fail(world, 10)
        await override(world, BreakerState.CLOSED, expected="1")
        await fail(world, 10)

        row = await standing(world.database, of_binding(world))
        assert row is not None
        assert (row.state, row.opens) == ("open", 1)
        assert row.until - row.opened_at == timedelta(seconds=30)

    async def test_of_what_is_closed_is_refused(self, world: World) -> None:
        """Nothing is held by it, so something else holds what is missing (C403)."""
        with pytest.raises(ActRefused, match="is_closed"):
            await override(world, BreakerState.CLOSED)


class TestTheVersion:
    async def test_that_has_moved_is_refused(self, world: World) -> None:
        """It may have opened since, and for a reason (C406)."""
        await fail(world, 10)
        with pytest.raises(VersionMoved):
            await override(world, BreakerState.CLOSED, expected="0")

        assert await acts(world, world.org) == []

    async def test_is_not_asked_of_the_same_act_again(self, world: World) -> None:
        """An answer that was lost is not a reason to look for what one did oneself (C406)."""
        first = await override(world, BreakerState.OPEN)
        again = await override(world, BreakerState.OPEN)
        other = override(world, BreakerState.OPEN, actor="otto")

        assert (first.is_new, again.is_new) == (True, False)
        assert again.breaker == first.breaker
        with pytest.raises(VersionMoved):
            await other
        assert len(await acts(world, world.org)) == 1


class TestTheList:
    async def test_shows_an_org_its_own_and_the_providers(self, world: World) -> None:
        """Nobody learns of another tenant's, nor of how many tell of a provider (C8)."""
        other = await World.make(world.database)
        await override(world, BreakerState.OPEN)
        await override(other, BreakerState.OPEN)
        await override(world, BreakerState.OPEN, key=OF_CLASS)

        own = await list_breakers(world.engine, [world.org])
        all_of_them = await list_breakers(world.engine, [EVERY_ORG])

        assert [each.key for each in own] == [OF_CLASS, of_binding(world)]
        assert own[0].orgs_seen is None
        assert {each.key for each in all_of_them} == {
            OF_CLASS,
            of_binding(world),
            of_binding(other),
        }
        assert all_of_them[0].orgs_seen == 0

    async def test_leaves_out_what_is_closed_unless_asked(self, world: World) -> None:
        """What holds nothing back is not news."""
        await fail(world, 1)

        assert await list_breakers(world.engine, [world.org]) == []
        closed = await list_breakers(world.engine, [world.org], with_closed=True)
        assert {each.state for each in closed} == {BreakerState.CLOSED}

    async def test_counts_those_that_are_not_closed_without_naming_an_org(
        self, world: World
    ) -> None:
        """The gauge is for whoever keeps the deployment running (C461)."""
        teller = Teller(database=world.database)
        await teller.go_dark()
        await fail(world, 10)

        counted = await count_breakers(world.engine)

        assert [
            (each.is_of_provider, each.provider, each.endpoint_class, each.state, each.breakers)
            for each in counted
        ] == [
            (False, "hubspot", "", "open", 1),
            (True, teller.name, "writes", "open", 1),
        ]
