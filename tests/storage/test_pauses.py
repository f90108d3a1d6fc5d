"""Pauses: what they hold back, and how what they held comes back."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from uuid import uuid4

import asyncpg
import pytest

from oncefence.activities.waking import AdmissionWindow
from oncefence.domain.claim import ClaimEnd, ClaimVerdict, WorkEnd
from oncefence.domain.effect import Outcome
from oncefence.domain.errors import ActRefused, NoSuchTarget, VersionMoved
from oncefence.domain.ids import LeaseToken, OrgId, PauseId, PrincipalBindingId, WorkId
from oncefence.domain.limits import Limits
from oncefence.domain.operator import EVERY_ORG
from oncefence.domain.pause import PauseScope, PauseState
from oncefence.domain.redaction import Secret
from oncefence.storage.claims import NotStarted
from oncefence.storage.phases.add_principal_binding import add_principal_binding
from oncefence.storage.phases.claim_work import ClaimedWork, claim_work
from oncefence.storage.phases.find_room import Room, find_room
from oncefence.storage.phases.find_work import WorkRef, find_due_work
from oncefence.storage.phases.list_pauses import ListedPause, find_held_classes, list_pauses
from oncefence.storage.phases.open_window import open_window
from oncefence.storage.phases.pause_work import Pause, PauseGiven, pause_work
from oncefence.storage.phases.resume_work import Resumed, resume_work
from oncefence.storage.phases.settle_work import settle_work
from oncefence.storage.phases.start_attempt import Started
from tests.storage.racing import barrier, waiting
from tests.support.backlog import pile_up
from tests.support.servers import Database
from tests.support.world import OPERATION, World, seconds

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROVIDER = "hubspot"
AT_ONCE = Limits(sweep_grace_seconds=0)
NOTE = "the provider asked us to wait"
HOLD_ITEM = "SELECT FROM oncefence.work_items WHERE org_id = $1 AND work_id = $2 FOR UPDATE"
HOLD_GENERATIONS = "SELECT FROM oncefence.binding_generations WHERE org_id = $1 FOR UPDATE"


async def pause(world: World, scope: PauseScope | None = None, **parts: object) -> PauseGiven:
    """What pausing comes to; of the world's whole org unless told."""
    scope = scope or PauseScope(org=world.org, **parts)  # type: ignore[arg-type]  # named by tests
    return await pause_work(world.engine, scope, actor="olga", note=NOTE)


async def resume(
    world: World,
    given: Pause,
    *,
    ramp_seconds: float = 0,
    actor: str = "olga",
    expected: str = PauseState.IN_FORCE,
) -> Resumed:
    return await resume_work(
        world.engine,
        given.scope.org,
        given.pause,
        ramp_seconds=ramp_seconds,
        actor=actor,
        note="they are back",
        expected_version=expected,
    )


async def listed(world: World, given: Pause, **asked: bool) -> ListedPause | None:
    """The pause as the list of this org shows it."""
    for each in await list_pauses(world.engine, [world.org], **asked):
        if each.pause.pause == given.pause:
            return each
    return None


async def claiming(
    world: World, ref: WorkRef, limits: Limits = AT_ONCE
) -> ClaimedWork | NotStarted:
    return await claim_work(
        world.engine,
        ref.org,
        ref.work,
        family=ref.family,
        as_of=await world.now(),
        owner=uuid4(),
        token=LeaseToken(uuid4()),
        limits=limits,
    )


async def verdict_of_claim(world: World, ref: WorkRef) -> str:
    found = await claiming(world, ref)
    return "claimed" if isinstance(found, ClaimedWork) else found.verdict


async def audited(world: World, subject: PauseId) -> list[tuple[str, str, str, str | None]]:
    """What the audit says of the pause: who, what, why, and on which version."""
    rows = await world.sql(
        "SELECT actor, act, note, expected_version FROM oncefence.audit"
        " WHERE subject_kind = 'pause' AND subject_id = :pause AND :org <> ''"
        " ORDER BY sequence",
        pause=str(subject),
    )
    return [tuple(row) for row in rows]


