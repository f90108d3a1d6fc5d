"""`oncefence work`: the items of the kernel, and what an operator does to one (C406)."""

from collections.abc import Sequence
from typing import Annotated, Any, Final
from uuid import UUID

import typer

from oncefence.app.cli import arguments, pauses
from oncefence.app.cli.operator_call import ExpectedVersion, Note, ask, show
from oncefence.app.cli.screen import note as remark
from oncefence.app.cli.screen import say, show_record, show_table
from oncefence.app.operator_client import Document
from oncefence.domain.work_item import WorkItemState

app = typer.Typer(help="Items of work: what there is, and acts on one.", no_args_is_help=True)

_PATH: Final = "work"

Item = Annotated[UUID, typer.Argument(metavar="ITEM", help="Its id.")]
AnyOrg = Annotated[
    str | None,
    typer.Option("--org", parser=arguments.name, metavar="ORG", help="Else all of yours."),
]
Family = Annotated[str | None, typer.Option(help="Like `effect.dispatch`.")]
Provider = Annotated[str | None, typer.Option(help="Of the account that it goes to.")]
Operation = Annotated[str | None, typer.Option(help="Its definition.")]
FailureClass = Annotated[str | None, typer.Option("--failure-class", help="Like `rejected`.")]
After = Annotated[str | None, typer.Option(help="The page behind this one, as it was shown.")]
Rows = Annotated[int, typer.Option("--limit", min=1, max=200, help="Rows of a page.")]


@app.command("list")
def list_(
    *,
    org: AnyOrg = None,
    state: Annotated[
        list[WorkItemState] | None,
        typer.Option("--state", help="May be given several times; else what is alive."),
    ] = None,
    family: Family = None,
    provider: Provider = None,
    operation: Operation = None,
    failure_class: FailureClass = None,
    after: After = None,
    limit: Rows = 50,
    json: arguments.Json = False,
) -> None:
    """List items, the youngest first, with what keeps each of them."""
    query = {
        "org": org,
        "states": ",".join(state) if state else None,
        "family": family,
        "provider": provider,
        "definition": operation,
        "failure_class": failure_class,
        "after": after,
        "limit": limit,
    }
    show(ask(lambda doors: doors.get(_PATH, query)), json=json, as_text=_print_items)


@app.command("show")
def show_(item: Item, *, org: arguments.Org, json: arguments.Json = False) -> None:
    """Show one item with its version, its line of replays, and what was done to it."""
    document = ask(lambda doors: doors.get(f"{_PATH}/{item}", {"org": org}))
    show(document, json=json, as_text=print_item)


@app.command()
def replay(
    item: Item,
    *,
    org: arguments.Org,
    expected_version: ExpectedVersion,
    note: Note,
    json: arguments.Json = False,
) -> None:
    """Make an ended item anew; refused where anything of it is in doubt."""
    document = _act("replay", item, org, expected_version, note)
    show(document, json=json, as_text=_print_replayed)


@app.command()
def cancel(
    item: Item,
    *,
    org: arguments.Org,
    expected_version: ExpectedVersion,
    note: Note,
    json: arguments.Json = False,
) -> None:
    """End an item that nobody holds, or ask its holder to; never what may have been sent."""
    document = _act("cancel", item, org, expected_version, note)
    show(document, json=json, as_text=_print_cancelled)


@app.command()
def reclaim(
    item: Item,
    *,
    org: arguments.Org,
    expected_version: ExpectedVersion,
    note: Note,
    json: arguments.Json = False,
) -> None:
    """Take an item back from a holder whose lease has ended."""
    document = _act("reclaim", item, org, expected_version, note)
    show(document, json=json, as_text=_print_reclaimed)


def _act(act: str, item: UUID, org: str, expected_version: str, note: str) -> Document:
    body = {"org": org, "expected_version": expected_version, "note": note}
    return ask(lambda doors: doors.post(f"{_PATH}/{item}/{act}", body))


def print_item(document: Document) -> None:
    """An item, its line and the acts on it."""
    show_record("item", document["item"])
    if len(document["lineage"]) > 1:
        print_rows(
            "line of replays; 0 is this item",
            ("step", "work_id", "state", "failure_class", "attempt", "made_at"),
            document["lineage"],
        )
    if document["acts"]:
        print_rows("acts", ("at", "actor", "act", "subject_id", "note"), document["acts"])


def print_rows(title: str, columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
    """A table of some columns of these rows; Any, because each list has its own."""
    show_table(
        title,
        [column.replace("_", " ") for column in columns],
        [[row[column] for column in columns] for row in rows],
    )


def tell_next_page(document: Document) -> None:
    """How to ask for the rest, where there is one."""
    if document["next_after"] is not None:
        remark(f"there may be more: --after {document['next_after']}")


def _print_items(document: Document) -> None:
    print_rows(
        "Work",
        ("org_id", "work_id", "definition", "state", "standing", "run_after", "attempt"),
        document["rows"],
    )
    tell_next_page(document)


def _print_replayed(document: Document) -> None:
    say(f"{document['work_id']} is made anew as {document['new_work_id']}")


def _print_cancelled(document: Document) -> None:
    if document["is_cancelled"]:
        say(f"{document['work_id']} is cancelled")
    else:
        say(
            f"{document['work_id']} is asked to be cancelled; "
            f"its holder has until {document['lease_until']}"
        )


def _print_reclaimed(document: Document) -> None:
    if document["is_lost"]:
        say(
            f"the attempt of {document['work_id']} is lost and unknown; "
            f"{document['lookup_work_id']} looks it up"
        )
    else:
        say(f"{document['work_id']} can be claimed again")


app.command("pause")(pauses.pause)
app.command("resume")(pauses.resume)
app.command("pauses")(pauses.pauses)
