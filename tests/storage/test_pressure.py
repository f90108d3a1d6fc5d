"""Depth and age of what waits: right, whole, rebuilt under load, and in nobody's way (C26)."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from oncefence.domain.effect import Outcome
from oncefence.domain.errors import VersionMoved
from oncefence.domain.ids import OrgId
from oncefence.domain.limits import Limits
from oncefence.domain.lookup import Verdict
from oncefence.domain.operator import EVERY_ORG
from oncefence.storage import work_pressure
from oncefence.storage.dead_letters import DeadLetterFilter, dead_letters_of
from oncefence.storage.phases.drop_pressure import drop_pressure
from oncefence.storage.phases.read_pressure import Pressure, read_pressure
from oncefence.storage.phases.rebuild_pressure import ViewOrder, rebuild_pressure
from oncefence.storage.phases.settle_lookup import LookupSettled
from oncefence.storage.phases.start_attempt import Started
from tests.storage.racing import waiting
from tests.support.servers import Database
from tests.support.world import Accepted, World

pytestmark = pytest.mark.asyncio(loop_scope="module")

WITHOUT_PATIENCE = {
    "search_path": "oncefence",
    # Whatever has to wait for a lock at all fails at once.
    "lock_timeout": "1ms",
}
# Every item that is not over, whatever its state: another form of the question than the code's.
LIVE = text(
    """
    SELECT org_id, family, coalesce(provider, '') AS provider, state FROM oncefence.work_items
     WHERE state NOT IN ('succeeded', 'skipped', 'cancelled', 'reconciled_legacy_terminal', 'dead')
    """
)
READING = text(
    """
    SELECT p.org_id, p.family, p.provider, p.state, p.depth FROM oncefence.work_pressure AS p
      JOIN oncefence.pressure_revisions AS r ON r.revision = p.revision AND NOT r.is_dropped
    """
)

Depths = dict[tuple[str, ...], int]


async def is_right(connection: AsyncConnection) -> bool:
    """Whether the reading is what a count says, with the dead letters that an operator sees."""
    reading = {tuple(row[:-1]): row[-1] for row in (await connection.execute(READING)).all()}
    live = (await connection.execute(LIVE)).all()
    dead = await dead_letters_of(connection, None, DeadLetterFilter(), limit=100_000)
    return reading == Counter(
        (row.org_id, row.family, row.provider or "", row.state) for row in (*live, *dead)
    )


def depths_in(pressure: Pressure, org: OrgId) -> Depths:
    assert pressure.waiting is not None
    return {(each.family, each.state): each.depth for each in pressure.waiting if each.org == org}


async def an_order(world: World, note: str = "looks odd") -> ViewOrder:
    standing = await read_pressure(world.engine, [EVERY_ORG])
    return ViewOrder(actor="operator:ann", note=note, expected_version=standing.version)


async def rebuilt(world: World) -> Pressure:
    """The reading after a rebuild that an administrator ordered."""
    assert await rebuild_pressure(world.engine, await an_order(world)) is not None
    return await read_pressure(world.engine, [EVERY_ORG])


@asynccontextmanager
async def unfinished_rebuild(store: Database) -> AsyncIterator[AsyncConnection]:
    """A rebuild that has counted and written, and whose COMMIT does not come."""
    async with store.app_engine.connect() as connection, connection.begin() as transaction:
        await work_pressure.take_turn(connection)
        await work_pressure.fill(connection)
        yield connection
        await transaction.rollback()


class TestAReading:
    async def test_is_what_a_count_of_the_items_says(self, world: World) -> None:
        """A number that nobody can recount is worth nothing."""
        await world.accept_command("waits")
        await world.a_running_command("runs")
        _, started = await world.a_running_command("again")
        await world.settle(started, Outcome.RETRYABLE_PRE_DISPATCH)
        await world.an_unknown_command("doubt")
        _, started = await world.a_running_command("done")
        await world.settle(started, Outcome.ACCEPTED)
        _, started = await world.a_running_command("refused")
        await world.settle(started, Outcome.REJECTED)
        moved = await world.accept_command("moved")
        await world.change_link("moved")
        await world.try_to_start(moved)

        pressure = await rebuilt(world)

        assert depths_in(pressure, world.org) == {
            ("effect.dispatch", "pending"): 1,
            ("effect.dispatch", "processing"): 1,
            ("effect.dispatch", "retry"): 1,
            # The one in doubt and the one that was refused.
            ("effect.dispatch", "dead"): 2,
            # Its link was changed before anything was sent.
            ("effect.dispatch", "cancelled"): 1,
            ("effect.lookup", "pending"): 1,
        }
        async with world.engine.connect() as connection:
            assert await is_right(connection)

    async def test_tells_what_is_due_and_how_old_the_oldest_is(self, world: World) -> None:
        """What is not due waits by order; it is no pressure, however much of it there is."""
        due = await world.accept_command("now")
        _, _, lookup_work = await world.an_unknown_command("doubt")
        await world.sql(
            "UPDATE oncefence.work_items SET run_after = clock_timestamp() - interval '90 seconds'"
            " WHERE org_id = :org AND work_id = :work",
            work=due.work,
        )
        await world.sql(
            "UPDATE oncefence.work_items SET run_after = clock_timestamp() + interval '1 hour'"
            " WHERE org_id = :org AND work_id = :work",
            work=lookup_work,
        )

        pressure = await rebuilt(world)

        assert pressure.waiting is not None
        mine = {
            (each.family, each.state): each for each in pressure.waiting if each.org == world.org
        }
        pending, lookup = mine["effect.dispatch", "pending"], mine["effect.lookup", "pending"]
        assert (pending.due, lookup.due) == (1, 0)
        assert pending.oldest_due_seconds == pytest.approx(90, abs=20)
        assert lookup.oldest_due_seconds is None
        assert 0 <= lookup.oldest_made_seconds < 60

    async def test_says_of_which_source_and_when_it_is(self, world: World) -> None:
        """A figure without its time is taken for one of now."""
        before = await world.now()

        first, second = await rebuilt(world), await rebuilt(world)

        assert second.revision == first.revision + 1
        assert first.source_time is not None
        assert second.source_time is not None
        assert before < first.source_time < second.source_time
        assert second.age_seconds is not None
        assert 0 <= second.age_seconds < 60
        assert second.source_snapshot is not None
        assert second.source_snapshot != first.source_snapshot

    async def test_counts_no_row_of_an_older_revision(self, world: World) -> None:
        """Rows stay, since the application deletes nothing; what has gone must not be read."""
        accepted = await world.accept_command()
        await rebuilt(world)
        await world.settle(await world.start(accepted), Outcome.ACCEPTED)

        pressure = await rebuilt(world)

        assert depths_in(pressure, world.org) == {}

    async def test_shows_an_org_to_nobody_elses_operator(
        self, world: World, other_world: World
    ) -> None:
        """Another org's backlog tells about its business (C60)."""
        await world.accept_command()
        await rebuilt(world)

        mine = await read_pressure(world.engine, [world.org])
        neither = await read_pressure(world.engine, [OrgId("org-nobody")])

        assert mine.waiting is not None
        assert {each.org for each in mine.waiting} == {world.org}
        assert neither.waiting == []
        every = await read_pressure(world.engine, [EVERY_ORG])
        assert every.waiting is not None
        assert {world.org, other_world.org} <= {each.org for each in every.waiting}


