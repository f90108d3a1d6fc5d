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
from email.utils import format_datetime
from typing import Any

from oncefence.simulator import api
from oncefence.simulator.contacts import Contact, Contacts
from oncefence.simulator.exchange import NO_MARK, Exchange
from oncefence.simulator.faults import Fault, Rule
from oncefence.simulator.journal import Journal, stamp, utc_now
from oncefence.simulator.rulebook import Deal, Mark, RuleBook
from oncefence.simulator.wire import Answer, Connection, Head, Malformed, Unfinished

_DRIP_S = 0.2


class Provider:
    """Serves the contacts API to one connection after another."""

    def __init__(
        self,
        *,
        journal: Journal,
        contacts: Contacts,
        rulebook: RuleBook,
        token: str,
        patch_answered: Callable[[], None],
    ) -> None:
        self._journal = journal
        self._contacts = contacts
        self._rulebook = rulebook
        self._token = token
        self._patch_answered = patch_answered

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
            await self._respond(exchange, api.judge(request, self._contacts, self._token), deal)
        exchange.ended()
        if exchange.is_answered and exchange.mark.method == "PATCH" and exchange.mark.contact:
            self._rulebook.answered(exchange.mark.contact)
            self._patch_answered()

    def _begin(self, connection: Connection, head: Head | None) -> Exchange:
        mark = self._mark(head) if head is not None else NO_MARK
        return Exchange(connection=connection, journal=self._journal, mark=mark)

    def _mark(self, head: Head) -> Mark:
        contact = api.contact_of(head)
        return Mark(
            method=head.method,
            path=head.target,
            contact=contact,
            command=head.headers.get("x-oncefence-command"),
            attempt=head.headers.get("x-oncefence-attempt"),
            nth=self._rulebook.count(head.method, contact),
        )

    async def _respond(
        self, exchange: Exchange, asked: api.Change | api.Lookup | Answer, deal: Deal | None
    ) -> None:
        fault = deal.rule.fault if deal is not None else None
        if isinstance(asked, Answer) and (fault is None or fault.needs_success):
            # A refused request has no change to break around: the rule waits for the next one.
            if deal is not None:
                self._rulebook.give_back(deal)
            await exchange.answer(asked)
        elif deal is None and not isinstance(asked, Answer):
            await exchange.answer(api.success(self._commit(exchange, asked), asked))
        elif deal is not None:
            if deal.rule.hold_at == "read" and not await self._held(exchange, deal):
                return
            if fault is not None:
                exchange.fires(deal)
            if isinstance(asked, Answer) or (fault is not None and not fault.needs_success):
                await self._break_before_commit(exchange, deal.rule)
            else:
                await self._break_around_commit(exchange, deal, asked)

    def _break_unread(self, exchange: Exchange, deal: Deal) -> None:
        if deal.rule.fault is Fault.RESET_MID_READ:
            if not exchange.connection.read_part():
                self._rulebook.give_back(deal)  # the client broke it off before the fault could
                return
            exchange.was_read(is_complete=False)
        exchange.fires(deal)
        exchange.connection.reset()
        exchange.ended()

    async def _break_before_commit(self, exchange: Exchange, rule: Rule) -> None:
        match rule.fault:
            case Fault.RESET_BEFORE_ANSWER:
                exchange.connection.reset()
            case Fault.NO_EFFECT_HANG:
                await exchange.connection.gone()
            case Fault.RATE_LIMIT_429:
                await exchange.answer(api.rate_limited(_retry_after(rule)))
            case Fault.SERVER_ERROR_BEFORE_COMMIT:
                await exchange.answer(_server_error(rule))
            case Fault.REJECT_400:
                await exchange.answer(api.error(rule.status or 400, "refused by script"))
            case Fault.UNAUTHORIZED_401:
                await exchange.answer(api.error(401, "the token is expired"))
            case _:
                raise AssertionError(f"{rule.fault} does not come before the commit")

    async def _break_around_commit(
        self, exchange: Exchange, deal: Deal, asked: api.Change | api.Lookup
    ) -> None:
        connection, rule, fault = exchange.connection, deal.rule, deal.rule.fault
        if fault is Fault.LATE_ANSWER:
            await self._wait_late(connection, rule)
        contact = self._commit(exchange, asked) if rule.apply else asked.contact
        if fault is Fault.OVERWRITTEN and isinstance(asked, api.Change):
            edited = {name: f"{value} (edited)" for name, value in asked.properties.items()}
            self._contacts.edit(contact.id, edited, request=exchange.request)
        if rule.hold_at == "commit" and not await self._held(exchange, deal):
            return
        answer = api.success(contact, asked)
        match fault:
            case None | Fault.LATE_ANSWER:
                await exchange.answer(answer)
            case Fault.RESET_AFTER_COMMIT:
                connection.reset()
            case Fault.LOST_ANSWER | Fault.OVERWRITTEN:
                await connection.gone()
            case Fault.SERVER_ERROR_AFTER_COMMIT:
                await exchange.answer(_server_error(rule))
            case Fault.CUT_BODY:
                whole = answer.encode()
                body_bytes = len(whole) - whole.index(b"\r\n\r\n") - 4
                await connection.send(whole[: len(whole) - body_bytes // 2])
            case Fault.WRONG_ID:
                other = replace(contact, id=f"{contact.id}0")
                await exchange.answer(api.success(other, asked))
            case Fault.DRIP:
                await self._drip(
                    exchange, answer, _DRIP_S if rule.delay_s is None else rule.delay_s
                )
            case Fault.GARBLED:
                await exchange.answer(replace(answer, body=b'{"id": <html>busy</html>'))
            case _:
                raise AssertionError(f"{fault} does not come around the commit")

    def _commit(self, exchange: Exchange, asked: api.Change | api.Lookup) -> Contact:
        """The record as it is now, with the change that a PATCH asks for."""
        if isinstance(asked, api.Change):
            return self._contacts.change(
                asked.contact, asked.properties, mark=exchange.mark, request=exchange.request or 0
            )
        return self._contacts.get(asked.contact.id) or asked.contact

    async def _drip(self, exchange: Exchange, answer: Answer, interval_s: float) -> None:
        gone = asyncio.create_task(exchange.connection.gone())
        try:
            for byte in answer.encode():
                await exchange.connection.send(bytes([byte]))
                await asyncio.wait({gone}, timeout=interval_s)
                if gone.done():
                    return
        finally:
            await _end(gone)
        exchange.was_answered(answer)

    async def _wait_late(self, connection: Connection, rule: Rule) -> None:
        if rule.delay_s is None:
            await connection.gone()
        else:
            await asyncio.sleep(rule.delay_s)

    async def _held(self, exchange: Exchange, deal: Deal) -> bool:
        """True when the request may go on, False when its client left while it was held."""
        name = deal.rule.hold
        if name is None or self._rulebook.is_released(name):
            return True
        exchange.waits(deal)
        released = asyncio.create_task(self._rulebook.held(name))
        gone = asyncio.create_task(exchange.connection.gone())
        try:
            await asyncio.wait({released, gone}, return_when=asyncio.FIRST_COMPLETED)
            return not gone.done()
        finally:
            await _end(released, gone)

    async def _unreadable(self, exchange: Exchange, failure: Unfinished | Malformed) -> None:
        if isinstance(failure, Unfinished):
            if exchange.mark is not NO_MARK or failure.bytes_read:
                exchange.was_read(is_complete=False)
        else:
            exchange.was_read(is_complete=False)
            with suppress(ConnectionError):  # the client left; the row of `ended` says so
                await exchange.answer(api.error(failure.status, str(failure)))
        exchange.ended()


async def _end(*tasks: asyncio.Task[Any]) -> None:
    # The socket must not be closed while a task still waits on it: its number may be given to the
    # next connection, and the late clean-up would strike that one.
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _leaves_unread(deal: Deal) -> bool:
    return deal.rule.fault is not None and deal.rule.fault.leaves_unread


def _retry_after(rule: Rule) -> dict[str, str]:
    if rule.retry_after is None:
        return {}
    form, _, seconds = str(rule.retry_after).partition(":")
    if form in ("date", "iso") and seconds.isascii() and seconds.isdigit():
        then = utc_now() + timedelta(seconds=int(seconds))
        return {
            "Retry-After": format_datetime(then, usegmt=True) if form == "date" else stamp(then)
        }
    return {"Retry-After": str(rule.retry_after)}


def _server_error(rule: Rule) -> Answer:
    return api.error(rule.status or 500, "internal error", headers=_retry_after(rule))
