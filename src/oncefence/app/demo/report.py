"""What the run came to: from SQL and the ledger's file, once the worker has stopped (C585)."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from rich.console import Console
from rich.table import Table
from rich.text import Text

from oncefence.app.cli.screen import json_text, note, printable, say, show_table
from oncefence.app.demo.kill import Kill
from oncefence.app.handoff_file import RefusedLine
from oncefence.app.ledger_check import Verdict, compare
from oncefence.app.stack import Stack
from oncefence.app.stack_state import write_whole
from oncefence.domain.errors import ConfigurationRefused
from oncefence.domain.execution import ExecutionStatus
from oncefence.domain.ids import OrgId
from oncefence.simulator.ledger import Ledger, read_ledger
from oncefence.storage.engine import Store
from oncefence.storage.phases.audit_invariants import Standing, audit_invariants
from oncefence.storage.phases.read_progress import read_progress

_ROWS_SHOWN: Final = 60
_WIDTH_WITHOUT_TERMINAL: Final = 120
_AUDIT: Final = "oncefence audit --ledger ..."


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
    show_table("What it came to", ("figure", "count", "shown by"), _figures(report))
    for standing in report.standings:
        if standing.status == ExecutionStatus.NEEDS_ATTENTION:
            say(f"left for a person: oncefence show {standing.command}")
    for row in report.verdict.violation_rows[:_ROWS_SHOWN]:
        named = ", ".join(f"{name} {value}" for name, value in row.items() if name != "invariant")
        say(f"violation of {row['invariant']}: {named}")
    if report.verdict.commands == 0:
        say("no line was accepted, so there was nothing to send and nothing to lose")
    say(f"everything is stopped and kept in {stack.folder}; look closer with")
    say(f"    oncefence up --data {shlex.quote(str(stack.folder))}")
    say("and, in another terminal:")
    say(f"    . {shlex.quote(str(stack.environment_file))}")
    say(f"    oncefence audit --ledger {shlex.quote(str(stack.simulator.ledger_file))}")
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
    table = Table(title="Commands", title_justify="left", show_edge=False, pad_edge=False)
    table.add_column("outbox entry", overflow="ellipsis", no_wrap=True)
    table.add_column("execution", no_wrap=True)
    table.add_column("changes", justify="right", overflow="ellipsis", no_wrap=True)
    table.add_column("oncefence show ...", no_wrap=True, min_width=36)
    for standing in shown[:_ROWS_SHOWN]:
        table.add_row(
            Text(printable(named[standing.command])),
            str(standing.status),
            str(len(changes.get(str(standing.command), ()))),
            str(standing.command),
        )
    width = None if sys.stdout.isatty() else _WIDTH_WITHOUT_TERMINAL
    Console(width=width, highlight=False).print(table)
    if len(shown) > _ROWS_SHOWN:
        say(f"and {len(shown) - _ROWS_SHOWN} more")


def _figures(report: Report) -> list[tuple[object, ...]]:
    verdict = report.verdict
    in_flight = sum(len(kill.flights) for kill in report.kills)
    faults = sorted(report.ledger.faults_fired().items())
    return [
        ("commands", verdict.commands, _AUDIT),
        ("lines refused", len(report.refused), "the lines above"),
        ("changes at the provider", verdict.provider_changes, _AUDIT),
        ("duplicates", verdict.duplicates, _AUDIT),
        ("lost", verdict.lost, _AUDIT),
        *((f"finally {name}", count, _AUDIT) for name, count in verdict.by_status.items() if count),
        ("unknown for a while", verdict.unknowns, _AUDIT),
        ("unknowns settled by lookup", verdict.unknowns_settled_by_lookup, _AUDIT),
        ("left for a person", verdict.needs_attention, _AUDIT),
        ("worker kills", len(report.kills), "the steps of this run"),
        ("sends in flight at the kills", in_flight, "the steps of this run"),
        *((f"fault {name}", count, "the ledger") for name, count in faults),
        ("violations", verdict.violations, _AUDIT),
    ]
