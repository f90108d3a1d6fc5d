"""`oncefence audit`: the promise, judged by SQL and, where there is one, by the ledger (C464)."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from oncefence.app import interruptible
from oncefence.app.audit_messages import ChainReports
from oncefence.app.cli import arguments
from oncefence.app.cli.exits import ExitCode
from oncefence.app.cli.operator_call import ask, org_or_all, show
from oncefence.app.cli.screen import json_text, note, say, show_table
from oncefence.app.cli.store import opened_store, read_settings
from oncefence.app.config import Settings
from oncefence.app.ledger_check import Verdict, compare, violation_rows
from oncefence.app.operator_client import Document
from oncefence.app.operator_messages import PAGE_ROWS, PAGE_ROWS_MAX
from oncefence.domain.errors import ConfigurationRefused
from oncefence.domain.ids import OrgId
from oncefence.simulator.ledger import Ledger, LedgerUnreadable, read_ledger
from oncefence.storage.phases.audit_invariants import Audit, Finding, audit_invariants
from oncefence.storage.phases.verify_audit_chain import verify_audit_chain

_ROWS_SHOWN: Final = 20

app = typer.Typer(help="The promise, judged; and who did what.")


@app.callback(invoke_without_command=True)
def audit(
    context: typer.Context,
    *,
    ledger: Annotated[
        Path | None,
        typer.Option(help="Ledger file of a simulator that all changes went to."),
    ] = None,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the figures there.")
    ] = None,
) -> None:
    """Look for anything that may never be, and list what waits for a person."""
    if context.invoked_subcommand is not None:
        if ledger is not None or json is not None:
            raise typer.BadParameter(
                f"write the options of `{context.invoked_subcommand}` after it", context
            )
        return
    settings = read_settings()
    if ledger is not None:
        _read(ledger)  # before the work: a wrong name is told at once
    found = interruptible.run(_audit(settings))
    verdict = None if ledger is None else compare(found, _read(ledger))
    _print_invariants(found)
    _print_queues(found)
    if verdict is not None:
        _print_verdict(verdict)
    violations = found.violations if verdict is None else verdict.violations
    if json is not None:
        _write(json, figures(found, verdict))
    say(f"{violations} violations" if violations else "no violations: the promise holds")
    if violations:
        raise typer.Exit(ExitCode.VIOLATIONS)


@app.command()
def chain(
    *,
    org: Annotated[
        str | None,
        typer.Option("--org", parser=org_or_all, metavar="ORG", help="Else every one."),
    ] = None,
    json: arguments.Json = False,
) -> None:
    """Compute every digest of the audit rows anew, and name the rows that do not hold."""
    reports = interruptible.run(_verify(read_settings(), org))
    show(reports.model_dump(mode="json"), json=json, as_text=_print_chains)
    if not reports.is_whole:
        raise typer.Exit(ExitCode.VIOLATIONS)


@app.command("list")
def list_(
    *,
    org: Annotated[
        str,
        typer.Option("--org", parser=org_or_all, metavar="ORG", help="* for acts on every org."),
    ],
    before: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Only those before this sequence.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=PAGE_ROWS_MAX)] = PAGE_ROWS,
    json: arguments.Json = False,
) -> None:
    """List who did what in an org, the newest first, as an operator."""
    query = {"org": org, "before": before, "limit": limit}
    show(ask(lambda doors: doors.get("audit", query)), json=json, as_text=_print_acts)


async def _verify(settings: Settings, org: str | None) -> ChainReports:
    async with opened_store(settings) as engine:
        orgs = None if org is None else (OrgId(org),)
        return ChainReports.of(await verify_audit_chain(engine, orgs))


def figures(found: Audit, verdict: Verdict | None) -> dict[str, Any]:
    """The audit for machines: counts are integers, lists stand under names of their own."""
    counts: dict[str, Any] = {
        "violations": found.violations,
        "violation_rows": violation_rows(found),
        "commands": found.commands,
        "accepted": len(found.standings),
    }
    return (
        counts
        | ({} if verdict is None else asdict(verdict))
        | {
            "invariants": {finding.rule.name: finding.count for finding in found.invariants},
            "queues": {finding.rule.name: finding.count for finding in found.queues},
            "queue_rows": [
                {"queue": finding.rule.name} | dict(row)
                for finding in found.queues
                for row in finding.rows
            ],
        }
    )


async def _audit(settings: Settings) -> Audit:
    async with opened_store(settings) as engine:
        return await audit_invariants(engine, time_scale=settings.time_scale, with_standings=True)


def _read(path: Path) -> Ledger:
    try:
        return read_ledger(path)
    except OSError as error:
        reason = f"{path} cannot be read ({error.strerror})"
    except LedgerUnreadable as error:
        reason = f"{path} is not a ledger: {error}"
    raise ConfigurationRefused(
        setting="--ledger", reason=reason, remedy="Name the file that the simulator writes"
    )


def _write(path: Path, content: dict[str, Any]) -> None:
    try:
        path.write_text(json_text(content), encoding="utf-8")
    except OSError as error:
        raise ConfigurationRefused(
            setting="--json",
            reason=f"{path} cannot be written ({error.strerror})",
            remedy="Name a file in a folder that can be written",
        ) from None


def _print_invariants(found: Audit) -> None:
    show_table(
        "Invariants",
        ("invariant", "violations", "meaning"),
        [(each.rule.name, each.count, each.rule.meaning) for each in found.invariants],
    )
    for finding in found.invariants:
        _print_rows(finding, "violation of")


def _print_queues(found: Audit) -> None:
    show_table(
        "Queues for people",
        ("queue", "rows", "meaning"),
        [(each.rule.name, each.count, each.rule.meaning) for each in found.queues],
    )
    for finding in found.queues:
        _print_rows(finding, "in queue")


def _print_rows(finding: Finding, what: str) -> None:
    for row in finding.rows[:_ROWS_SHOWN]:
        named = ", ".join(f"{name} {value}" for name, value in row.items() if value is not None)
        say(f"{what} {finding.rule.name}: {named}")
    if finding.count > _ROWS_SHOWN:
        note(f"{finding.count - _ROWS_SHOWN} more rows of {finding.rule.name} are not shown")


def _print_verdict(verdict: Verdict) -> None:
    counts = [(name, value) for name, value in asdict(verdict).items() if isinstance(value, int)]
    statuses = [(f"status {name}", count) for name, count in verdict.by_status.items() if count]
    show_table("Against the ledger", ("figure", "count"), [*counts, *statuses])
    of_ledger = [
        row
        for row in verdict.violation_rows
        if row["invariant"]
        in (
            "one_change_per_command",
            "nothing_is_lost",
            "what_failed_changed_nothing",
            "every_change_has_its_command",
        )
    ]
    for row in of_ledger[:_ROWS_SHOWN]:
        named = ", ".join(f"{name} {value}" for name, value in row.items() if name != "invariant")
        say(f"violation of {row['invariant']}: {named}")
    if len(of_ledger) > _ROWS_SHOWN:
        note(f"{len(of_ledger) - _ROWS_SHOWN} more rows of the ledger are not shown")


def _print_chains(document: Document) -> None:
    show_table(
        "Audit chains",
        ("org", "rows", "head", "digest of the head", "first broken"),
        [
            (each["org"], each["rows"], each["head_sequence"], each["head"], each["first_broken"])
            for each in document["chains"]
        ],
    )
    for each in document["chains"]:
        for link in each["broken"]:
            say(f"broken chain of {each['org']}: sequence {link['sequence']}, {link['fault']}")
    if document["is_whole"]:
        say("every chain holds")


def _print_acts(document: Document) -> None:
    show_table(
        f"Acts in {document['org']}",
        ("sequence", "at", "actor", "act", "subject", "version", "note"),
        [
            (
                row["sequence"],
                row["at"],
                row["actor"],
                row["act"],
                f"{row['subject_kind']} {row['subject_id']}",
                row["expected_version"],
                row["note"],
            )
            for row in document["rows"]
        ],
    )
    if document["next_before"] is not None:
        note(f"there may be more: --before {document['next_before']}")
