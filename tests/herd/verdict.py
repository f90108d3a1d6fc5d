"""What a run came to: SQL, the provider's ledger and the processes' own ends, joined."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oncefence.app.ledger_check import compare
from oncefence.app.stack import Stack, VerbFailed
from oncefence.simulator.faults import Fault
from oncefence.simulator.ledger import Ledger, read_ledger
from oncefence.storage.engine import Store
from oncefence.storage.phases.audit_invariants import Standing, audit_invariants
from tests.crashgrid.companion import read_attempts
from tests.crashgrid.oracle import SETTLED_BY_LOOKUP_RATIO, sent_too_late, sent_twice, unended

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The figures of the promise; `rows` are what breaks it."""

    commands: int
    provider_changes: int
    duplicates: int
    lost: int
    unknowns: int
    settled_by_lookup: int
    lookupable: int
    needs_attention: int
    attempts: int
    attempts_lost: int
    open: int
    violations: int
    by_status: Mapping[str, int]
    faults_fired: Mapping[str, int]
    rows: Sequence[Row]


async def judge(
    stack: Stack, store: Store, *, handed_over: int, of_the_processes: Sequence[Row]
) -> Verdict:
    """The verdict on everything in the database, once no worker runs any more."""
    audit = await audit_invariants(store, time_scale=stack.state.time_scale, with_standings=True)
    ledger = read_ledger(stack.simulator.ledger_file)
    attempts = await read_attempts(store)
    promise = compare(audit, ledger)
    open_ones = [row for row in unended(audit.standings) if not _is_listed(row, audit.standings)]
    own = [
        *sent_twice(attempts, ledger),
        *sent_too_late(attempts, ledger),
        *open_ones,
        *of_the_processes,
    ]
    if audit.commands != handed_over:
        own.append({"invariant": "each_receipt_is_a_command", "receipts": handed_over})
    lookupable = _seen_by_a_lookup(audit.standings, ledger)
    settled = [each for each in lookupable if each.settled_by == "investigator" and each.is_final]
    if len(settled) < SETTLED_BY_LOOKUP_RATIO * len(lookupable):
        own.append({"invariant": "lookups_settle_what_they_can", "settled": len(settled)})
    own += _shipped_audit(stack)
    return Verdict(
        commands=promise.commands,
        provider_changes=promise.provider_changes,
        duplicates=promise.duplicates,
        lost=promise.lost,
        unknowns=promise.unknowns,
        settled_by_lookup=promise.unknowns_settled_by_lookup,
        lookupable=len(lookupable),
        needs_attention=promise.needs_attention,
        attempts=len(attempts),
        attempts_lost=sum(each.given_up_at is not None for each in attempts.values()),
        open=len(open_ones),
        violations=promise.violations + len(own),
        by_status=promise.by_status,
        faults_fired=ledger.faults_fired(),
        rows=[*promise.violation_rows, *own],
    )


def _is_listed(row: Row, standings: Sequence[Standing]) -> bool:
    """Whether somebody is shown the command: it stands in a queue, or behind one that does."""
    return any(each.command == row["command_id"] and each.listed_in for each in standings)


def _seen_by_a_lookup(standings: Sequence[Standing], ledger: Ledger) -> list[Standing]:
    """
    Unknowns whose change stands in the record, where a lookup finds it.

    A person's later edit hides one. What changed nothing a lookup can only tell where nobody
    else changed the record shortly before, and here commands of one lane follow each other.
    """
    hidden = {str(row.command) for row in ledger.rows if row.fault == Fault.OVERWRITTEN}
    shown = ledger.changes_by_command().keys() - hidden
    return [each for each in standings if each.was_unknown and str(each.command) in shown]


def _shipped_audit(stack: Stack) -> list[Row]:
    """What an operator would be told."""
    try:
        stack.run_verb("audit", "--ledger", str(stack.simulator.ledger_file))
    except VerbFailed as failure:
        return [{"invariant": "oncefence_audit_is_clean", "reason": failure.reason}]
    return []