class TestARebuild:
    async def test_counts_one_moment_while_work_goes_on(self, store: Database) -> None:
        """A reading torn over two moments would count an item twice, or not at all."""
        world = await World.make(store, limits=Limits(attempts_max=10_000))
        items = [await world.accept_command(f"lead-{number}") for number in range(6)]
        is_over = asyncio.Event()

        async def work_on(accepted: Accepted) -> int:
            turns = 0
            while not is_over.is_set():
                due = (await world.item(accepted.work)).run_after
                started = await world.try_to_start(accepted, as_of=max(due, await world.now()))
                assert isinstance(started, Started), started
                await world.settle(started, Outcome.RETRYABLE_PRE_DISPATCH, as_of=await world.now())
                turns += 1
            return turns

        async def count() -> tuple[list[int], int]:
            totals, in_own_snapshot = [], 0
            for _ in range(12):
                pressure = await rebuilt(world)
                totals.append(sum(depths_in(pressure, world.org).values()))
                in_own_snapshot += await rebuilt_like_its_own_snapshot(world)
            is_over.set()
            return totals, in_own_snapshot

        async with asyncio.TaskGroup() as group:
            working = [group.create_task(work_on(each)) for each in items]
            counting = group.create_task(count())

        # Each of them always waits or runs: however they moved, they were six.
        assert counting.result() == ([len(items)] * 12, 12)
        assert all(each.result() > 0 for each in working)

    async def test_keeps_no_claim_waiting(self, store: Database, world: World) -> None:
        """A read model that holds up the work that it counts would make what it shows."""
        accepted = await world.accept_command()
        _, _, lookup_work = await world.an_unknown_command("doubt")
        hasty = create_async_engine(
            str(store.app_engine.url.render_as_string(hide_password=False)),
            connect_args={"server_settings": WITHOUT_PATIENCE},
        )
        world.engine = hasty
        try:
            async with unfinished_rebuild(store):
                started = await world.start(accepted)
                await world.settle(started, Outcome.ACCEPTED)
                looking = await world.start_looking(lookup_work)
                settled = await world.settle_looking(looking.fence, Verdict.INCONCLUSIVE)
                await world.accept_command("another")
        finally:
            await hasty.dispose()

        assert isinstance(settled, LookupSettled)

    async def test_waits_for_no_claim(self, store: Database, world: World) -> None:
        """The other way round: an item that is locked for long must not stop the reading."""
        accepted = await world.accept_command()
        async with store.app_engine.connect() as holder, holder.begin():
            await holder.execute(
                text(
                    "SELECT FROM oncefence.work_items WHERE org_id = :org AND work_id = :work"
                    " FOR UPDATE"
                ),
                {"org": world.org, "work": accepted.work},
            )
            async with asyncio.timeout(10):
                pressure = await rebuilt(world)

        assert depths_in(pressure, world.org) == {("effect.dispatch", "pending"): 1}

    async def test_takes_turns_with_another(self, store: Database, world: World) -> None:
        """Two at once would write rows of two moments under one revision."""
        before = await read_pressure(world.engine, [EVERY_ORG])
        async with unfinished_rebuild(store):
            both = [asyncio.create_task(rebuild_pressure(world.engine)) for _ in range(2)]
            await waiting(store, 2)
            meanwhile = await read_pressure(world.engine, [EVERY_ORG])

        revisions = sorted(built.revision for built in await asyncio.gather(*both) if built)

        assert meanwhile.revision == before.revision
        assert revisions == [before.revision + 1, before.revision + 2]

    async def test_of_a_moved_revision_is_refused(self, world: World) -> None:
        """Whoever orders it saw another reading than the one that stands (C406)."""
        order = await an_order(world)
        await rebuild_pressure(world.engine)

        with pytest.raises(VersionMoved):
            await rebuild_pressure(world.engine, order)
        with pytest.raises(VersionMoved):
            await drop_pressure(world.engine, order)

        assert await acts(world, order.expected_version) == []

    async def test_that_is_ordered_leaves_its_row_in_the_audit(self, world: World) -> None:
        """An act of an operator is in the audit or has not happened (C406)."""
        order = await an_order(world, note="after the incident")

        await rebuild_pressure(world.engine, order)

        assert await acts(world, order.expected_version) == [
            ("operator:ann", "views.rebuild", "work_pressure", "after the incident")
        ]


