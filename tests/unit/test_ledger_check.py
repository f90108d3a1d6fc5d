"""The provider's ledger against SQL: what counts as a duplicate, as lost, as a violation."""

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest

from oncefence.app.ledger_check import Verdict, compare
from oncefence.simulator.ledger import Ledger, parse_ledger
from oncefence.storage.invariants import INVARIANTS
from oncefence.storage.phases.audit_invariants import Audit, Finding, Standing

FIRST, SECOND, THIRD = UUID(int=1), UUID(int=2), UUID(int=3)


def stands(command: UUID, status: str, **changes: Any) -> Standing:
    values: Mapping[str, Any] = {
        "org": "acme",
        "handoff_key": f"key-{command}",
        "command": command,
        "status": status,
        "settled_by": None,
        "failure_class": None,
        "was_unknown": False,
        "is_final": status in ("succeeded", "failed", "cancelled"),
        "listed_in": frozenset({status} & {"needs_attention"}),
    }
    return Standing(**values | changes)


def changed(*commands: UUID | None) -> Ledger:
    rows = [
        {
            "seq": number,
            "at": "2026-01-01T00:00:00Z",
            "kind": "change",
            "method": "PATCH",
            "path": "/",
            "contact": "101",
            "properties": {},
            "attempt": None,
            "command": None if command is None else str(command),
            "fault": None,
            "request": number,
        }
        for number, command in enumerate(commands, start=1)
    ]
    return parse_ledger("".join(json.dumps(row) + "\n" for row in rows).encode())


def verdict(*standings: Standing, ledger: Ledger) -> Verdict:
    audit = Audit(invariants=[], queues=[], standings=standings, commands=len(standings))
    return compare(audit, ledger)


def broken(found: Verdict) -> list[str]:
    return [row["invariant"] for row in found.violation_rows]


def test_one_change_for_each_success_is_what_was_promised() -> None:
    """The ordinary run: everything is counted, and nothing is wrong (C585)."""
    found = verdict(
        stands(FIRST, "succeeded"),
        stands(SECOND, "failed", failure_class="rejected"),
        stands(THIRD, "succeeded", was_unknown=True, settled_by="investigator"),
        ledger=changed(FIRST, THIRD),
    )

    assert found == Verdict(
        commands=3,
        accepted=3,
        provider_changes=2,
        duplicates=0,
        lost=0,
        by_status={
            "accepted": 0,
            "running": 0,
            "retrying": 0,
            "unknown": 0,
            "needs_attention": 0,
            "succeeded": 2,
            "failed": 1,
            "cancelled": 0,
        },
        unknowns=1,
        unknowns_settled_by_lookup=1,
        needs_attention=0,
        violations=0,
        violation_rows=[],
    )


def test_a_second_change_of_a_command_is_a_duplicate() -> None:
    """The one thing that may never happen; three changes are two too many."""
    found = verdict(stands(FIRST, "succeeded"), ledger=changed(FIRST, FIRST, FIRST))

    assert (found.duplicates, found.violations, found.provider_changes) == (2, 2, 3)
    (row,) = found.violation_rows
    assert (row["invariant"], row["command_id"], row["ledger_rows"]) == (
        "one_change_per_command",
        str(FIRST),
        [1, 2, 3],
    )


@pytest.mark.parametrize("status", ["accepted", "running", "retrying", "unknown"])
@pytest.mark.parametrize("is_changed", [True, False])
def test_what_is_neither_final_nor_listed_is_lost(status: str, *, is_changed: bool) -> None:
    """After a run nothing may rest anywhere else, whether or not it was sent (C3)."""
    ledger = changed(FIRST) if is_changed else changed()

    found = verdict(stands(FIRST, status), ledger=ledger)

    assert (found.lost, broken(found)) == (1, ["nothing_is_lost"])


def test_what_stands_in_a_queue_is_not_lost() -> None:
    """A person sees it there (C3)."""
    found = verdict(
        stands(FIRST, "needs_attention"),
        stands(SECOND, "accepted", listed_in=frozenset({"lane_blocked"})),
        stands(THIRD, "needs_attention", was_unknown=True),
        ledger=changed(THIRD),
    )

    assert (found.lost, found.violations, found.needs_attention) == (0, 0, 2)
    assert (found.unknowns, found.unknowns_settled_by_lookup) == (1, 0)


def test_a_success_without_a_change_is_lost() -> None:
    """The caller believes in a change that nobody made."""
    found = verdict(stands(FIRST, "succeeded"), ledger=changed())

    assert (found.lost, broken(found)) == (1, ["nothing_is_lost"])


def test_a_failure_with_a_change_is_a_violation() -> None:
    """The caller would hand it over again, and it would happen twice."""
    unseen = verdict(stands(FIRST, "failed"), ledger=changed(FIRST))
    seen = verdict(
        stands(FIRST, "failed", listed_in=frozenset({"contradiction"})), ledger=changed(FIRST)
    )

    assert broken(unseen) == ["what_failed_changed_nothing"]
    assert (unseen.violations, seen.violations) == (1, 0)


def test_a_change_of_nobody_is_a_violation() -> None:
    """It may be the second change of a command that forgot its name."""
    found = verdict(ledger=changed(None, FIRST))

    assert broken(found) == ["every_change_has_its_command"] * 2
    assert [row["ledger_row"] for row in found.violation_rows] == [1, 2]


def test_violations_of_sql_count_as_well() -> None:
    """One figure says whether the promise holds; rows beyond those read are counted too."""
    audit = Audit(
        invariants=[Finding(rule=INVARIANTS[0], count=7, rows=[{"org_id": "acme"}])],
        queues=[],
        standings=[],
        commands=0,
    )

    found = compare(audit, changed())

    assert found.violations == 7
    assert found.violation_rows == [{"invariant": INVARIANTS[0].name, "org_id": "acme"}]
