"""One request on one connection, and every row that it leaves in the ledger."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from email.utils import format_datetime

from oncefence.simulator.clock import Clock
from oncefence.simulator.journal import Journal
from oncefence.simulator.ledger import Kind, Row
from oncefence.simulator.marks import Mark, Operation
from oncefence.simulator.rulebook import Deal
from oncefence.simulator.wire import Answer, Connection

NO_MARK = Mark(method="", path="", operation=Operation.OTHER)


class Exchange:
    """
    A request from the moment that it is known until it is answered or closed.

    Rows after `was_read` carry its `seq`, which is the number of the request.
    """

    def __init__(
        self, *, connection: Connection, journal: Journal, clock: Clock, mark: Mark
    ) -> None:
        self.connection = connection
        self.mark = mark
        self.request: int | None = None
        self.is_answered = False
        self.skew = timedelta()
        """How far the clock is off that this request is served by."""
        self.rate_headers: Mapping[str, str] = {}
        """What every answer to this request says about the limit that it counts against."""
        self.changes = 0
        self.status: int | None = None
        self.fault: str | None = None
        self._journal = journal
        self._clock = clock

    def was_read(self, *, is_complete: bool) -> int:
        """The request, or a part of it, was read; its number."""
        self.request = self._append(Row(kind=Kind.READ, complete=is_complete)).seq
        return self.request

    def fires(self, deal: Deal) -> None:
        """The rule's fault is about to show."""
        fault = deal.rule.fault
        self.fault = fault and fault.value
        self._append(Row(kind=Kind.FAULT, fault=self.fault, rule=deal.rule_id))

    def waits(self, deal: Deal) -> None:
        """The request waits for the release of the rule's hold."""
        self._append(Row(kind=Kind.HELD, rule=deal.rule_id, note=deal.rule.hold))

    async def answer(self, answer: Answer) -> None:
        """The answer is written to its last byte. Raises ConnectionError when the client left."""
        if 400 <= answer.status < 500:
            self._append(Row(kind=Kind.REFUSED, status=answer.status))
        await self.connection.send(self.dated(answer).encode())
        self.was_answered(answer)

    def dated(self, answer: Answer) -> Answer:
        """The answer with the time at which it goes out."""
        now: datetime = self._clock.now() + self.skew
        return replace(
            answer,
            headers={
                "Date": format_datetime(now, usegmt=True),
                **self.rate_headers,
                **answer.headers,
            },
        )

    def was_answered(self, answer: Answer) -> None:
        """The last byte of the answer is written."""
        self.is_answered = True
        self.status = answer.status
        self._append(Row(kind=Kind.ANSWERED, status=answer.status))

    def ended(self) -> None:
        """The connection is over; the ledger says so where the answer was not whole."""
        if self.request is not None and not self.is_answered:
            self._append(Row(kind=Kind.CLOSED))

    def _append(self, row: Row) -> Row:
        mark = self.mark
        return self._journal.append(
            replace(
                row,
                method=mark.method or None,
                path=mark.path or None,
                contact=mark.contact,
                attempt=mark.attempt,
                command=mark.command,
                request=self.request,
                operation=mark.operation.value if mark is not NO_MARK else None,
                object=mark.object,
                key=mark.key,
            )
        )
