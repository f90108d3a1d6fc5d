"""`oncefence breaker list|show|open|close`: who is left alone, and a person's word on it (C304)."""

from typing import Annotated, Final

import typer

from oncefence.app.cli import arguments
from oncefence.app.cli.operator_call import ExpectedVersion, Note, ask, show
from oncefence.app.cli.screen import note as remark
from oncefence.app.cli.screen import say, show_table
from oncefence.app.operator_client import Document
from oncefence.domain.breaker import OPEN_SECONDS_DEFAULT, OPEN_SECONDS_MAX, BreakerKey

_PATH: Final = "breakers"

app = typer.Typer(
    name="breaker",
    help="Providers and accounts that fail, and are left alone for a while.",
    no_args_is_help=True,
)


def _key(text: str) -> str:
    if BreakerKey.parse(text) is None:
        raise typer.BadParameter(
            "a breaker is called provider:PROVIDER:CLASS or binding:ORG:ID, as `breaker list` "
            "shows it"
        )
    return text


Key = Annotated[
    str,
    typer.Argument(metavar="KEY", parser=_key, help="provider:PROVIDER:CLASS or binding:ORG:ID."),
]
AnyOrg = Annotated[
    str | None, typer.Option("--org", parser=arguments.name, metavar="ORG", help="Whose it is.")
]


@app.command("list")
def list_breakers(
    *,
    org: AnyOrg = None,
    with_closed: Annotated[
        bool, typer.Option("--all", help="Also those that hold nothing back.")
    ] = False,
    json: arguments.Json = False,
) -> None:
    """List the breakers that hold something back."""
    query = {"org": org, "with_closed": "true" if with_closed else "false"}
    show(ask(lambda doors: doors.get(_PATH, query)), json=json, as_text=_print_list)


@app.command("show")
def show_breaker(key: Key, *, json: arguments.Json = False) -> None:
    """Show how one breaker stands."""
    show(ask(lambda doors: doors.get(f"{_PATH}/{key}")), json=json, as_text=_print_one)


@app.command("open")
def open_breaker(
    key: Key,
    *,
    seconds: Annotated[
        float,
        typer.Option(
            "--seconds",
            min=0.001,
            max=OPEN_SECONDS_MAX,
            help="For so long; then it is half-open, as after an opening of its own.",
        ),
    ] = OPEN_SECONDS_DEFAULT,
    expected_version: ExpectedVersion,
    note: Note,
    json: arguments.Json = False,
) -> None:
    """Hold back for a while what goes there; what is under way goes on to its end."""
    body = {"open_seconds": seconds, "expected_version": expected_version, "note": note}
    show(ask(lambda doors: doors.post(f"{_PATH}/{key}/open", body)), json=json, as_text=_print_act)


@app.command("close")
def close_breaker(
    key: Key, *, expected_version: ExpectedVersion, note: Note, json: arguments.Json = False
) -> None:
    """Let go at once what a breaker holds back."""
    body = {"expected_version": expected_version, "note": note}
    show(ask(lambda doors: doors.post(f"{_PATH}/{key}/close", body)), json=json, as_text=_print_act)


def _print_act(document: Document) -> None:
    row = document["breaker"]
    until = f" until {row['until']}" if row["until"] else ""
    say(f"{row['key']} is {row['state']}{until}, at version {row['version']}")
    if not document["is_new"]:
        remark(f"that was done before, at {row['changed_at']}")


def _print_one(document: Document) -> None:
    _print_list({"breakers": [document["breaker"]]})


def _print_list(document: Document) -> None:
    show_table(
        "Breakers",
        (
            "breaker",
            "provider",
            "state",
            "until",
            "opened at",
            "opens",
            "failures",
            "orgs failing",
            "orgs seen",
            "by",
            "note",
            "changed at",
            "version",
        ),
        [
            (
                row["key"],
                row["provider"],
                row["state"],
                row["until"],
                row["opened_at"],
                row["opens"],
                row["failures"],
                row["orgs_failing"],
                row["orgs_seen"],
                row["changed_by"],
                row["note"],
                row["changed_at"],
                row["version"],
            )
            for row in document["breakers"]
        ],
    )
