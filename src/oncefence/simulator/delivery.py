"""How an answer goes out: whole, or as a fault has it."""

import asyncio
import gzip
from dataclasses import replace

from oncefence.simulator.exchange import Exchange
from oncefence.simulator.faults import Fault, Rule, ScriptedFault
from oncefence.simulator.tasks import end
from oncefence.simulator.wire import Answer

_DRIP_S = 0.2
_MIB = 1_048_576
_BLANKS = b" " * 65_536


async def deliver(exchange: Exchange, answer: Answer, rule: Rule | None) -> None:
    """The exchange is over, as far as the provider has it in hand."""
    connection = exchange.connection
    match rule.fault if rule is not None else None:
        case Fault.RESET_AFTER_COMMIT:
            connection.reset()
        case Fault.LOST_ANSWER | Fault.OVERWRITTEN:
            await connection.gone()
        case Fault.CUT_BODY:
            whole = exchange.dated(answer).encode()
            await connection.send(whole[: len(whole) - len(answer.content) // 2])
        case Fault.DRIP if rule is not None:
            await _drip(exchange, answer, _DRIP_S if rule.delay_s is None else rule.delay_s)
        case Fault.GARBLED:
            await exchange.answer(replace(answer, body=b'{"id": <html>busy</html>'))
        case ScriptedFault.HUGE_BODY if rule is not None:
            await _flood(exchange, answer, rule)
        case ScriptedFault.CUT_GZIP:
            packed = gzip.compress(answer.content)
            cut = replace(
                answer,
                body=packed[: len(packed) // 2],
                headers={**answer.headers, "Content-Encoding": "gzip"},
            )
            await exchange.answer(cut)
        case ScriptedFault.CUT_CHUNKED:
            head = exchange.dated(answer).head({"Transfer-Encoding": "chunked"})
            await connection.send(head + _chunk(answer.content))
        case ScriptedFault.EMPTY_204:
            await exchange.answer(replace(answer, status=204, body=b""))
        case _:
            await exchange.answer(answer)


async def _drip(exchange: Exchange, answer: Answer, interval_s: float) -> None:
    gone = asyncio.create_task(exchange.connection.gone())
    try:
        for byte in exchange.dated(answer).encode():
            await exchange.connection.send(bytes([byte]))
            await asyncio.wait({gone}, timeout=interval_s)
            if gone.done():
                return
    finally:
        await end(gone)
    exchange.was_answered(answer)


async def _flood(exchange: Exchange, answer: Answer, rule: Rule) -> None:
    # The document is whole at once and JSON allows the blanks, so nothing but a cap ends this.
    size = rule.size_mib * _MIB
    content = answer.content
    is_chunked = rule.framing == "chunked"
    framing = (
        {"Transfer-Encoding": "chunked"}
        if is_chunked
        else {"Content-Length": str(len(content) + size)}
    )
    connection = exchange.connection
    await connection.send(exchange.dated(answer).head(framing))
    await connection.send(_chunk(content) if is_chunked else content)
    blanks = _chunk(_BLANKS) if is_chunked else _BLANKS
    for _ in range(size // len(_BLANKS)):
        await connection.send(blanks)
    if is_chunked:
        await connection.send(b"0\r\n\r\n")
    exchange.was_answered(answer)


def _chunk(content: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(content), content)
