"""Answers that no fault of the simulator makes: its own, bent for the time of one exchange."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from oncefence.simulator.dialects.protocol import Asked, Dialect, Found, Limit
from oncefence.simulator.wire import Answer

BendAnswer = Callable[[Answer, Found], Answer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bend:
    """What is done to the provider's answers while it lasts."""

    answer: BendAnswer | None = None
    """To the answers of writes, reads and searches that succeeded, with the records they show."""

    found: Callable[[Found], Found] | None = None
    """To the records that they show."""

    words: str | None = None
    """What stands for the message in refusals."""

    opens_in: timedelta | None = None
    """The limit that a 429 speaks of is one that is really counted, and opens then."""


_PLAIN = Bend()


class BendableDialect:
    """A dialect of the simulator that speaks plainly unless it is bent."""

    def __init__(self, plain: Dialect) -> None:
        self._plain = plain
        self._bend = _PLAIN

    def __getattr__(self, name: str) -> Any:
        """All that is never bent is the plain dialect's."""
        return getattr(self._plain, name)

    @contextmanager
    def bent(self, bend: Bend) -> Iterator[None]:
        """Answers come bent until the end of the block."""
        self._bend = bend
        try:
            yield
        finally:
            self._bend = _PLAIN

    def success(self, asked: Asked, found: Found) -> Answer:
        """The plain answer, or what the bend makes of it."""
        bend = self._bend
        shown = found if bend.found is None else bend.found(found)
        answer = self._plain.success(asked, shown)
        return answer if bend.answer is None else bend.answer(answer, shown)

    def error(
        self, status: int, message: str, *, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """An error, in the bend's words where it has some."""
        return self._plain.error(status, self._bend.words or message, headers=headers)

    def limited(
        self,
        limit: Limit,
        headers: Mapping[str, str],
        now: datetime,
        *,
        resets_at: datetime | None = None,
    ) -> Answer:
        """429, of a real limit where the bend says so."""
        opens_in = self._bend.opens_in
        until = resets_at if opens_in is None else now + opens_in
        return self._plain.limited(limit, headers, now, resets_at=until)


@dataclass(frozen=True, slots=True, kw_only=True)
class RawAnswer(Answer):
    """An answer that is no JSON on the wire; what is kept of it under a key is its `body`."""

    raw: bytes

    @property
    def content(self) -> bytes:
        """The bytes as they go out."""
        return self.raw


def as_page(answer: Answer, _: Found) -> Answer:
    """A page of HTML in the place of the answer."""
    return RawAnswer(
        status=answer.status,
        body={},
        headers={**answer.headers, "Content-Type": "text/html; charset=utf-8"},
        raw=b"<!DOCTYPE html><html><body>Please sign in</body></html>",
    )
