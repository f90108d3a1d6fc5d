"""`oncefence quota list|show`: how much of each limit is used, and what is closed (C300)."""

from typing import Annotated, Final

import typer

from oncefence.app.cli import arguments
from oncefence.app.cli.operator_call import ask, show
from oncefence.app.cli.screen import show_record, show_table
from oncefence.app.operator_client import Document

_PATH: Final = "quota"

app = typer.Typer(
    name="quota",
    help="What providers count: how much is used, and what is closed until when.",
    no_args_is_help=True,
)

AnyOrg = Annotated[
    str | None, typer.Option("--org", parser=arguments.name, metavar="ORG", help="Whose it is.")
]


@app.command("list")
def list_quota(
    *,
    org: AnyOrg = None,
    with_idle: Annotated[
        bool, typer.Option("--all", help="Also those of which nothing is used.")
    ] = False,
    json: arguments.Json = False,
) -> None:
    """List what is closed, and what is used of which limit."""
    query = {"org": org, "with_idle": "true" if with_idle else "false"}
    show(ask(lambda doors: doors.get(_PATH, query)), json=json, as_text=_print_list)


@app.command("show")
def show_quota(
    key: Annotated[str, typer.Argument(metavar="KEY", help="As `quota list` shows it.")],
    *,
    json: arguments.Json = False,
) -> None:
    """Show one count."""
    document = ask(lambda doors: doors.get(_PATH, {"key": key}))
    if not document["counts"]:
        raise typer.BadParameter(
            "there is no such count of yours; see them with `oncefence quota list --all`",
            param_hint="KEY",
        )
    show(document["counts"][0], json=json, as_text=lambda row: show_record("Quota", row))


def _print_list(document: Document) -> None:
    show_table(
        "Quota",
        ("key", "used", "limit", "told limit", "window", "closed until", "because"),
        [
            (
                row["key"],
                row["used"],
                row["limit"],
                row["told_limit"],
                f"{row['window']} {row['window_seconds']} s" if row["window"] else None,
                row["closed_until"],
                row["closed_because"],
            )
            for row in document["counts"]
        ],
    )
