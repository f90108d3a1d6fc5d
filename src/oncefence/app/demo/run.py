"""One run from the first process to the last figure."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final
from uuid import UUID

from oncefence.app import interruptible
from oncefence.app.cli.submit import hand_over_lines
from oncefence.app.client import RuntimeClient
from oncefence.app.demo.board import Board, is_at_rest, is_over
from oncefence.app.demo.faults import Batch, Plan, dealt, scripted
from oncefence.app.demo.kill import Kill, in_flight, kill_in_flight
from oncefence.app.demo.report import Report, make_report
from oncefence.app.examples import BINDING, example
from oncefence.app.handoff_file import (
    HandoffFileRefused,
    HandoffLine,
    RefusedLine,
    read_handoff_file,
)
from oncefence.app.local_operator import local_operator
from oncefence.app.local_world import (
    LocalWorld,
    contacts_of,
    make_contacts,
    make_links,
    make_world,
)
from oncefence.app.stack import Stack
from oncefence.catalog.errors import PayloadRefused, UnknownOperation
from oncefence.domain.errors import ConfigurationRefused
from oncefence.domain.ids import OrgId, command_id
from oncefence.simulator.ledger import read_ledger
from oncefence.storage.engine import Store, make_engine
from oncefence.storage.phases.read_progress import read_progress

LINES_MAX: Final = 2_000
_REST_SECONDS: Final = 150.0
_REST_SECONDS_PER_COMMAND: Final = 0.2
_READY_SECONDS: Final = 60.0
_CALM_SECONDS: Final = 15.0
_PORT_CLOSED_SECONDS_MAX: Final = 30.0
_POLL_SECONDS: Final = 0.2
_ANY_REMOTE_ID: Final = "1"
_ANY_COMMAND: Final = UUID(int=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """
    The lines of a file by what is to come of them.

    `sound` is planned for; `again` repeats an outbox id that stands before it; `doubtful` is what
    a door will refuse, and is handed to it so that it says why.
    """

    sound: list[HandoffLine] = field(default_factory=list)
    again: list[HandoffLine] = field(default_factory=list)
    doubtful: list[HandoffLine] = field(default_factory=list)
    refused: list[RefusedLine] = field(default_factory=list)


def read_lines(file: str | Path) -> list[HandoffLine | RefusedLine]:
    """
    All lines of the file.

    Raises:
        HandoffFileRefused: It cannot be read, or has none, or too many to be watched.
    """
    lines = list(islice(read_handoff_file(file), LINES_MAX + 1))
    if len(lines) > LINES_MAX:
        raise HandoffFileRefused(
            path=str(file),
            reason=f"has more than {LINES_MAX} lines; hand it to `oncefence submit` on a running "
            "`oncefence up` instead",
        )
    return lines


def run_demo(
    stack: Stack, board: Board, file_lines: Sequence[HandoffLine | RefusedLine], *, seed: int | None
) -> Report:
    """
    The report on one run over `file_lines` on a stack that was just started.

    Without a seed the faults are those written down for the shipped example.

    Raises:
        ConfigurationRefused: A process does not start, or ended by itself.
    """
    board.say("starting a worker, and making the world that it works in")
    stack.launch_worker()
    world = make_world(stack, example(BINDING))
    stack.await_worker()
    operator = interruptible.run(local_operator(stack.folder, stack.database_url, world.org))
    stack.write_environment_file(world.credential, operator)
    lines = sort_lines(world, file_lines)
    contacts = contacts_of([line.subject for line in lines.sound])
    board.places = {
        "Temporal's page": stack.temporal_ui or f"of the Temporal at {stack.temporal_address}",
        "data": str(stack.folder),
    }
    for name, place in board.places.items():
        board.say(f"{name}: {place}")
    board.say(f"making {_counted_as(len(contacts), 'contact')} at the provider, and the links")
    interruptible.run(make_contacts(stack, contacts))
    for operation in world.view.operations.values():
        make_links(stack, world, operation, contacts)
    run = _Run(stack=stack, board=board, world=world, lines=lines, contacts=contacts, seed=seed)
    kills, refused = interruptible.run(run.whole())
    board.say("stopping the worker, so that nothing moves while it is counted")
    stack.stop_worker()
    return interruptible.run(_counted(stack, world, [*lines.refused, *refused], kills))


def sort_lines(world: LocalWorld, file_lines: Sequence[HandoffLine | RefusedLine]) -> Lines:
    """Every line in its place; only the door refuses, this only foresees it."""
    lines = Lines()
    seen: set[str] = set()
    for line in file_lines:
        if isinstance(line, RefusedLine):
            lines.refused.append(line)
        elif line.outbox in seen:
            lines.again.append(line)
        elif _is_sound(world, line):
            seen.add(line.outbox)
            lines.sound.append(line)
        else:
            lines.doubtful.append(line)
    return lines


def _is_sound(world: LocalWorld, line: HandoffLine) -> bool:
    try:
        operation = world.view.operation(line.operation)
        operation.check_subject(line.subject)
        operation.freeze(line.payload, remote_id=_ANY_REMOTE_ID, command=_ANY_COMMAND)
    except (UnknownOperation, PayloadRefused):
        return False
    return True


async def _counted(
    stack: Stack, world: LocalWorld, refused: Sequence[RefusedLine], kills: Sequence[Kill]
) -> Report:
    store = make_engine(stack.database_url)
    try:
        return await make_report(
            store,
            world.org,
            stack.simulator.ledger_file,
            time_scale=stack.state.time_scale,
            refused=refused,
            kills=kills,
        )
    finally:
        await store.dispose()


def _counted_as(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


class _Run:
    """The part of a run during which commands move."""

    def __init__(
        self,
        *,
        stack: Stack,
        board: Board,
        world: LocalWorld,
        lines: Lines,
        contacts: dict[str, str],
        seed: int | None,
    ) -> None:
        self._stack = stack
        self._board = board
        self._world = world
        self._org = OrgId(world.org)
        self._lines = lines
        self._contacts = contacts
        self._seed = seed
        self._refused: list[RefusedLine] = []

    async def whole(self) -> tuple[list[Kill], list[RefusedLine]]:
        """Every batch handed over, every kill done, and every command at rest."""
        stack = self._stack
        store = make_engine(stack.database_url)
        ledger = stack.simulator.ledger_file
        watching = asyncio.create_task(self._board.watch(store, self._org, ledger))
        try:
            async with RuntimeClient(stack.doors_url, self._world.credential) as client:
                plan, commands = await self._plan(client)
                await stack.simulator.admin.add_rules(plan.rules)
                await self._hand_over(client, self._lines.doubtful)
                for batch in plan.batches:
                    await self._one_batch(store, client, batch, commands)
                await self._hand_over(client, self._lines.again)
            await self._rest(store)
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
            await store.dispose()
        return self._board.kills, self._refused

    async def _plan(self, client: RuntimeClient) -> tuple[Plan, dict[int, UUID]]:
        # What the command of a line will be called is known before it is handed over.
        commands = {
            line.number: UUID(str(command_id(str(await client.key_for(line.outbox)))))
            for line in self._lines.sound
        }

        def command_of(line: HandoffLine) -> UUID:
            return commands[line.number]

        if self._seed is None:
            return scripted(self._lines.sound, command_of), commands
        plan = dealt(self._lines.sound, self._contacts, command_of, seed=self._seed)
        return plan, commands

    async def _one_batch(
        self, store: Store, client: RuntimeClient, batch: Batch, commands: dict[int, UUID]
    ) -> None:
        if not batch.lines:
            return
        if batch.meets_closed_port:
            await self._calm(store)
            await self._stack.simulator.admin.close_port(_PORT_CLOSED_SECONDS_MAX)
            self._board.say("the provider's port is closed until a send was refused")
        self._board.say(f"handing over {_counted_as(len(batch.lines), 'command')}")
        await self._hand_over(client, batch.lines)
        if batch.held:
            await self._kill(store, batch, commands)
        if batch.meets_closed_port:
            await self._refused_once(store, {commands[line.number] for line in batch.lines})
            await self._stack.simulator.admin.open_port()

    async def _kill(self, store: Store, batch: Batch, commands: dict[int, UUID]) -> None:
        self._board.say("waiting for sends that the provider has read and not answered")
        kill = await kill_in_flight(
            self._stack.worker,
            store,
            self._org,
            self._stack.simulator.ledger_file,
            [commands[line.number] for line in batch.held],
            is_over=is_over,
        )
        await self._stack.simulator.admin.release(batch.hold)
        if kill is None:
            self._board.say("no send was ever in flight, so the worker was not killed")
            return
        self._board.kills.append(kill)
        self._board.say(
            f"killed the worker (SIGKILL) with {_counted_as(len(kill.flights), 'send')} in flight, "
            f"{kill.applied} of them applied and {len(kill.flights) - kill.applied} not"
        )
        self._stack.launch_worker()
        await self._worker_is_ready()
        self._board.say("another worker has taken its place")

    async def _calm(self, store: Store) -> None:
        """Return when everything handed over so far was sent or waits for a later time."""
        give_up_at = asyncio.get_running_loop().time() + _CALM_SECONDS
        while asyncio.get_running_loop().time() < give_up_at:
            progress = await read_progress(store, self._org)
            flying = in_flight(progress, read_ledger(self._stack.simulator.ledger_file))
            if len(flying) == len(progress.open_attempts) and not any(
                command.status == "accepted" for command in progress.commands
            ):
                return
            await asyncio.sleep(_POLL_SECONDS)

    async def _refused_once(self, store: Store, commands: set[UUID]) -> None:
        """Return when a send of each was tried and told; a slow machine may need its time."""
        give_up_at = asyncio.get_running_loop().time() + _PORT_CLOSED_SECONDS_MAX
        while asyncio.get_running_loop().time() < give_up_at:
            progress = await read_progress(store, self._org)
            mine = [each for each in progress.commands if each.command in commands]
            if all(each.status not in ("accepted", "running") for each in mine):
                return
            await asyncio.sleep(_POLL_SECONDS)

    async def _worker_is_ready(self) -> None:
        give_up_at = asyncio.get_running_loop().time() + _READY_SECONDS
        while not self._stack.is_worker_ready():
            self._refuse_ended()
            if asyncio.get_running_loop().time() > give_up_at:
                raise ConfigurationRefused(
                    setting="the worker",
                    reason=f"it was not ready after {_READY_SECONDS:.0f} s",
                    remedy=f"The whole log is {self._stack.worker.log_path}",
                )
            await asyncio.sleep(_POLL_SECONDS)

    async def _hand_over(self, client: RuntimeClient, lines: Sequence[HandoffLine]) -> None:
        done = await hand_over_lines(client, iter(lines))
        self._refused += done.refused
        if done.stopped_by is not None:
            raise done.stopped_by

    async def _rest(self, store: Store) -> None:
        """Return when everything is at rest, or has had more time than it can need."""
        clock = asyncio.get_running_loop().time
        self._board.say("waiting until every command is final or left for a person")
        give_up_at = clock() + _REST_SECONDS
        give_up_at += _REST_SECONDS_PER_COMMAND * len(self._lines.sound)
        while True:
            progress = await read_progress(store, self._org)
            if is_over(progress):
                return
            self._refuse_ended()
            if clock() > give_up_at:
                open_ones = sum(1 for each in progress.commands if not is_at_rest(each))
                self._board.say(f"{open_ones} commands are not at rest; counting all the same")
                return
            await asyncio.sleep(_POLL_SECONDS)

    def _refuse_ended(self) -> None:
        ended = self._stack.ended()
        if ended is not None:
            raise ConfigurationRefused(
                setting="the demo",
                reason=ended,
                remedy=f"The logs are in {self._stack.folder}",
            )
