"""Commands brought to each state that a lifecycle can stand in, and how each of them goes on."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta

from oncefence.domain.ids import WorkId
from oncefence.domain.limits import Limits
from oncefence.domain.lookup import Verdict
from tests.providers.simulated import Simulated
from tests.support.dialect import Form
from tests.support.station import ProviderWorld, Station, until
from tests.support.world import Accepted
from tests.workflows.watching import TIMER_STARTED, Held, seen

SLOW = Limits(time_scale=1.0, lease_margin_seconds=5, sweep_grace_seconds=0.01)
"""A lookup that nobody makes due now is due in half a minute; the sweep sees what is due."""


async def nothing() -> None:
    """Nobody has to do anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A command in a state, and what has become of it when all is over."""

    accepted: Accepted
    go_on: Callable[[], Awaitable[None]] = nothing
    """What it waits for comes to pass."""

    lookup: WorkId | None = None
    is_held: bool = False
    """A run of it is under way, and ends when the provider goes on."""

    status: str = "succeeded"
    patches: int = 1
    changes: int = 1
    others: list[Accepted] = field(default_factory=list)

    @property
    def works(self) -> list[WorkId]:
        """Its items: each has a workflow, which is open or closed."""
        return [self.accepted.work, *([] if self.lookup is None else [self.lookup])]


Arranger = Callable[[Station, Simulated, str, Form], Awaitable[Scene]]


async def waiting_for_its_time(
    station: Station, simulator: Simulated, subject: str, form: Form
) -> Scene:
    """Accepted, and due in an hour."""
    world = station.world
    accepted = await world.accept_in(form, subject)
    await postpone(world, accepted.work, timedelta(hours=1))
    await station.announce(accepted)
    await seen(station, accepted.work, TIMER_STARTED)
    return Scene(accepted=accepted, go_on=lambda: postpone(world, accepted.work))


async def in_flight(station: Station, simulator: Simulated, subject: str, form: Form) -> Scene:
    """The provider has read the request and says nothing yet."""
    world = station.world
    await world.link(subject)
    held = Held(simulator, world.remote_ids[subject])
    accepted = await station.submit(subject, form=form)
    await held.is_there()

    async def release() -> None:
        held.release()

    return Scene(accepted=accepted, go_on=release, is_held=True)


async def waiting_to_retry(
    station: Station, simulator: Simulated, subject: str, form: Form
) -> Scene:
    """
    The provider migrates the account, and half a minute later it is tried again.

    A limit that was met would hold everybody else of the account back as well.
    """
    world = station.world
    await world.link(subject)
    contact = world.remote_ids[subject]
    simulator.script(contact=contact, fault="reject_400", status=477)
    accepted = await station.submit(subject, form=form)
    await seen(station, accepted.work, TIMER_STARTED)
    assert await world.states(accepted) == ("retry", "retrying")
    return Scene(accepted=accepted, go_on=lambda: postpone(world, accepted.work), patches=2)


async def behind_another(station: Station, simulator: Simulated, subject: str, form: Form) -> Scene:
    """An earlier command of the same record is in flight, and its own workflow is closed."""
    first = await in_flight(station, simulator, subject, form)
    accepted = await station.submit(subject, title="Chief", form=form)
    await station.workflow(accepted.work).result()
    return Scene(accepted=accepted, go_on=first.go_on, others=[first.accepted])


async def waiting_to_look(
    station: Station, simulator: Simulated, subject: str, form: Form
) -> Scene:
    """The answer could not be read, and the provider is asked in half a minute."""
    world = station.world
    await world.link(subject)
    simulator.script(contact=world.remote_ids[subject], fault="garbled")
    accepted = await station.submit(subject, form=form)
    await world.in_status(accepted, "unknown")
    lookup = await world.lookup_work(accepted)
    assert lookup is not None
    await seen(station, lookup, TIMER_STARTED)
    return Scene(accepted=accepted, lookup=lookup, go_on=lambda: postpone(world, lookup))


async def looking(station: Station, simulator: Simulated, subject: str, form: Form) -> Scene:
    """The provider has read the question and says nothing yet."""
    scene = await waiting_to_look(station, simulator, subject, form)
    assert scene.lookup is not None
    held = Held(simulator, station.world.remote_ids[subject], method="GET")
    await postpone(station.world, scene.lookup)
    await station.wake(scene.lookup)
    await held.is_there()

    async def release() -> None:
        held.release()

    return Scene(accepted=scene.accepted, lookup=scene.lookup, go_on=release, is_held=True)


async def before_a_person(
    station: Station, simulator: Simulated, subject: str, form: Form
) -> Scene:
    """Nothing can be found out about it any more."""
    scene = await waiting_to_look(station, simulator, subject, form)
    assert scene.lookup is not None
    await station.world.look(scene.lookup, Verdict.UNUSABLE)
    return Scene(accepted=scene.accepted, lookup=scene.lookup, status="needs_attention")


async def done(station: Station, simulator: Simulated, subject: str, form: Form) -> Scene:
    """Changed, and its workflow is closed."""
    accepted = await station.submit(subject, form=form)
    await station.workflow(accepted.work).result()
    return Scene(accepted=accepted)


async def refused(station: Station, simulator: Simulated, subject: str, form: Form) -> Scene:
    """The provider declined it, and its workflow is closed."""
    world = station.world
    await world.link(subject)
    simulator.script(contact=world.remote_ids[subject], fault="reject_400")
    accepted = await station.submit(subject, form=form)
    await station.workflow(accepted.work).result()
    return Scene(accepted=accepted, status="failed", changes=0)


STATES: dict[str, Arranger] = {
    "waiting for its time": waiting_for_its_time,
    "in flight": in_flight,
    "waiting to retry": waiting_to_retry,
    "behind another": behind_another,
    "waiting to look": waiting_to_look,
    "looking": looking,
    "before a person": before_a_person,
    "succeeded": done,
    "failed": refused,
}


async def postpone(world: ProviderWorld, work: WorkId, by: timedelta = timedelta()) -> None:
    """The item becomes due at another time: so much from now."""
    await world.sql(
        "UPDATE oncefence.work_items SET run_after ="
        " date_trunc('milliseconds', clock_timestamp()) + :by"
        " WHERE org_id = :org AND work_id = :work",
        work=work,
        by=by,
    )


async def facts(world: ProviderWorld, scene: Scene) -> list[object]:
    """All that the database holds about the command, to be compared."""
    accepted = scene.accepted
    return [
        list(await world.of_command(table, accepted))
        for table in ("work_items", "executions", "effect_attempts", "lookups", "completions")
    ]


async def over(station: Station, scene: Scene) -> None:
    """The command is settled as the scene foretold, and so are those before it."""
    world = station.world

    found = None

    async def is_so() -> bool:
        nonlocal found
        found = await world.status(scene.accepted)
        return found == scene.status

    try:
        await until(is_so)
    except AssertionError as failure:
        what = f"{scene.accepted.handover.subject}: {found} and not {scene.status}"
        raise AssertionError(what) from failure
    assert await world.settled(*scene.others) == ["succeeded"] * len(scene.others)
