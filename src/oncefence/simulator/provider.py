"""
One exchange with a client of the provider: read, judge, apply, answer, or break as the rule says.

The order never varies: the request is in the ledger when it was read, a fault before it shows, a
change before anybody can hear of it.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

from oncefence.simulator.commits import Ask, Commits
from oncefence.simulator.delivery import deliver
from oncefence.simulator.dialects.protocol import Change, Dialect, Reading
from oncefence.simulator.exchange import NO_MARK, Exchange
from oncefence.simulator.faults import Fault, Rule, ScriptedFault
from oncefence.simulator.marks import Mark
from oncefence.simulator.reception import Reception
from oncefence.simulator.refusals import refusal, server_error
from oncefence.simulator.rulebook import Deal
from oncefence.simulator.stores import OTHER_ACCOUNT, Stores
from oncefence.simulator.tasks import end
from oncefence.simulator.wire import (
    Answer,
    Connection,
    Head,
    Malformed,
    Request,
    Unfinished,
)


class Provider:
    """Serves one dialect to one connection after another."""

    def __init__(
        self,
        *,
        dialect: Dialect,
        stores: Stores,
        token: str,
        index_lag: timedelta,
        write_answered: Callable[[], None],
        tell: Callable[[Exchange], None] = lambda _: None,
    ) -> None:
        self._dialect = dialect
        self._stores = stores
        self._rulebook = stores.rulebook
        self._keys = stores.keys
        self._write_answered = write_answered
        self._tell = tell
        self.reception = Reception(dialect=dialect, stores=stores, token=token)
        self._commits = Commits(dialect=dialect, keys=stores.keys, index_lag=index_lag)

    async def serve(self, connection: Connection) -> None:
        """One request from its first byte to the end of its connection."""
        head = await connection.peek()
        exchange = self._begin(connection, head) if head is not None else None
        deal = self._rulebook.take(exchange.mark) if exchange is not None else None
        if exchange is not None and deal is not None and _leaves_unread(deal):
            self._break_unread(exchange, deal)
            return
        try:
            request = await connection.read()
        except (Unfinished, Malformed) as failure:
            if deal is not None:
                self._rulebook.give_back(deal)
            await self._unreadable(exchange or self._begin(connection, failure.head), failure)
            return
        if exchange is None:
            exchange = self._begin(connection, request.head)
            deal = self._rulebook.take(exchange.mark)
            if deal is not None and _leaves_unread(deal):
                # The head came too slowly to be left unread, so this fault cannot be had here.
                self._rulebook.give_back(deal)
                deal = None
        exchange.was_read(is_complete=True)
        with suppress(ConnectionError):  # the client left; the row of `ended` says so
            await self._respond(exchange, request, deal)
        exchange.ended()
        self._tell(exchange)
        mark = exchange.mark
        if exchange.is_answered and mark.operation.is_write and mark.contact:
            self._rulebook.answered(mark.contact)
            self._write_answered()

    def _begin(self, connection: Connection, head: Head | None) -> Exchange:
        return Exchange(
            connection=connection,
            journal=self._stores.journal,
            clock=self._stores.clock,
            mark=self._mark(head) if head is not None else NO_MARK,
        )

    def _mark(self, head: Head) -> Mark:
        target = self._dialect.target(head)
        keys = self._dialect.keys if target.operation.is_write else None
        mark = Mark(
            method=head.method,
            path=head.target,
            operation=target.operation,
            contact=target.contact,
            object=target.object,
            command=head.headers.get(self._dialect.command_header.lower()),
            attempt=head.headers.get(self._dialect.attempt_header.lower()),
            key=head.headers.get(keys.header.lower()) if keys is not None else None,
        )
        who = mark.who or mark.operation.value
        return replace(mark, nth=self._rulebook.count(head.method, who))

    async def _respond(self, exchange: Exchange, request: Request, deal: Deal | None) -> None:
        deal = self._forget_key(exchange, deal)
        asked = self.reception.receive(exchange, request)
        if isinstance(asked, Answer):
            if deal is None or deal.rule.fault is None or deal.rule.fault.needs_success:
                # A refused request has no change to break around: the rule waits for the next one.
                if deal is not None:
                    self._rulebook.give_back(deal)
                await exchange.answer(asked)
            elif await self._is_free(exchange, deal, at="read"):
                exchange.fires(deal)
                await self._break_before_commit(exchange, request, None, deal.rule)
            return
        with self._keys.in_flight(asked.account, exchange.mark.key):
            if deal is None:
                await exchange.answer(self._commits.carry_out(exchange, asked, None).answer)
            elif await self._is_free(exchange, deal, at="read"):
                if deal.rule.fault is not None:
                    exchange.fires(deal)
                if deal.rule.fault is not None and not deal.rule.fault.needs_success:
                    await self._break_before_commit(exchange, request, asked, deal.rule)
                else:
                    await self._break_around_commit(exchange, request, asked, deal)

    def _forget_key(self, exchange: Exchange, deal: Deal | None) -> Deal | None:
        """A rule that makes the provider forget a key strikes first, and is over with that."""
        if deal is None or deal.rule.fault is not ScriptedFault.KEY_EXPIRY:
            return deal
        key = exchange.mark.key or ""
        if self._keys.is_kept(None, key):
            exchange.fires(deal)
            self._keys.forget(None, key)
        else:
            self._rulebook.give_back(deal)
        return None

    def _break_unread(self, exchange: Exchange, deal: Deal) -> None:
        if deal.rule.fault is Fault.RESET_MID_READ:
            if not exchange.connection.read_part():
                self._rulebook.give_back(deal)  # the client broke it off before the fault could
                return
            exchange.was_read(is_complete=False)
        exchange.fires(deal)
        exchange.connection.reset()
        exchange.ended()
        self._tell(exchange)

    async def _break_before_commit(
        self, exchange: Exchange, request: Request, ask: Ask | None, rule: Rule
    ) -> None:
        if rule.fault is Fault.RESET_BEFORE_ANSWER:
            exchange.connection.reset()
        elif rule.fault is Fault.NO_EFFECT_HANG:
            await exchange.connection.gone()
        else:
            answer = refusal(self._dialect, rule, request.head, self._stores.clock.now())
            if rule.fault is Fault.SERVER_ERROR_BEFORE_COMMIT and ask is not None:
                self._commits.keep_failure(exchange, ask, answer)
            await exchange.answer(answer)

    async def _break_around_commit(
        self, exchange: Exchange, request: Request, ask: Ask, deal: Deal
    ) -> None:
        rule = deal.rule
        if rule.fault is Fault.LATE_ANSWER:
            await self._wait_late(exchange.connection, rule)
        if rule.fault is ScriptedFault.CLOCK_SKEW:
            exchange.skew = timedelta(seconds=rule.skew_s)
        if rule.fault is ScriptedFault.ACCOUNT_SWITCH:
            switched = self._switched(exchange, request, ask, rule)
            if isinstance(switched, Answer):
                await exchange.answer(switched)
                return
            ask = switched
        answer = self._applied(exchange, ask, rule)
        if await self._is_free(exchange, deal, at="commit"):
            await deliver(exchange, self._changed(answer, ask, rule), rule)

    def _applied(self, exchange: Exchange, ask: Ask, rule: Rule) -> Answer:
        """The answer that is due; no await between a change and what a person makes of it."""
        done = None
        if rule.applies or rule.fault is ScriptedFault.ACCOUNT_SWITCH:
            done = self._commits.carry_out(exchange, ask, rule)
        if rule.fault is Fault.OVERWRITTEN:
            written = done.written if done is not None else ()
            if done is None and isinstance(ask.asked, Change):
                written = ((ask.asked.contact, ask.asked.properties),)
            for contact, properties in written:
                ask.contacts.edit(
                    contact.id,
                    {name: _edited(value) for name, value in properties.items()},
                    object_name=contact.object,
                    request=exchange.request,
                )
        return done.answer if done is not None else self._dialect.error_inside(ask.asked)

    def _changed(self, answer: Answer, ask: Ask, rule: Rule) -> Answer:
        now = self._stores.clock.now()
        match rule.fault:
            case Fault.SERVER_ERROR_AFTER_COMMIT:
                return server_error(self._dialect, rule, now)
            case ScriptedFault.ERROR_INSIDE_200:
                return self._dialect.error_inside(ask.asked)
            case ScriptedFault.QUOTA_SPENT:
                spent = self._dialect.rate_headers(0, now + timedelta(seconds=10))
                return replace(answer, headers={**answer.headers, **spent})
            case _:
                return answer

    def _switched(self, exchange: Exchange, request: Request, ask: Ask, rule: Rule) -> Ask | Answer:
        """The same request, as another account is asked for it."""
        asked, elsewhere = ask.asked, self._stores.elsewhere
        if rule.applies and isinstance(asked, Change | Reading):
            own = asked.contact
            if elsewhere.get(own.id, own.object) is None:
                elsewhere.create(own.id, own.properties, object_name=own.object)
        return self.reception.receive(exchange, request, account=OTHER_ACCOUNT)

    async def _wait_late(self, connection: Connection, rule: Rule) -> None:
        if rule.delay_s is None:
            await connection.gone()
        else:
            await asyncio.sleep(rule.delay_s)

    async def _is_free(self, exchange: Exchange, deal: Deal, *, at: str) -> bool:
        """True when the request may go on, False when its client left while it was held."""
        name = deal.rule.hold
        if name is None or deal.rule.hold_at != at or self._rulebook.is_released(name):
            return True
        exchange.waits(deal)
        released = asyncio.create_task(self._rulebook.held(name))
        gone = asyncio.create_task(exchange.connection.gone())
        try:
            await asyncio.wait({released, gone}, return_when=asyncio.FIRST_COMPLETED)
            return not gone.done()
        finally:
            await end(released, gone)

    async def _unreadable(self, exchange: Exchange, failure: Unfinished | Malformed) -> None:
        if isinstance(failure, Unfinished):
            if exchange.mark is not NO_MARK or failure.bytes_read:
                exchange.was_read(is_complete=False)
        else:
            exchange.was_read(is_complete=False)
            with suppress(ConnectionError):  # the client left; the row of `ended` says so
                await exchange.answer(self._dialect.error(failure.status, str(failure)))
        exchange.ended()


def _edited(value: Any) -> Any:
    """Another value of the same kind, as a person might put it."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case list():
            return [*value, "edited"]
        case None | dict():
            return "(edited)"
        case _:
            return f"{value} (edited)"


def _leaves_unread(deal: Deal) -> bool:
    return deal.rule.fault is not None and deal.rule.fault.leaves_unread
