"""What the run came to: from SQL and from the ledger's file, after everything has stopped."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from oncefence.app.cli.screen import json_text, note, say, show_table
from oncefence.app.demo.kill import Kill
from oncefence.app.handoff_file import RefusedLine
from oncefence.app.ledger_check import Verdict, compare
from oncefence.app.stack import Stack
from oncefence.app.stack_state import write_whole
from oncefence.domain.errors import ConfigurationRefused
from oncefence.domain.ids import OrgId
from oncefence.simulator.ledger import Ledger, read_ledger
from oncefence.storage.engine import Store
from oncefence.storage.phases.audit_invariants import Standing, audit_invariants
from oncefence.storage.phases.read_progress import read_progress

_ROWS_SHOWN: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The verdict on the commands of this run, with what was done to them."""

    verdict: Verdict
    standings: Sequence[Standing]
    outbox_ids: Mapping[UUID, str]
    ledger: Ledger
    refused: Sequence[RefusedLine]
    kills: Sequence[Kill]

    @property
    def holds(self) -> bool:
        """Whether every invariant does."""
        verdict = self.verdict
        return verdict.violations == verdict.duplicates == verdict.lost == 0

    def as_json(self) -> dict[str, Any]:
        """The figures for machines: every count an integer, every list under its own name."""
        verdict = self.verdict
        return {
            "commands": verdict.commands,
            "accepted": verdict.accepted,
            "refused": len(self.refused),
            "provider_changes": verdict.provider_changes,
            "duplicates": verdict.duplicates,
            "lost": verdict.lost,
            "by_status": dict(verdict.by_status),
            "unknowns": verdict.unknowns,
            "unknowns_settled_by_lookup": verdict.unknowns_settled_by_lookup,
            "needs_attention": verdict.needs_attention,
            "faults_fired": self.ledger.faults_fired(),
            "worker_kills": len(self.kills),
            "attempts_in_flight_at_kill": sum(len(kill.flights) for kill in self.kills),
            "violations": verdict.violations,
            "violation_rows": list(verdict.violation_rows),
        }


async def make_report(
    store: Store,
    org: str,
    ledger_file: Path,
    *,
    time_scale: float,
    refused: Sequence[RefusedLine],
    kills: Sequence[Kill],
) -> Report:
    """The report on the commands of `org`: its ledger knows nothing of anybody else's."""
    audit = await audit_invariants(store, time_scale=time_scale, with_standings=True)
    standings = [standing for standing in audit.standings if standing.org == org]
    if len(standings) != len(audit.standings):
        audit = replace(audit, standings=standings, commands=len(standings))
    progress = await read_progress(store, OrgId(org))
    ledger = read_ledger(ledger_file)
    return Report(
        verdict=compare(audit, ledger),
        standings=standings,
        outbox_ids={each.command: each.outbox for each in progress.commands},
        ledger=ledger,
        refused=sorted(refused, key=lambda line: line.number),
        kills=kills,
    )


def check_json_file(path: Path) -> None:
    """
    Refuse a file that could not be written, before a minute of work is done for it.

    Raises:
        ConfigurationRefused: It is a folder, or its folder is not there.
    """
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise ConfigurationRefused(
            setting="--json",
            reason=f"{path} cannot be written",
            remedy="Name a file in a folder that is there",
        )


def write_json(path: Path, report: Report) -> None:
    """
    Write the figures, whole or not at all.

    Raises:
        ConfigurationRefused: The file cannot be written.
    """
    try:
        write_whole(path.absolute(), json_text(report.as_json()))
    except OSError as error:
        raise ConfigurationRefused(
            setting="--json",
            reason=f"{path} cannot be written ({error.strerror})",
            remedy="Name a file in a folder that can be written",
        ) from None


def print_report(report: Report, stack: Stack) -> None:
    """The tables at the end, and how to look closer."""
    for line in report.refused:
        note(f"line {line.number} was refused: {line.reason}")
    _print_commands(report)
    _print_figures(report, stack)
    for row in report.verdict.violation_rows[:_ROWS_SHOWN]:
        named = ", ".join(f"{name} {value}" for name, value in row.items() if name != "invariant")
        say(f"violation of {row['invariant']}: {named}")
    folder = shlex.quote(str(stack.folder))
    say(f"everything is stopped and kept in {stack.folder}. To look closer, start it again with")
    say(f"    oncefence up --data {folder}")
    say("and in another terminal, before the commands above:")
    say(f"    . {shlex.quote(str(stack.environment_file))}")
    if report.verdict.commands == 0:
        say("no line was accepted, so there was nothing to send and nothing to lose")
    say(
        "the invariants hold: no command was sent twice, and none is lost"
        if report.holds
        else f"THE INVARIANTS DO NOT HOLD: {report.verdict.violations} violations"
    )


def _print_commands(report: Report) -> None:
    if not report.standings:
        return
    changes = report.ledger.changes_by_command()
    named = report.outbox_ids
    shown = sorted(report.standings, key=lambda standing: named[standing.command])
    show_table(
        "Commands",
        ("outbox entry", "execution", "settled by", "changes", "shown by"),
        [
            (
                named[standing.command],
                standing.status,
                standing.settled_by,
                len(changes.get(str(standing.command), ())),
                f"oncefence show {standing.command}",
            )
            for standing in shown[:_ROWS_SHOWN]
        ],
    )
    if len(shown) > _ROWS_SHOWN:
        say(f"and {len(shown) - _ROWS_SHOWN} more")


def _print_figures(report: Report, stack: Stack) -> None:
    verdict = report.verdict
    audit = f"oncefence audit --ledger {shlex.quote(str(stack.simulator.ledger_file))}"
    people = [
        standing.command for standing in report.standings if standing.status == "needs_attention"
    ]
    figures: list[tuple[object, ...]] = [
        ("commands", verdict.commands, audit),
        ("lines refused", len(report.refused), None),
        ("changes at the provider", verdict.provider_changes, audit),
        ("duplicates", verdict.duplicates, audit),
        ("lost", verdict.lost, audit),
        *((f"finally {name}", count, None) for name, count in verdict.by_status.items() if count),
        ("unknown for a while", verdict.unknowns, None),
        ("unknowns settled by lookup", verdict.unknowns_settled_by_lookup, None),
        ("left for a person", verdict.needs_attention, None),
        *(("", "", f"oncefence show {command}") for command in people[:_ROWS_SHOWN]),
        ("worker kills", len(report.kills), None),
        (
            "sends in flight at the kills",
            sum(len(kill.flights) for kill in report.kills),
            None,
        ),
        *((f"fault {name}", count, None) for name, count in _faults(report)),
        ("violations", verdict.violations, audit),
    ]
    show_table("What it came to", ("figure", "count", "shown by"), figures)


def _faults(report: Report) -> list[tuple[str, int]]:
    return sorted(report.ledger.faults_fired().items())
