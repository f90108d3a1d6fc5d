"""The verdict on a run: what SQL says, what the provider's ledger says, and whether they agree."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from oncefence.app.ledger_check import compare
from oncefence.simulator.contacts import read_stamp
from oncefence.simulator.faults import Fault
from oncefence.simulator.ledger import Kind, Ledger
from oncefence.simulator.ledger import Row as LedgerRow
from oncefence.storage.phases.audit_invariants import Audit, Standing
from tests.crashgrid.companion import Attempt, Create, Findings
from tests.crashgrid.renewing import shown_twice
from tests.crashgrid.slot import Played

Row = Mapping[str, Any]

SETTLED_BY_LOOKUP_RATIO = 0.99
# A busy provider reads a request some time after it was sent.
_READ_SLOWLY = timedelta(seconds=0.5)
_WRITES = frozenset({"update", "create"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A run in figures; `violation_rows` name their cell where it can be told."""

    cells: int
    lives: int
    points_fired: frozenset[str]
    violation_rows: Sequence[Row]
    violations: int
    faultless: int
    faultless_unknowns: int
    lookupable_unknowns: int
    settled_by_lookup: int
    records_made: int

    @property
    def unknown_rate_faultless(self) -> float:
        """How many of the commands with which nothing went wrong were ever unknown."""
        return self.faultless_unknowns / self.faultless if self.faultless else 0.0

    @property
    def looks_up_enough(self) -> bool:
        """Whether nearly every unknown that a lookup can settle was settled by one."""
        return self.settled_by_lookup >= SETTLED_BY_LOOKUP_RATIO * self.lookupable_unknowns


def judge(worlds: Iterable[tuple[Sequence[Played], Sequence[Findings], Ledger]]) -> Verdict:
    """The verdict on cells with the databases and the ledger that they were played on."""
    verdicts = [_judge_world(*world) for world in worlds]
    return Verdict(
        cells=sum(each.cells for each in verdicts),
        lives=sum(each.lives for each in verdicts),
        points_fired=frozenset().union(*(each.points_fired for each in verdicts)),
        violation_rows=[row for each in verdicts for row in each.violation_rows],
        violations=sum(each.violations for each in verdicts),
        faultless=sum(each.faultless for each in verdicts),
        faultless_unknowns=sum(each.faultless_unknowns for each in verdicts),
        lookupable_unknowns=sum(each.lookupable_unknowns for each in verdicts),
        settled_by_lookup=sum(each.settled_by_lookup for each in verdicts),
        records_made=sum(each.records_made for each in verdicts),
    )


def _judge_world(played: Sequence[Played], findings: Sequence[Findings], ledger: Ledger) -> Verdict:
    audit = _joined([each.audit for each in findings])
    attempts = {name: attempt for each in findings for name, attempt in each.attempts.items()}
    by_org = {each.cell.name: each for each in played}
    promise = compare(audit, ledger)
    creates = [each for found in findings for each in found.creates]
    there = frozenset(each.cell.name for each in played if each.cell.is_there)
    own = [
        *made_twice(creates, ledger, there=there),
        *_misled(creates, audit.standings, ledger, by_org),
        *sent_twice(attempts, ledger),
        *keyed_apart(ledger),
        *sent_too_late(attempts, ledger),
        *shown_twice([token for found in findings for token in found.tokens_shown]),
        *unended(audit.standings),
        *_disagreeing(played, audit.standings),
        *_broken(played),
    ]
    rows = [*promise.violation_rows, *own]
    unknowns = [each for each in audit.standings if each.was_unknown]
    faultless = [each for each in audit.standings if by_org[each.org].cell.is_faultless]
    # A person's later edit hides what was written, and no lookup can tell what it was.
    lookupable = [each for each in unknowns if by_org[each.org].cell.fault is not Fault.OVERWRITTEN]
    return Verdict(
        cells=len(played),
        lives=sum(each.lives for each in played),
        points_fired=frozenset(
            trap.point
            for each in played
            for trap, has_fired in zip(each.cell.traps, each.fired, strict=True)
            if has_fired
        ),
        violation_rows=[_with_cell(row, by_org) for row in rows],
        violations=promise.violations + len(own),
        faultless=len(faultless),
        faultless_unknowns=sum(each.was_unknown for each in faultless),
        lookupable_unknowns=len(lookupable),
        settled_by_lookup=sum(
            each.settled_by == "investigator" and each.is_final for each in lookupable
        ),
        records_made=sum(change.is_creation for change in ledger.changes()),
    )


def _joined(audits: Sequence[Audit]) -> Audit:
    return Audit(
        invariants=[finding for audit in audits for finding in audit.invariants],
        queues=[finding for audit in audits for finding in audit.queues],
        standings=[standing for audit in audits for standing in audit.standings],
        commands=sum(audit.commands for audit in audits),
    )


def _requests(ledger: Ledger) -> list[LedgerRow]:
    """Every request that came to change something; unread to the end or not, it had been sent."""
    return [
        row
        for row in ledger.rows
        if row.operation in _WRITES
        and (row.kind is Kind.READ or row.fault == Fault.RESET_BEFORE_READ)
    ]


