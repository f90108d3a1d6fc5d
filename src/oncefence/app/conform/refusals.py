"""Statuses that tell of failure: refused for good, not applied and to be sent again, or nothing."""

from collections.abc import Mapping

from oncefence.app.conform.check import Check
from oncefence.app.conform.scene import Bench, Played, Scene
from oncefence.app.conform.trial import NotApplicable
from oncefence.catalog.answers import ResponseContract
from oncefence.domain.effect import Outcome
from oncefence.simulator.faults import REDIRECTS, Fault, ScriptedFault

_UNDECLARED = (401, 402, 408, 410, 411, 418, 424, 425, 451)
_SERVER_ERRORS = (500, 501, 502, 503, 504)
_REDIRECT_OF: Mapping[int, ScriptedFault] = {status: fault for fault, status in REDIRECTS.items()}


async def _final(bench: Bench) -> None:
    async with bench.scene() as scene:
        scene.stage.script(Fault.REJECT_400)
        case = "refused in the provider's own words"
        _expect_final(bench, case, await scene.attempt(case))
    if not bench.subject.operation.is_create:
        async with bench.scene() as scene:
            case = "a record that is not there"
            played = await scene.attempt(case, record=scene.free_id())
            _expect_final(bench, case, played)


def _expect_final(bench: Bench, case: str, played: Played) -> None:
    status = played.sent.end.response_status
    bench.trial.expect(
        played.outcome in (Outcome.REJECTED, Outcome.OUTCOME_UNKNOWN),
        f"{case} ({status}) is {played.outcome}, though it is final",
    )
    _expect_no_change(bench, case, played)


async def _declared(bench: Bench) -> None:
    rejected = bench.subject.operation.response.rejected
    if not rejected:
        raise NotApplicable("no rejected status is declared")
    for status in rejected:
        if status < 400 and status not in _REDIRECT_OF:
            continue
        async with bench.scene() as scene:
            _script_refusal(scene, status)
            case = f"refused with {status}"
            played = await scene.attempt(case)
            bench.trial.expect(
                played.outcome is Outcome.REJECTED, f"{case} is {played.outcome}, not rejected"
            )
            _expect_no_change(bench, case, played)


async def _has_code(bench: Bench) -> None:
    response = bench.subject.operation.response
    if not response.error_code:
        raise NotApplicable("no error_code is declared")
    async with bench.scene() as scene:
        scene.stage.script(Fault.REJECT_400)
        played = await scene.attempt("refused in the provider's own words")
        bench.trial.expect(
            "error_code" in played.sent.end.receipt,
            "answer.error_code finds no single word in the provider's refusal",
        )


async def _undeclared(bench: Bench) -> None:
    told = told_statuses(bench.subject.operation.response)
    statuses = [status for status in _UNDECLARED if status not in told]
    if not statuses:
        raise NotApplicable("every status that is tried is declared")
    for status in statuses:
        async with bench.scene() as scene:
            _script_refusal(scene, status)
            case = f"answered {status}"
            played = await scene.attempt(case)
            bench.trial.expect(
                played.outcome is Outcome.OUTCOME_UNKNOWN,
                f"{case} is {played.outcome}, though nothing is declared of it",
            )


async def _not_applied(bench: Bench) -> None:
    statuses = bench.subject.operation.response.not_applied
    if not statuses:
        raise NotApplicable("no status is declared that proves that nothing was applied")
    for status in statuses:
        if status < 400 and status not in _REDIRECT_OF:
            continue
        async with bench.scene() as scene:
            _script_refusal(scene, status)
            case = f"turned away with {status}"
            played = await scene.attempt(case)
            bench.trial.expect(
                played.may_repeat, f"{case} is {played.outcome}, not safe to send again"
            )
            _expect_no_change(bench, case, played)
            if played.may_repeat:
                again = await scene.attempt(f"{case}, sent again", of=played.sent)
                bench.trial.expect(
                    again.outcome is Outcome.ACCEPTED and len(again.changes) == 1,
                    f"{case}, sent again: {again.outcome} with {len(again.changes)} changes",
                )


