"""
What really happened against what SQL says: the provider's ledger joined with every command.

The figures of the audit and of the demo come from here, after the run, and never from a counter
of a worker or of the simulator (C585).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oncefence.domain.execution import ExecutionStatus
from oncefence.simulator.ledger import Change, Ledger
from oncefence.storage.engine import Store
from oncefence.storage.phases.audit_invariants import Audit, Standing, audit_invariants

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """
    The promise in figures.

    `duplicates` are changes beyond the first of a command. `lost` are commands that were accepted
    and are neither final nor listed, or succeeded without a change, or changed something and are
    neither final nor listed: while work is under way, that is counted too. `violations` are all
    rows that break a rule, of SQL or of the ledger; `violation_rows` are the first of each rule.
    """

    commands: int
    accepted: int
    provider_changes: int
    duplicates: int
    lost: int
    by_status: Mapping[str, int]
    unknowns: int
    unknowns_settled_by_lookup: int
    needs_attention: int
    violations: int
    violation_rows: Rows


async def judge(engine: Store, ledger: Ledger, *, time_scale: float = 1.0) -> Verdict:
    """The verdict on everything in the database, by what the provider's ledger says."""
    audit = await audit_invariants(engine, time_scale=time_scale, with_standings=True)
    return compare(audit, ledger)


def compare(audit: Audit, ledger: Ledger) -> Verdict:
    """
    The verdict on an audit with standings.

    Of a running system the audit is taken first and the ledger read after it, so that nothing
    that SQL calls succeeded can be missing from the ledger merely because it was read too soon.
    """
    changes = ledger.changes_by_command()
    duplicates = _duplicates(audit, changes)
    lost = _lost(audit, changes)
    others = [*_strangers(audit, ledger, changes), *_failed_but_changed(audit, changes)]
    unknowns = [standing for standing in audit.standings if standing.was_unknown]
    surplus = sum(row["changes"] - 1 for row in duplicates)
    return Verdict(
        commands=audit.commands,
        accepted=len(audit.standings),
        provider_changes=len(ledger.changes()),
        duplicates=surplus,
        lost=len(lost),
        by_status=_by_status(audit),
        unknowns=len(unknowns),
        unknowns_settled_by_lookup=sum(
            standing.settled_by == "investigator" and standing.is_final for standing in unknowns
        ),
        needs_attention=sum(
            standing.status == ExecutionStatus.NEEDS_ATTENTION for standing in audit.standings
        ),
        violations=audit.violations + surplus + len(lost) + len(others),
        violation_rows=[*violation_rows(audit), *duplicates, *lost, *others],
    )


def violation_rows(audit: Audit) -> Rows:
    """The rows that break a rule of SQL, each under the name of its rule."""
    return [
        {"invariant": finding.rule.name} | dict(row)
        for finding in audit.invariants
        for row in finding.rows
    ]


def _by_status(audit: Audit) -> dict[str, int]:
    counts = {status.value: 0 for status in ExecutionStatus}
    for standing in audit.standings:
        if standing.status is not None:
            counts[standing.status] += 1
    return counts


def _duplicates(audit: Audit, changes: Mapping[str, Sequence[Change]]) -> list[dict[str, Any]]:
    orgs = {str(standing.command): standing.org for standing in audit.standings}
    return [
        {
            "invariant": "one_change_per_command",
            "org_id": orgs.get(command),
            "command_id": command,
            "changes": len(found),
            "ledger_rows": [change.seq for change in found],
        }
        for command, found in changes.items()
        if len(found) > 1
    ]


def _lost(audit: Audit, changes: Mapping[str, Sequence[Change]]) -> list[dict[str, Any]]:
    return [
        _row("nothing_is_lost", standing, why=why)
        for standing in audit.standings
        if (why := _loss(standing, has_change=str(standing.command) in changes)) is not None
    ]


def _loss(standing: Standing, *, has_change: bool) -> str | None:
    if not standing.is_final and not standing.listed_in:
        done = "changed at the provider" if has_change else "accepted"
        return f"{done}, and neither final nor listed"
    if standing.status == ExecutionStatus.SUCCEEDED and not has_change:
        return "succeeded, and the provider has no change of it"
    return None


def _failed_but_changed(
    audit: Audit, changes: Mapping[str, Sequence[Change]]
) -> list[dict[str, Any]]:
    return [
        _row("what_failed_changed_nothing", standing)
        for standing in audit.standings
        if standing.status in (ExecutionStatus.FAILED, ExecutionStatus.CANCELLED)
        and str(standing.command) in changes
        # Where evidence against it is listed, a person knows already.
        and not standing.listed_in
    ]


def _strangers(
    audit: Audit, ledger: Ledger, changes: Mapping[str, Sequence[Change]]
) -> list[dict[str, Any]]:
    """Changes that no command accounts for: each may be a duplicate in disguise."""
    known = {str(standing.command) for standing in audit.standings}
    nameless = ledger.unattributed_changes()
    foreign = [change for command in changes.keys() - known for change in changes[command]]
    return [
        {
            "invariant": "every_change_has_its_command",
            "command_id": change.command,
            "ledger_row": change.seq,
            "contact": change.contact,
        }
        for change in sorted([*nameless, *foreign], key=lambda change: change.seq)
    ]


def _row(invariant: str, standing: Standing, **more: object) -> dict[str, Any]:
    return {
        "invariant": invariant,
        "org_id": standing.org,
        "command_id": standing.command,
        "status": standing.status,
    } | more