SCOPES: dict[str, tuple[Callable[[World], PauseScope], bool]] = {
    "org": (lambda w: PauseScope(org=w.org), True),
    "provider": (lambda w: PauseScope(org=w.org, provider=PROVIDER), True),
    "operation": (lambda w: PauseScope(org=w.org, definition=OPERATION), True),
    "binding": (lambda w: PauseScope(org=w.org, binding=w.binding), True),
    "all parts": (
        lambda w: PauseScope(org=w.org, provider=PROVIDER, definition=OPERATION, binding=w.binding),
        True,
    ),
    "another provider": (lambda w: PauseScope(org=w.org, provider="other"), False),
    "another operation": (lambda w: PauseScope(org=w.org, definition="lead.delete"), False),
    "one part of another": (
        lambda w: PauseScope(org=w.org, provider=PROVIDER, definition="lead.delete"),
        False,
    ),
    "another org": (lambda _: PauseScope(org=OrgId("org-of-nobody")), False),
}


class TestPausing:
    @pytest.mark.parametrize("of", SCOPES)
    async def test_holds_what_all_named_parts_fit(self, world: World, of: str) -> None:
        """The claim, the sweep, the window and acceptance mean the same by a pause (C57)."""
        make, holds = SCOPES[of]
        accepted = await world.accept_command()
        given = await pause(world, make(world))
        room = await find_room(world.engine, world.org, accepted.work, limits=AT_ONCE)
        due = await find_due_work(world.engine, page=1000, limits=AT_ONCE)
        assert room is not None

        assert (room.room is Room.HELD_BACK) == holds
        assert (accepted.work not in [each.ref.work for each in due]) == holds
        (item,) = await world.sql(
            "SELECT queue_class FROM oncefence.work_items WHERE org_id = :org"
        )
        opened = await open_window(world.engine, world.org, item.queue_class, limits=AT_ONCE)
        assert (opened == []) == holds
        found = await world.try_to_start(accepted)
        if holds:
            assert isinstance(found, NotStarted)
            assert found.verdict is ClaimVerdict.PAUSED
            await resume(world, given.pause)
            found = await world.try_to_start(accepted)
        assert isinstance(found, Started)

    async def test_of_one_account_leaves_the_others_of_the_org_alone(self, world: World) -> None:
        """The token of one account is spoilt, and the other's works."""
        other = await add_principal_binding(
            world.engine,
            world.ring,
            world.org,
            name="other",
            provider=PROVIDER,
            base_url="http://127.0.0.1:1",
            is_local=True,
            token=Secret("another"),
            actor="tests",
        )
        accepted = await world.accept_command()

        await pause(world, binding=other)

        assert isinstance(await world.try_to_start(accepted), Started)

    async def test_of_every_org_holds_a_provider_or_an_operation_in_each(
        self, database: Database
    ) -> None:
        """One act stops what one provider does to all."""
        world, other = await World.make(database), await World.make(database)
        items = [await world.accept_command(), await other.accept_command()]
        given = await pause(world, PauseScope(org=EVERY_ORG, provider=PROVIDER))

        found = [
            await world.try_to_start(items[0]),
            await other.try_to_start(items[1]),
        ]

        assert [getattr(each, "verdict", None) for each in found] == [ClaimVerdict.PAUSED] * 2
        assert (await audited(world, given.pause.pause))[0][:2] == ("olga", "work.pause")

    @pytest.mark.parametrize(
        "parts",
        [{}, {"binding": PrincipalBindingId(uuid4())}],
        ids=["nothing named", "a binding"],
    )
    async def test_of_every_org_must_name_what_all_can_have(
        self, parts: dict[str, PrincipalBindingId]
    ) -> None:
        """One slip would stop everything of everybody, or nothing at all."""
        with pytest.raises(ActRefused, match="name"):
            PauseScope(org=EVERY_ORG, **parts)

    async def test_of_a_binding_that_is_none_of_the_orgs_is_refused(self, world: World) -> None:
        """It would hold nothing and look as if it did; of another org's it says no more (C8)."""
        other = await World.make(world.database)

        for binding in (uuid4(), other.binding):
            with pytest.raises(NoSuchTarget):
                await pause(world, binding=PrincipalBindingId(binding))
        assert await list_pauses(world.engine, [world.org]) == []

    async def test_is_written_with_its_audit_row(self, world: World) -> None:
        """Who, what and why are one transaction with the act (C406)."""
        given = await pause(world, provider=PROVIDER)

        assert given.is_new
        assert given.pause.state is PauseState.IN_FORCE
        assert await audited(world, given.pause.pause) == [("olga", "work.pause", NOTE, None)]

    async def test_of_what_is_paused_says_so_and_does_nothing(self, world: World) -> None:
        """A repeat after a lost answer, or a second operator, finds the first one's pause."""
        first = await pause(world, provider=PROVIDER)
        second = await pause_work(
            world.engine, first.pause.scope, actor="oleg", note="another reason"
        )

        assert second == PauseGiven(pause=first.pause, is_new=False)
        assert len(await audited(world, first.pause.pause)) == 1

    async def test_at_the_same_moment_is_one_pause(self, world: World) -> None:
        """Two operators press the button together."""
        found = await asyncio.gather(*(pause(world, definition=OPERATION) for _ in range(5)))

        assert len({each.pause.pause for each in found}) == 1
        assert sum(each.is_new for each in found) == 1

    async def test_again_after_a_resume_is_another_pause(self, world: World) -> None:
        """What is over stays on record as it was."""
        first = await pause(world)
        await resume(world, first.pause)

        second = await pause(world)

        assert second.is_new
        assert second.pause.pause != first.pause.pause

    async def test_holds_every_family(self, world: World) -> None:
        """A provider that must be left alone must not be read by lookups either."""
        (ref,) = await pile_up(world, 1)
        _, _, lookup_work = await world.an_unknown_command()
        await pause(world, provider=PROVIDER)

        looking = await world.try_to_look(lookup_work)

        assert isinstance(looking, NotStarted)
        assert looking.verdict is ClaimVerdict.PAUSED
        assert await verdict_of_claim(world, ref) == ClaimVerdict.PAUSED

    async def test_leaves_a_claim_that_came_before_it_to_its_end(self, world: World) -> None:
        """What is on the wire cannot be called back, and its answer is wanted."""
        accepted, started = await world.a_running_command()
        await pause(world)

        await world.settle(started, Outcome.ACCEPTED)

        assert await world.states(accepted) == ("succeeded", "succeeded")


