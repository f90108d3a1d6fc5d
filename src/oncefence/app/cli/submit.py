"""`oncefence submit`: the lines of a file, handed over through a door (C582)."""

import asyncio
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, NoReturn

import typer

from oncefence.app import interruptible
from oncefence.app.cli import arguments
from oncefence.app.cli.exits import ExitCode
from oncefence.app.cli.screen import note, show_json, show_table
from oncefence.app.cli.store import read_settings
from oncefence.app.client import DoorUnavailable, HandoffRefused, RuntimeClient
from oncefence.app.handoff_file import (
    HandoffFileRefused,
    HandoffLine,
    RefusedLine,
    read_handoff_file,
)
from oncefence.domain.command import Receipt
from oncefence.domain.errors import OncefenceError

IN_FLIGHT_MAX: Final = 16
# Refusals of the caller, not of the line: every other line would be refused the same way.
_OF_THE_CALLER: Final = frozenset({"credential_unknown"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedLine:
    """A line with the receipt that it has now."""

    number: int
    outbox: str
    receipt: Receipt


@dataclass(slots=True, kw_only=True)
class Submission:
    """What became of the lines so far; `stopped_by` is why there were no more."""

    accepted: list[AcceptedLine] = field(default_factory=list)
    refused: list[RefusedLine] = field(default_factory=list)
    stopped_by: OncefenceError | None = None


def submit(
    file: Annotated[str, typer.Argument(help="JSON lines; - is standard input.")],
    *,
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="The doors; else ONCEFENCE_URL.")
    ] = None,
    credential: Annotated[
        str | None,
        typer.Option(help="Else ONCEFENCE_CREDENTIAL, which other users of a machine cannot see."),
    ] = None,
    json: arguments.Json = False,
) -> None:
    """Hand over each line of FILE: outbox_id, operation, subject, payload. Again is the same."""
    settings = read_settings()
    done = interruptible.run(_submit(url or settings.url, credential or settings.credential, file))
    done.accepted.sort(key=lambda line: line.number)
    done.refused.sort(key=lambda line: line.number)
    for line in done.refused:
        note(f"line {line.number}: {line.reason}")
    if json:
        show_json(_document(done))
    elif done.accepted or done.refused:
        new = sum(line.receipt.is_new for line in done.accepted)
        show_table(
            file,
            ("accepted now", "accepted before", "refused"),
            [(new, len(done.accepted) - new, len(done.refused))],
        )
    if done.stopped_by is not None:
        raise done.stopped_by
    if done.refused:
        raise typer.Exit(ExitCode.LINES_REFUSED)


async def hand_over_lines(
    client: RuntimeClient, lines: Iterator[HandoffLine | RefusedLine]
) -> Submission:
    """
    Hand over every sound line, several at a time.

    Lines of one subject, and lines of one outbox id, go one after the other in the order of the
    file. Where the door stops answering nothing more is sent: a later line of a subject must not
    be accepted before an earlier one whose outcome is open.
    """
    submitting = _Submitting(client)
    await submitting.run(lines)
    return submitting.submission


class _Submitting:
    def __init__(self, client: RuntimeClient) -> None:
        self.submission = Submission()
        self._client = client
        self._room = asyncio.Semaphore(IN_FLIGHT_MAX)
        self._last: dict[tuple[str, str], asyncio.Event] = {}

    async def run(self, lines: Iterator[HandoffLine | RefusedLine]) -> None:
        done = self.submission
        async with asyncio.TaskGroup() as group:
            while done.stopped_by is None:
                try:
                    # In a thread: a pipe that has nothing yet must not hold up what is in flight.
                    line = await asyncio.to_thread(next, lines, None)
                except HandoffFileRefused as error:
                    done.stopped_by = error
                    break
                if line is None:
                    break
                if isinstance(line, RefusedLine):
                    done.refused.append(line)
                    continue
                # Taken before the task is made, so that a file of any length is read as slowly
                # as it is handed over. Whoever waits for another waits for an earlier task.
                await self._room.acquire()
                places = (("subject", line.subject), ("outbox id", line.outbox))
                earlier = [self._last[place] for place in places if place in self._last]
                is_over = asyncio.Event()
                self._last |= dict.fromkeys(places, is_over)
                group.create_task(self._hand_over(line, earlier, is_over))

    async def _hand_over(
        self, line: HandoffLine, earlier: list[asyncio.Event], is_over: asyncio.Event
    ) -> None:
        done = self.submission
        try:
            for each in earlier:
                await each.wait()
            if done.stopped_by is not None:
                return
            receipt = await self._client.hand_over(
                line.outbox, line.operation, line.subject, line.payload
            )
            done.accepted.append(
                AcceptedLine(number=line.number, outbox=line.outbox, receipt=receipt)
            )
        except HandoffRefused as error:
            if error.code in _OF_THE_CALLER:
                done.stopped_by = done.stopped_by or error
            else:
                done.refused.append(RefusedLine(number=line.number, reason=str(error)))
        except DoorUnavailable as error:
            done.stopped_by = done.stopped_by or _Stopped(number=line.number, cause=error)
        finally:
            for place in (("subject", line.subject), ("outbox id", line.outbox)):
                if self._last.get(place) is is_over:
                    del self._last[place]
            is_over.set()
            self._room.release()


@dataclass(eq=False)
class _Stopped(OncefenceError):
    """The door stopped answering at a line."""

    number: int
    cause: DoorUnavailable

    def __str__(self) -> str:
        return (
            f"stopped at line {self.number}: {self.cause}. Run the same command again: "
            "what was accepted stays accepted"
        )


async def _submit(url: str, credential: str, file: str) -> Submission:
    async with RuntimeClient(url, credential) as client:
        # Asked first: a wrong address or credential is one message and not one for each line.
        await client.scope()
        submitting = _Submitting(client)
        try:
            await submitting.run(read_handoff_file(file))
        except asyncio.CancelledError:
            _leave_at_once(submitting.submission)
        return submitting.submission


def _leave_at_once(done: Submission) -> NoReturn:
    """After Ctrl-C: a thread may wait for standard input, and nothing can end that wait."""
    note(
        f"interrupted after {len(done.accepted)} accepted lines. Run the same command again: "
        "what was accepted stays accepted"
    )
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(ExitCode.INTERRUPTED)


def _document(done: Submission) -> dict[str, Any]:
    new = sum(line.receipt.is_new for line in done.accepted)
    return {
        "lines": len(done.accepted) + len(done.refused),
        "accepted": len(done.accepted),
        "accepted_now": new,
        "accepted_before": len(done.accepted) - new,
        "refused": len(done.refused),
        "receipts": [
            {
                "line": line.number,
                "outbox_id": line.outbox,
                "handoff_key": str(line.receipt.key),
                "command_id": line.receipt.command,
                "execution_id": line.receipt.execution,
                "is_new": line.receipt.is_new,
            }
            for line in done.accepted
        ],
        "refusals": [{"line": line.number, "reason": line.reason} for line in done.refused],
        "stopped_by": None if done.stopped_by is None else str(done.stopped_by),
    }