def made_twice(creates: Sequence[Create], ledger: Ledger, *, there: frozenset[str]) -> list[Row]:
    """
    One local object never has two records, however many commands were to make it.

    `there` are the orgs whose record somebody else had made before.
    """
    orgs = {each.command: each.org for each in creates}
    made: dict[str, list[str]] = {org: ["somebody's"] for org in there}
    for change in ledger.changes():
        if change.is_creation and change.command in orgs:
            made.setdefault(orgs[change.command], []).append(change.contact)
    return [
        {"invariant": "one_record_per_local_object", "org_id": org, "records": records}
        for org, records in made.items()
        if len(records) > 1
    ]


def _misled(
    creates: Sequence[Create],
    standings: Sequence[Standing],
    ledger: Ledger,
    by_org: Mapping[str, Played],
) -> list[Row]:
    """What a create that succeeded is linked to is the record that it made."""
    succeeded = {str(each.command) for each in standings if each.status == "succeeded"}
    made = {change.command: change.contact for change in ledger.changes() if change.is_creation}
    return [
        {
            "invariant": "link_is_of_the_record_that_was_made",
            "org_id": each.org,
            "command_id": each.command,
            "made": made.get(each.command),
            "linked": each.linked,
        }
        for each in creates
        if each.linked != (made.get(each.command) if each.command in succeeded else None)
        # A provider that names another record than it made cannot be seen through.
        and by_org[each.org].cell.fault is not Fault.WRONG_ID
    ]


def sent_twice(attempts: Mapping[str, Attempt], ledger: Ledger) -> list[Row]:
    """At most one request of an attempt ever reached the provider, and of nothing else any."""
    # Under a key no request names its attempt: any other header would make it another request.
    requests, keyed = _requests(ledger), _keyed(ledger)
    counts = Counter(row.attempt for row in requests if row.key is None)
    started = Counter(each.command for each in attempts.values())
    orgs = {each.command: each.org for each in attempts.values()}
    return [
        {
            "invariant": "one_request_per_attempt",
            "org_id": attempts[attempt].org if attempt in attempts else None,
            "attempt_id": attempt,
            "requests": count,
        }
        for attempt, count in counts.items()
        if count > 1 or attempt not in attempts
    ] + [
        {
            "invariant": "one_request_per_attempt",
            "org_id": orgs.get(command),
            "command_id": command,
            "requests": len(found),
            "attempts": started[command],
        }
        for command, found in keyed.items()
        if len(found) > started[command]
    ]


def keyed_apart(ledger: Ledger) -> list[Row]:
    """Every request of a command has one and the same key, and no other command has it."""
    keyed = {command: {row.key for row in rows} for command, rows in _keyed(ledger).items()}
    uses = Counter(key for keys in keyed.values() for key in keys)
    return [
        {
            "invariant": "one_key_per_command",
            "command_id": command,
            "keys": sorted(map(str, keys)),
        }
        for command, keys in keyed.items()
        if len(keys) > 1 or any(uses[key] > 1 for key in keys)
    ]


def _keyed(ledger: Ledger) -> dict[str, list[LedgerRow]]:
    keyed: dict[str, list[LedgerRow]] = {}
    for row in _requests(ledger):
        if row.key is not None:
            keyed.setdefault(str(row.command), []).append(row)
    return keyed


def sent_too_late(attempts: Mapping[str, Attempt], ledger: Ledger) -> list[Row]:
    """What was given up as lost is not sent any more, whoever wakes."""
    return [
        {
            "invariant": "nothing_is_sent_after_it_was_given_up",
            "org_id": attempt.org,
            "attempt_id": row.attempt,
            "given_up_at": attempt.given_up_at,
            "came_at": row.at,
        }
        for row in _requests(ledger)
        # A part of a request is read for as long as its sender holds on, and is none.
        if row.complete is not False
        and (attempt := attempts.get(row.attempt or "")) is not None
        and attempt.given_up_at is not None
        and read_stamp(row.at) > attempt.given_up_at + _READ_SLOWLY
    ]


def unended(standings: Sequence[Standing]) -> list[Row]:
    return [
        {
            "invariant": "every_command_ends",
            "org_id": each.org,
            "command_id": each.command,
            "status": each.status,
        }
        for each in standings
        if not each.is_final and each.status != "needs_attention"
    ]


def _disagreeing(played: Sequence[Played], standings: Sequence[Standing]) -> list[Row]:
    """Whatever receipt a key was given, it was the only one, and it is what stands."""
    commands = {each.handoff_key: str(each.command) for each in standings}
    rows: list[Row] = []
    for each in played:
        said: dict[str, set[tuple[str, str]]] = {}
        for receipt in each.receipts:
            admission, key, command = receipt.split(" ")
            said.setdefault(key, set()).add((admission, command))
        rows += [
            {
                "invariant": "one_receipt_per_key",
                "org_id": each.cell.name,
                "receipts": sorted(found),
            }
            for key, found in said.items()
            if {command for _, command in found} != {commands.get(key, "None")} or len(found) > 1
        ]
    return rows


def _broken(played: Sequence[Played]) -> list[Row]:
    return [
        {"invariant": "every_cell_ends_well", "org_id": each.cell.name, "why": problem}
        for each in played
        for problem in each.problems[:1]
    ]


def _with_cell(row: Row, by_org: Mapping[str, Played]) -> Row:
    played = by_org.get(str(row.get("org_id")))
    if played is None:
        return row
    problems = {"log": played.problems[1:]} if played.problems else {}
    return {**row, "cell": str(played.cell), **problems}