class TestTheRaceWithAClaim:
    async def test_is_won_by_a_pause_that_is_there_when_the_claim_looks(self, world: World) -> None:
        """A claim that was asked for before the pause and looks after it is refused."""
        accepted = await world.accept_command()
        async with barrier(world.database, HOLD_ITEM, world.org, accepted.work, commits=False):
            claim = asyncio.create_task(world.try_to_start(accepted))
            await waiting(world.database, 1)
            given = await pause(world)
            assert given.is_new
        found = await claim

        assert isinstance(found, NotStarted)
        assert found.verdict is ClaimVerdict.PAUSED
        assert await world.count("effect_attempts") == 0

    async def test_is_won_by_a_claim_that_has_looked_and_the_pause_waits_for_it(
        self, world: World
    ) -> None:
        """When pausing returns, no claim commits any more: what runs can be counted then."""
        accepted = await world.accept_command()
        async with barrier(world.database, HOLD_GENERATIONS, world.org, commits=False):
            claim = asyncio.create_task(world.try_to_start(accepted))
            await waiting(world.database, 1)
            pausing = asyncio.create_task(pause(world))
            await waiting(world.database, 2)
            assert not pausing.done()
        await pausing

        assert (await world.item(accepted.work)).state == "processing"
        assert isinstance(await claim, Started)

    async def test_has_no_claim_committed_after_the_pause(self, database: Database) -> None:
        """Of many claims in flight each came before the pause or is refused."""
        world = await World.make(database)
        backlog = await pile_up(world, 40)

        async def pausing() -> int:
            await pause(world)
            rows = await world.sql(
                "SELECT count(*) FROM oncefence.work_items"
                " WHERE org_id = :org AND state = 'processing'"
            )
            return int(rows[0][0])

        claims = [asyncio.create_task(claiming(world, ref)) for ref in backlog[:20]]
        paused = asyncio.create_task(pausing())
        claims += [asyncio.create_task(claiming(world, ref)) for ref in backlog[20:]]
        running = await paused
        found = await asyncio.gather(*claims)

        claimed = [each for each in found if isinstance(each, ClaimedWork)]
        refused = [each.verdict for each in found if isinstance(each, NotStarted)]
        assert len(claimed) == running
        assert set(refused) <= {ClaimVerdict.PAUSED}


