"""`oncefence views`: the read models of what waits, and what they say (C26)."""

from typing import Annotated, Final

import typer

from oncefence.app.cli import arguments
from oncefence.app.cli.operator_call import ExpectedVersion, Note, ask, org_or_all, show
from oncefence.app.cli.screen import say, show_table
from oncefence.app.operator_client import Document

app = typer.Typer(help="Read models of what waits; never a queue.", no_args_is_help=True)

_COLUMNS: Final = (
    "org",
    "family",
    "provider",
    "state",
    "depth",
    "due",
    "oldest_due_seconds",
    "oldest_seconds",
)

View = Annotated[
    str, typer.Argument(parser=arguments.name, metavar="VIEW", help="As `views list` names it.")
]


@app.command("list")
def list_(*, json: arguments.Json = False) -> None:
    """List the read models, with their versions and their age."""
    show(ask(lambda doors: doors.get("views")), json=json, as_text=_print_views)


@app.command()
def pressure(
    *,
    org: Annotated[
        str | None,
        typer.Option(parser=org_or_all, metavar="ORG", help="Of this org alone; else of all."),
    ] = None,
    json: arguments.Json = False,
) -> None:
    """Show how much waits and for how long, by org, family, provider and state."""
    document = ask(lambda doors: doors.get("pressure", {"org": org}))
    show(document, json=json, as_text=_print_pressure)


@app.command()
def rebuild(
    view: View,
    *,
    expected_version: ExpectedVersion,
    note: Note,
    json: arguments.Json = False,
) -> None:
    """Count a read model anew; nothing that runs waits for it."""
    _act(view, "rebuild", expected_version, note, json=json)


@app.command()
def drop(
    view: View,
    *,
    expected_version: ExpectedVersion,
    note: Note,
    json: arguments.Json = False,
) -> None:
    """Have no reading of a read model, until it is rebuilt."""
    _act(view, "drop", expected_version, note, json=json)


def _act(view: str, verb: str, expected_version: str, note: str, *, json: bool) -> None:
    body = {"expected_version": expected_version, "note": note}
    document = ask(lambda doors: doors.post(f"views/{view}/{verb}", body))
    show(document, json=json, as_text=lambda found: say(_told(found)))


def _told(view: Document) -> str:
    if not view["is_built"]:
        return f"{view['view']}: not built (version {view['version']})"
    return (
        f"{view['view']}: version {view['version']}, counted {view['age_seconds']:.0f} s ago, "
        f"at {view['source_time']}"
    )


def _print_views(document: Document) -> None:
    for view in document["views"]:
        say(_told(view))


def _print_pressure(document: Document) -> None:
    told = _told(document["reading"])
    if document["rows"] is None:
        say(told)
    else:
        rows = [[row[name] for name in _COLUMNS] for row in document["rows"]]
        show_table(told, _COLUMNS, rows)