class TestADrop:
    async def test_says_not_built_and_no_zeros(self, world: World) -> None:
        """Nothing waits, and nobody counted, are two answers."""
        await world.accept_command()
        await rebuilt(world)

        order = await an_order(world)
        await drop_pressure(world.engine, order)

        dropped = await read_pressure(world.engine, [world.org])
        assert dropped.waiting is None
        assert await acts(world, order.expected_version) == [
            ("operator:ann", "views.drop", "work_pressure", "looks odd")
        ]
        pressure = await rebuilt(world)
        assert depths_in(pressure, world.org) == {("effect.dispatch", "pending"): 1}

    async def test_is_not_undone_by_the_sweep(self, world: World) -> None:
        """What somebody dropped, with a reason, is not back within the minute."""
        await drop_pressure(world.engine, await an_order(world))

        assert await rebuild_pressure(world.engine) is None

        assert (await read_pressure(world.engine, [EVERY_ORG])).waiting is None
        await rebuilt(world)
        assert await rebuild_pressure(world.engine) is not None

    async def test_under_load_stops_no_claim(self, world: World) -> None:
        """It can be dropped and rebuilt at any time, or nobody dares to."""
        for number in range(3):
            await world.link(f"lead-{number}")
        is_over = asyncio.Event()

        async def come_and_go(number: int) -> int:
            done = 0
            while not is_over.is_set() or done < 3:
                accepted = await world.accept_command(f"lead-{number}")
                await world.settle(await world.start(accepted), Outcome.ACCEPTED)
                done += 1
            return done

        async def drop_and_rebuild() -> None:
            for _ in range(5):
                await drop_pressure(world.engine, await an_order(world))
                await rebuilt(world)
            is_over.set()

        async with asyncio.TaskGroup() as group:
            working = [group.create_task(come_and_go(number)) for number in range(3)]
            group.create_task(drop_and_rebuild())

        assert all(each.result() >= 3 for each in working)
        assert depths_in(await rebuilt(world), world.org) == {}


async def rebuilt_like_its_own_snapshot(world: World) -> bool:
    """Whether a rebuild writes what a count in the very snapshot of that rebuild says."""
    async with world.engine.connect() as connection:
        await connection.execution_options(isolation_level="REPEATABLE READ")
        async with connection.begin() as transaction:
            await work_pressure.take_turn(connection)
            await work_pressure.fill(connection)
            is_equal = await is_right(connection)
            await transaction.rollback()
    return is_equal


async def acts(world: World, version: str) -> Sequence[tuple[str, ...]]:
    """The audit rows of acts on the view that named this version."""
    rows = await world.sql(
        "SELECT actor, act, subject_id, note FROM oncefence.audit WHERE :org <> ''"
        " AND org_id = '*' AND subject_kind = 'view' AND expected_version = :version",
        version=version,
    )
    return [tuple(row) for row in rows]