async def _proven(bench: Bench) -> None:
    rules = bench.subject.operation.response.not_applied_when
    if not any(503 in rule.statuses for rule in rules):
        raise NotApplicable(
            "no answer of maintenance is declared to prove that nothing was applied"
        )
    async with bench.scene() as scene:
        scene.stage.script(ScriptedFault.MAINTENANCE_503)
        case = "turned away for maintenance"
        played = await scene.attempt(case)
        bench.trial.expect(played.may_repeat, f"{case} is {played.outcome}, not safe to send again")
        _expect_no_change(bench, case, played)


async def _server_error(bench: Bench) -> None:
    response = bench.subject.operation.response
    for status in _SERVER_ERRORS:
        if bench.provider.is_own_word and status in told_statuses(response):
            # Whoever plays the provider by the pack's word keeps it.
            continue
        case = f"applied, answered {status}"
        async with bench.scene() as scene:
            scene.stage.script(Fault.SERVER_ERROR_AFTER_COMMIT, status=status)
            played = await scene.attempt(case)
            bench.trial.expect(
                played.is_in_doubt,
                f"{case} is {played.outcome}, as if nothing had been applied",
            )
        if status in told_statuses(response):
            continue
        case = f"not applied, answered {status}"
        async with bench.scene() as scene:
            scene.stage.script(Fault.SERVER_ERROR_BEFORE_COMMIT, status=status)
            played = await scene.attempt(case)
            bench.trial.expect(played.is_in_doubt, f"{case} is {played.outcome}, not in doubt")


async def _redirected(bench: Bench) -> None:
    told = told_statuses(bench.subject.operation.response)
    for status, fault in _REDIRECT_OF.items():
        if status in told:
            continue
        async with bench.scene() as scene:
            scene.stage.script(fault)
            case = f"redirected with {status}"
            played = await scene.attempt(case)
            bench.trial.expect(played.requests == 1, f"{case}: it was followed")
            bench.trial.expect(
                played.outcome in (Outcome.REJECTED, Outcome.OUTCOME_UNKNOWN),
                f"{case} is {played.outcome}",
            )
            _expect_no_change(bench, case, played)


def _script_refusal(scene: Scene, status: int) -> None:
    """The provider answers the next write with this status and changes nothing."""
    if status == 429:
        scene.stage.script(Fault.RATE_LIMIT_429)
    elif status >= 500:
        scene.stage.script(Fault.SERVER_ERROR_BEFORE_COMMIT, status=status)
    elif status in _REDIRECT_OF:
        scene.stage.script(_REDIRECT_OF[status])
    else:
        scene.stage.script(Fault.REJECT_400, status=status)


def told_statuses(response: ResponseContract) -> set[int]:
    """Every status of which the pack says anything."""
    lists = [
        *(response.success, response.rejected, response.not_applied),
        *(rule.statuses for rule in response.refusals),
        *(rule.statuses for rule in response.not_applied_when),
    ]
    return {status for statuses in lists for status in statuses}


def _expect_no_change(bench: Bench, case: str, played: Played) -> None:
    bench.trial.expect(not played.changes, f"{case}: a record was changed all the same")


CHECKS = (
    Check(
        name="refusal.final",
        claim="what the provider refuses for good is never sent again",
        run=_final,
        after=("success.accepted",),
    ),
    Check(
        name="refusal.declared",
        claim="each declared rejected status is rejected and changes nothing",
        run=_declared,
        after=("success.accepted",),
    ),
    Check(
        name="refusal.code",
        claim="the provider's word for a refusal is read",
        run=_has_code,
        after=("refusal.final",),
    ),
    Check(
        name="refusal.undeclared",
        claim="a 4xx that the pack does not declare is unknown",
        run=_undeclared,
        after=("success.accepted",),
    ),
    Check(
        name="not_applied.declared",
        claim="each declared status changes nothing, and sent again changes once",
        run=_not_applied,
        after=("success.accepted",),
    ),
    Check(
        name="not_applied.proven",
        claim="an answer that proves that nothing was applied is told from one that does not",
        run=_proven,
        after=("success.accepted", "wait.provider"),
    ),
    Check(
        name="server_error.applied",
        claim="a 5xx that comes after the change is never taken for one before it",
        run=_server_error,
        after=("success.accepted",),
    ),
    Check(
        name="redirect.not_followed",
        claim="a redirect is not followed and proves no success",
        run=_redirected,
        after=("success.accepted",),
    ),
)
