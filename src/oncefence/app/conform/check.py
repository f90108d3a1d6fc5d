"""What a check is, and the one way in which each of them is run."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from oncefence.app.conform.certificate import CheckReport, Verdict
from oncefence.app.conform.scene import Bench, Provider
from oncefence.app.conform.subject import Subject
from oncefence.app.conform.trial import NotApplicable, NotProvoked, Trial
from oncefence.catalog.errors import PayloadRefused
from oncefence.simulator.admin import BadRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that has to hold."""

    name: str
    claim: str
    run: Callable[[Bench], Awaitable[None]]
    after: tuple[str, ...] = ()
    """What must not have failed, or this would fail for that reason and not for its own."""


async def run_checks(
    checks: Iterable[Check], subject: Subject, provider: Provider
) -> list[CheckReport]:
    """The reports of all checks; each comes after those that it waits for."""
    reports: list[CheckReport] = []
    # What failed, and what was not run for that: by the check that is to be mended first.
    cause: dict[str, str] = {}
    for check in checks:
        broken = next((cause[name] for name in check.after if name in cause), None)
        report = await _run(check, subject, provider, broken=broken)
        first = check.name if report.verdict is Verdict.FAILED else broken
        if first is not None:
            cause[check.name] = first
        reports.append(report)
    return reports


async def _run(
    check: Check, subject: Subject, provider: Provider, *, broken: str | None
) -> CheckReport:
    trial = Trial()
    verdict, reason = Verdict.PASSED, None
    if broken is not None:
        verdict, reason = Verdict.NOT_APPLICABLE, f"says nothing as long as {broken} fails"
    else:
        bench = Bench(subject=subject, provider=provider, trial=trial)
        try:
            await check.run(bench)
        except NotApplicable as why:
            if not trial.misfits:
                verdict, reason = Verdict.NOT_APPLICABLE, str(why)
        except (NotProvoked, PayloadRefused, BadRecord) as why:
            trial.expect(False, str(why))
        if trial.misfits:
            verdict, reason = Verdict.FAILED, "; ".join(dict.fromkeys(trial.misfits))
    return CheckReport(
        check=check.name,
        operation=subject.name,
        claim=check.claim,
        verdict=verdict,
        reason=reason,
        evidence=tuple(trial.evidence),
    )