class TestResuming:
    async def test_is_written_with_its_audit_row(self, world: World) -> None:
        """The version that the operator looked at is on record with the act (C406)."""
        given = await pause(world)

        resumed = await resume(world, given.pause, ramp_seconds=30)

        assert resumed.is_new
        assert (resumed.pause.state, resumed.pause.ramp_seconds) == (PauseState.RESUMED, 30)
        assert await audited(world, given.pause.pause) == [
            ("olga", "work.pause", NOTE, None),
            ("olga", "work.resume", "they are back", "in_force"),
        ]

    async def test_again_after_a_lost_answer_finds_what_it_did(self, world: World) -> None:
        """The same act of the same operator is one act."""
        given = await pause(world)
        first = await resume(world, given.pause)

        second = await resume(world, given.pause)

        assert second == Resumed(pause=first.pause, is_new=False)
        assert len(await audited(world, given.pause.pause)) == 2

    async def test_of_what_somebody_else_resumed_is_refused(self, world: World) -> None:
        """Who acts on what has moved should look again (C406)."""
        given = await pause(world)
        await resume(world, given.pause)

        with pytest.raises(VersionMoved, match="resumed"):
            await resume(world, given.pause, actor="oleg")

    async def test_by_a_version_that_it_never_had_is_refused(self, world: World) -> None:
        """A pause in force is not what the operator says it is."""
        given = await pause(world)

        with pytest.raises(VersionMoved):
            await resume(world, given.pause, expected=PauseState.RESUMED)
        assert await listed(world, given.pause) is not None

    async def test_of_nothing_is_refused(self, world: World) -> None:
        """So is a pause of another org, in the same words (C8)."""
        other = await World.make(world.database)
        theirs = await pause(other)
        for named in (PauseId(uuid4()), theirs.pause.pause):
            mine = replace(theirs.pause, pause=named, scope=PauseScope(org=world.org))
            with pytest.raises(NoSuchTarget, match="no pause"):
                await resume(world, mine)

    @pytest.mark.parametrize("ramp_seconds", [-1, 86_401, float("nan"), float("inf")])
    async def test_by_a_ramp_that_is_none_is_refused(
        self, world: World, ramp_seconds: float
    ) -> None:
        """Nothing is written, and the pause holds."""
        given = await pause(world)

        with pytest.raises(ActRefused, match="seconds"):
            await resume(world, given.pause, ramp_seconds=ramp_seconds)
        assert await listed(world, given.pause) is not None

    async def test_of_one_of_two_leaves_what_the_other_holds(self, world: World) -> None:
        """Each pause stands for its own reason."""
        accepted = await world.accept_command()
        first = await pause(world)
        await pause(world, provider=PROVIDER)

        await resume(world, first.pause)

        found = await world.try_to_start(accepted)
        assert isinstance(found, NotStarted)
        assert found.verdict is ClaimVerdict.PAUSED

    async def test_wakes_a_window_of_each_class_in_order(self, world: World) -> None:
        """The rest follow as those end (C393)."""
        limits = Limits(admission_window=3)
        records = await pile_up(world, 10, age=seconds(10))
        contacts = await pile_up(world, 2, queue_class="contacts", age=seconds(5))
        given = await pause(world, definition="record.applied")
        await pile_up(world, 4, queue_class="others", definition="record.removed")
        woken: list[WorkId] = []

        async def wake(ref: WorkRef) -> None:
            woken.append(ref.work)

        await resume(world, given.pause)
        window = AdmissionWindow(engine=world.engine, limits=limits, wake=wake)
        classes = await find_held_classes(world.engine, world.org, given.pause.pause)
        for org, queue_class in classes:
            await window.open(org, queue_class)

        assert classes == [(world.org, "contacts"), (world.org, "records")]
        assert woken == [ref.work for ref in (*contacts, *records[:3])]

    async def test_wakes_what_was_woken_before_the_pause_and_refused_by_it(
        self, world: World
    ) -> None:
        """It gave its place back: a short pause would else be followed by minutes of nothing."""
        limits = Limits(admission_window=3)
        backlog = await pile_up(world, 5, age=seconds(10))
        woken: list[WorkRef] = []

        async def wake(ref: WorkRef) -> None:
            woken.append(ref)

        window = AdmissionWindow(engine=world.engine, limits=limits, wake=wake)
        await window.open(world.org, "records")
        given = await pause(world)
        for ref in backlog[:3]:
            found = await claiming(world, ref)
            assert isinstance(found, NotStarted)
            await window.give_back_place(world.org, ref.work, found)
        assert woken == backlog[:3], "nobody else may run either"

        await resume(world, given.pause)
        await window.open(world.org, "records")

        assert woken == backlog[:3] * 2

    async def test_of_one_operation_leaves_its_places_to_the_others_meanwhile(
        self, world: World
    ) -> None:
        """What is refused is not open, and the next of the class is opened instead."""
        limits = Limits(admission_window=2)
        held = await pile_up(world, 2, age=seconds(10))
        free = await pile_up(world, 2, definition="record.removed")
        woken: list[WorkRef] = []

        async def wake(ref: WorkRef) -> None:
            woken.append(ref)

        window = AdmissionWindow(engine=world.engine, limits=limits, wake=wake)
        await window.open(world.org, "records")
        await pause(world, definition="record.applied")
        for ref in held:
            found = await claiming(world, ref)
            assert isinstance(found, NotStarted)
            await window.give_back_place(world.org, ref.work, found)

        assert woken == [*held, *free]


