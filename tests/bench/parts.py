"""Where the time of one effect goes: laps between the places that it passes, one at a time."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from statistics import median
from time import perf_counter
from typing import Any, Final
from unittest.mock import patch

import httpx
from sqlalchemy import event

from oncefence.activities import attempt, waking
from oncefence.storage.driver_connection import DriverConnection
from oncefence.storage.engine import Store
from oncefence.storage.phases.accept_handoff import accept_handoff
from tests.bench import sides
from tests.bench.sides import Side

Verb = Callable[..., Awaitable[Any]]

ACCEPT_SQL: Final = "accept: SQL"
ACCEPT_WORK: Final = "accept: read the view, freeze, seal"
TO_THE_ATTEMPT: Final = "Temporal: start, and on to the activity"
MARK: Final = "mark: SQL"
OPEN: Final = "open request and token"
HTTP: Final = "HTTP"
READ: Final = "read and seal the answer"
SETTLE: Final = "settle: SQL"
SUCCESSORS: Final = "successors: SQL"
FROM_THE_ATTEMPT: Final = "Temporal: end of the activity, until the caller knows"


class Laps:
    """The parts of what is done just now, and those of all before."""

    def __init__(self) -> None:
        self._since = 0.0
        self._now: dict[str, float] = {}
        self._all: list[dict[str, float]] = []
        self.statements = 0

    def begin(self) -> None:
        """From here on."""
        self._now = {}
        self._since = perf_counter()

    def lap(self, part: str) -> None:
        """The time since the last lap was this part's."""
        moment = perf_counter()
        self._now[part] = self._now.get(part, 0.0) + moment - self._since
        self._since = moment

    def end(self, part: str) -> None:
        """The last lap."""
        self.lap(part)
        self._all.append(self._now)

    def parts(self) -> list[dict[str, object]]:
        """The median of each part in ms, in order, and its share of all of them."""
        names = list(self._all[0])
        ms = {name: 1000 * median(each.get(name, 0.0) for each in self._all) for name in names}
        whole = sum(ms.values())
        return [
            {"part": name, "ms": round(value, 2), "share": round(value / whole, 3)}
            for name, value in ms.items()
        ]

    def count_statement(self) -> None:
        """One more statement of the store is on its way."""
        self.statements += 1

    @property
    def statements_each(self) -> float:
        """SQL statements for one of them; each is one round trip and one transaction."""
        return round(self.statements / len(self._all), 2)


async def effect_laps(side: Side, engine: Store, *, tries: int) -> Laps:
    """The laps of `tries` effects, one at a time."""
    laps = Laps()
    verbs = {
        (attempt, "start_attempt"): (TO_THE_ATTEMPT, MARK),
        (attempt, "http_once"): (OPEN, HTTP),
        (attempt, "settle_attempt"): (READ, SETTLE),
        (waking, "find_successors"): (SUCCESSORS, SUCCESSORS),
    }
    with ExitStack() as stack:
        accept = _with_statements(laps, engine, accept_handoff)
        stack.enter_context(patch.object(sides, "accept_handoff", accept))
        for (module, verb), (before, itself) in verbs.items():
            timed = _timed(laps, getattr(module, verb), before, itself)
            stack.enter_context(patch.object(module, verb, timed))
        stack.enter_context(_watching(engine, before=laps.count_statement, after=_nothing))
        await _lapped(laps, side, tries)
    return laps


async def bare_laps(side: Side, *, tries: int) -> Laps:
    """The laps of `tries` bare activities, one at a time."""
    laps = Laps()
    timed = _timed(laps, httpx.AsyncClient.patch, TO_THE_ATTEMPT, HTTP)
    with patch.object(httpx.AsyncClient, "patch", timed):
        await _lapped(laps, side, tries)
    return laps


async def _lapped(laps: Laps, side: Side, tries: int) -> None:
    for _ in range(tries):
        laps.begin()
        await side.once()
        laps.end(FROM_THE_ATTEMPT)


def _timed(laps: Laps, verb: Verb, before: str, itself: str) -> Verb:
    """The verb, which ends the lap before it and is one itself."""

    @wraps(verb)
    async def run(*args: Any, **named: Any) -> Any:
        laps.lap(before)
        try:
            return await verb(*args, **named)
        finally:
            laps.lap(itself)

    return run


def _with_statements(laps: Laps, engine: Store, accept: Verb) -> Verb:
    """Acceptance, told apart into its statements and what it does between them."""

    @wraps(accept)
    async def run(*args: Any, **named: Any) -> Any:
        with _watching(
            engine, before=lambda: laps.lap(ACCEPT_WORK), after=lambda: laps.lap(ACCEPT_SQL)
        ):
            receipt = await accept(*args, **named)
        laps.lap(ACCEPT_WORK)
        return receipt

    return run


@contextmanager
def _watching(
    engine: Store, *, before: Callable[[], None], after: Callable[[], None]
) -> Iterator[None]:
    """Tell of every statement of the store, whichever of its two ways it goes."""
    send = DriverConnection.all

    async def watched(connection: DriverConnection, *given: Any) -> Any:
        before()
        try:
            return await send(connection, *given)
        finally:
            after()

    with (
        _listening(engine, "before_cursor_execute", lambda *_: before()),
        _listening(engine, "after_cursor_execute", lambda *_: after()),
        patch.object(DriverConnection, "all", watched),
    ):
        yield


def _nothing() -> None:
    """Where only the beginning of a statement counts."""


@contextmanager
def _listening(engine: Store, name: str, listener: Callable[..., None]) -> Iterator[None]:
    event.listen(engine.sync_engine, name, listener)
    try:
        yield
    finally:
        event.remove(engine.sync_engine, name, listener)
