"""Answers that do not come, or not whole: before the change, after it, and in their middle."""

import asyncio

from oncefence.app.conform.check import Check
from oncefence.app.conform.scene import PATIENCE_SECONDS, SILENCE_SECONDS, Bench
from oncefence.app.conform.trial import NotApplicable, NotProvoked
from oncefence.domain.effect import Outcome
from oncefence.simulator.faults import Fault, ScriptedFault

# Just over what the product reads of an answer.
_HUGE_MIB = 2
_SILENT = (Fault.LOST_ANSWER, Fault.NO_EFFECT_HANG, Fault.DRIP)


async def _nothing_left(bench: Bench) -> None:
    async with bench.scene() as scene:
        scene.stage.close()
        case = "a connection that is refused"
        played = await scene.attempt(case)
        bench.trial.expect(
            played.outcome is Outcome.RETRYABLE_PRE_DISPATCH and not played.requests,
            f"{case} is {played.outcome}, though nothing left",
        )


async def _silence(bench: Bench) -> None:
    # At once, because each of them waits for nothing.
    await asyncio.gather(
        _lost(bench, Fault.LOST_ANSWER, "applied, then silence", changes=1),
        _lost(bench, Fault.NO_EFFECT_HANG, "not applied, then silence", changes=0),
        _lost(bench, Fault.DRIP, "applied, answered byte by byte", changes=1),
    )


async def _reset(bench: Bench) -> None:
    await _lost(bench, Fault.RESET_AFTER_COMMIT, "applied, then reset", changes=1)
    await _lost(bench, Fault.RESET_BEFORE_ANSWER, "not applied, then reset", changes=0)


async def _broken(bench: Bench) -> None:
    async with bench.scene() as scene:
        plain = await scene.attempt("plain")
        if not plain.sent.answer.body:
            raise NotApplicable("the provider's success has no body that could be cut")
    await _lost(bench, Fault.CUT_BODY, "applied, the answer cut off", changes=1)
    await _lost(bench, ScriptedFault.CUT_CHUNKED, "applied, the last chunk missing", changes=1)
    await _lost(bench, ScriptedFault.CUT_GZIP, "applied, the answer in broken gzip", changes=1)
    await _lost(bench, ScriptedFault.HUGE_BODY, "applied, the answer too large", changes=1)


async def _lost(bench: Bench, fault: Fault | ScriptedFault, case: str, *, changes: int) -> None:
    if fault not in _SILENT:
        await _lose(bench, fault, case, changes=changes, seconds=PATIENCE_SECONDS)
        return
    try:
        await _lose(bench, fault, case, changes=changes, seconds=SILENCE_SECONDS)
    except NotProvoked:
        # So busy a machine that the request had not even come: once more, with all patience.
        await _lose(bench, fault, case, changes=changes, seconds=PATIENCE_SECONDS)


async def _lose(
    bench: Bench, fault: Fault | ScriptedFault, case: str, *, changes: int, seconds: float
) -> None:
    size = {"size_mib": _HUGE_MIB} if fault is ScriptedFault.HUGE_BODY else {}
    async with bench.scene() as scene:
        scene.stage.script(fault, **size)
        played = await scene.attempt(case, seconds=seconds)
        bench.trial.expect(played.is_in_doubt, f"{case} is {played.outcome}, not in doubt")
        bench.trial.expect(
            len(played.changes) == changes, f"{case}: {len(played.changes)} records were changed"
        )
        bench.trial.expect(played.requests == 1, f"{case}: {played.requests} requests came")


CHECKS = (
    Check(
        name="unsent.refused",
        claim="where nothing left, it is sent again",
        run=_nothing_left,
        after=("success.accepted",),
    ),
    Check(
        name="lost.silence",
        claim="no answer in time is unknown, applied or not, unless a key makes a repeat safe",
        run=_silence,
        after=("success.accepted",),
    ),
    Check(
        name="lost.connection",
        claim="a connection that breaks is unknown, applied or not, unless a key covers it",
        run=_reset,
        after=("success.accepted",),
    ),
    Check(
        name="lost.body",
        claim="an answer that is cut, broken or too large proves nothing",
        run=_broken,
        after=("success.accepted",),
    ),
)