class TestTheNamedQueue:
    async def test_shows_what_each_pause_holds(self, world: World) -> None:
        """Nothing is silently idle: what is paused is listed under its pause, with its age."""
        await pile_up(world, 3, age=seconds(60))
        running, *_ = await pile_up(world, 1)
        await claiming(world, running)
        await pile_up(world, 2, definition="record.removed")
        whole = await pause(world)
        part = await pause(world, definition="record.removed")

        of_whole, of_part = await listed(world, whole.pause), await listed(world, part.pause)

        assert of_whole is not None
        assert of_part is not None
        assert (of_whole.items, of_part.items) == (5, 2), "what runs is held by nobody"
        assert of_whole.oldest_due_at is not None
        assert await world.now() - of_whole.oldest_due_at >= seconds(60)

    async def test_counts_for_each_reader_what_is_of_their_orgs(self, database: Database) -> None:
        """A pause of every org is known to all, and how much of others it holds is not (C8)."""
        world, other = await World.make(database), await World.make(database)
        await pile_up(world, 2)
        await pile_up(other, 3)
        given = await pause(world, PauseScope(org=EVERY_ORG, definition="record.applied"))
        await pause(other, provider=PROVIDER)

        mine = await list_pauses(world.engine, [world.org])
        all_of = await list_pauses(world.engine, [EVERY_ORG])

        assert [(each.pause.pause, each.items) for each in mine] == [(given.pause.pause, 2)]
        assert sorted(each.items for each in all_of) == [3, 5]

    async def test_leaves_out_what_is_over_unless_asked(self, world: World) -> None:
        """A pause that ended holds nothing, and stays on record with who ended it."""
        await pile_up(world, 1)
        given = await pause(world)
        await resume(world, given.pause)

        assert await listed(world, given.pause) is None
        over = await listed(world, given.pause, with_ended=True)
        assert over is not None
        assert (over.items, over.pause.resumed_by) == (0, "olga")


