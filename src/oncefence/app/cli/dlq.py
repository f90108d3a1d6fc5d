"""`oncefence dlq`: what ended without success, and replaying it by a plan (C400, C405)."""

from collections import Counter
from typing import Annotated, Final
from uuid import UUID

import typer

from oncefence.app.cli import arguments
from oncefence.app.cli.exits import ExitCode
from oncefence.app.cli.operator_call import ask, note_text, show
from oncefence.app.cli.screen import note as remark
from oncefence.app.cli.screen import say, show_record, show_table
from oncefence.app.cli.work import (
    After,
    AnyOrg,
    FailureClass,
    Family,
    Item,
    Operation,
    Provider,
    Rows,
    print_item,
    print_rows,
    tell_next_page,
)
from oncefence.app.operator_client import Document
from oncefence.domain.replay import ReplayVerdict

app = typer.Typer(
    help="What ended without success; an item leaves by its execution or by a replay.",
    no_args_is_help=True,
)

_PATH: Final = "dead-letters"
_RECORDS: Final = ("command", "execution", "handoff", "link", "binding")


@app.command("list")
def list_(
    *,
    org: AnyOrg = None,
    family: Family = None,
    provider: Provider = None,
    operation: Operation = None,
    failure_class: FailureClass = None,
    after: After = None,
    limit: Rows = 50,
    json: arguments.Json = False,
) -> None:
    """List dead letters; what ended last comes first."""
    query = {
        "org": org,
        "family": family,
        "provider": provider,
        "definition": operation,
        "failure_class": failure_class,
        "after": after,
        "limit": limit,
    }
    show(ask(lambda doors: doors.get(_PATH, query)), json=json, as_text=_print_letters)


@app.command("show")
def show_(item: Item, *, org: arguments.Org, json: arguments.Json = False) -> None:
    """Show one ended item with all that it stands on, and whether it can be replayed."""
    document = ask(lambda doors: doors.get(f"{_PATH}/{item}", {"org": org}))
    show(document, json=json, as_text=_print_letter)


@app.command()
def replay(
    *,
    org: arguments.Org,
    item: Annotated[UUID | None, typer.Option("--item", help="This one alone.")] = None,
    family: Family = None,
    provider: Provider = None,
    operation: Operation = None,
    failure_class: FailureClass = None,
    digest: Annotated[
        str | None,
        typer.Option("--apply", metavar="DIGEST", help="Of the plan, with the same filter."),
    ] = None,
    note: Annotated[
        str | None,
        typer.Option("--note", parser=note_text, metavar="TEXT", help="Why; with --apply."),
    ] = None,
    json: arguments.Json = False,
) -> None:
    """
    Plan a replay of dead letters; with --apply and --note, do what the plan of that digest says.

    After an answer that did not come, apply the same digest again: nothing is replayed twice.
    """
    if (digest is None) != (note is None):
        raise typer.BadParameter(
            "give --apply and --note together; without both a plan is only shown"
        )
    body = {
        "org": org,
        "work": None if item is None else str(item),
        "family": family,
        "provider": provider,
        "definition": operation,
        "failure_class": failure_class,
    }
    if digest is None:
        show(ask(lambda doors: doors.post(f"{_PATH}/plan", body)), json=json, as_text=_print_plan)
        return
    applied = ask(
        lambda doors: doors.post(f"{_PATH}/apply", body | {"digest": digest, "note": note})
    )
    show(applied, json=json, as_text=_print_applied)
    if any(line["end"] == "refused" for line in applied["lines"]):
        raise typer.Exit(ExitCode.LINES_REFUSED)


def _print_letters(document: Document) -> None:
    print_rows(
        "Dead letters",
        (
            "org_id",
            "work_id",
            "definition",
            "state",
            "failure_class",
            "execution_status",
            "changed_at",
        ),
        document["rows"],
    )
    tell_next_page(document)


def _print_letter(document: Document) -> None:
    replay = document["replay"]
    say(f"{replay['verdict']}: {replay['remedy']}")
    if not document["is_listed"]:
        say("it is not in the dead-letter queue")
    print_item(document)
    for name, rows in document["sections"].items():
        for number, row in enumerate(rows, start=1):
            title = name if name in _RECORDS else f"{name} {number} of {len(rows)}"
            show_record(title, row)


def _print_plan(document: Document) -> None:
    show_table(
        "Plan",
        ("item", "definition", "failure", "revision", "generation", "link", "verdict"),
        [
            (
                line["work_id"],
                line["definition"],
                line["failure_class"],
                _pinned_and_now(line, "revision"),
                _pinned_and_now(line, "generation"),
                _pinned_and_now(line, "link_version"),
                line["verdict"],
            )
            for line in document["lines"]
        ],
    )
    counts = Counter(line["verdict"] for line in document["lines"])
    for verdict, count in sorted(counts.items()):
        remedy = next(line["remedy"] for line in document["lines"] if line["verdict"] == verdict)
        say(f"{count} {verdict}: {remedy}")
    say(f"{document['provider_calls']} provider calls are to be expected")
    say(f"digest {document['digest']}")
    if document["has_more"]:
        remark("more items match than a plan may hold; plan again when this one is applied")
    if counts[ReplayVerdict.SAFE_TO_REPLAY]:
        remark(f"to do this, give the same filter with --apply {document['digest']} and --note")


def _print_applied(document: Document) -> None:
    show_table(
        "Applied",
        ("item", "what came of it", "new item", "why"),
        [
            (line["work_id"], line["end"], line["new_work_id"], line["detail"])
            for line in document["lines"]
        ],
    )
    counts = Counter(line["end"] for line in document["lines"])
    say(", ".join(f"{count} {end}" for end, count in counts.items()) or "nothing to replay")


def _pinned_and_now(line: Document, what: str) -> str:
    pinned, now = line[f"pinned_{what}"], line[f"current_{what}"]
    if pinned is None:
        return "-"
    return str(pinned) if pinned == now else f"{pinned}, now {now}"