class TestSlowStart:
    async def begun(
        self, world: World, *, ago: float, ramp_seconds: float = 100, definition: str | None = None
    ) -> None:
        """A pause that ended so long ago."""
        given = await pause(world, definition=definition)
        await resume(world, given.pause, ramp_seconds=ramp_seconds)
        # Behind its guard: the row of a pause that is over never changes.
        connection = await asyncpg.connect(world.database.admin_url)
        try:
            async with connection.transaction():
                await connection.execute("SET LOCAL session_replication_role = replica")
                await connection.execute(
                    "UPDATE oncefence.pauses SET resumed_at = clock_timestamp() - $2::interval"
                    " WHERE pause_id = $1",
                    given.pause.pause,
                    seconds(ago),
                )
        finally:
            await connection.close()

    @pytest.mark.parametrize(
        ("ago", "at_once"), [(0, 1), (15, 1), (45, 4), (65, 6), (95, 9), (101, 10)]
    )
    async def test_runs_as_much_of_a_window_as_of_the_ramp_is_over(
        self, world: World, ago: float, at_once: int
    ) -> None:
        """Ten claims at the same moment, and exactly so many are let through (C57)."""
        limits = Limits(admission_window=10)
        backlog = await pile_up(world, 10)
        await self.begun(world, ago=ago)

        found = await asyncio.gather(*(claiming(world, ref, limits) for ref in backlog))

        assert sum(isinstance(each, ClaimedWork) for each in found) == at_once
        waits = [each for each in found if isinstance(each, NotStarted)]
        assert {each.verdict for each in waits} <= {ClaimVerdict.SLOW_START}
        assert all(each.until is not None for each in waits)

    async def test_is_none_where_the_ramp_is_zero(self, world: World) -> None:
        """The operator may want everything back at once."""
        backlog = await pile_up(world, 10)
        given = await pause(world)
        await resume(world, given.pause, ramp_seconds=0)

        found = [await claiming(world, ref) for ref in backlog]

        assert all(isinstance(each, ClaimedWork) for each in found)

    async def test_counts_what_the_pause_was_about_alone(self, world: World) -> None:
        """Others run on as if there had never been a pause."""
        limits = Limits(admission_window=10)
        (held,) = await pile_up(world, 1)
        free = await pile_up(world, 3, definition="record.removed")
        await self.begun(world, ago=0, definition="record.applied")

        found = [await claiming(world, ref, limits) for ref in (*free, held)]

        assert all(isinstance(each, ClaimedWork) for each in found)

    async def test_lets_the_next_through_when_one_ends(self, world: World) -> None:
        """It bounds how many run at once, and not how many run."""
        limits = Limits(admission_window=10)
        first, second, _ = await pile_up(world, 3)
        await self.begun(world, ago=0, ramp_seconds=1000)
        held = await claiming(world, first, limits)
        assert isinstance(held, ClaimedWork)
        waits = await claiming(world, second, limits)
        assert isinstance(waits, NotStarted)

        await settle_work(
            world.engine,
            held.fence,
            WorkEnd(end=ClaimEnd.FINISH),
            as_of=await world.now(),
            limits=limits,
        )

        assert isinstance(await claiming(world, second, limits), ClaimedWork)
