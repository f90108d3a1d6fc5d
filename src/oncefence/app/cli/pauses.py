"""`oncefence work pause|resume|pauses`: holding back what runs, and letting it go (C57)."""

from typing import Annotated, Final
from uuid import UUID

import typer

from oncefence.app.cli import arguments
from oncefence.app.cli.operator_call import ExpectedVersion, Note, ask, show
from oncefence.app.cli.screen import note as remark
from oncefence.app.cli.screen import say, show_table
from oncefence.app.operator_client import Document
from oncefence.domain.operator import EVERY_ORG
from oncefence.domain.pause import RAMP_SECONDS_DEFAULT, RAMP_SECONDS_MAX

_PATH: Final = "pauses"

AnyOrg = Annotated[
    str | None, typer.Option("--org", parser=arguments.name, metavar="ORG", help="Whose it is.")
]
AllOrgs = Annotated[bool, typer.Option("--all-orgs", help="Every org's.")]


def pause(
    *,
    org: AnyOrg = None,
    all_orgs: AllOrgs = False,
    provider: Annotated[str | None, typer.Option(help="What goes to this provider.")] = None,
    operation: Annotated[str | None, typer.Option(help="This operation.")] = None,
    binding: Annotated[
        UUID | None, typer.Option(metavar="ID", help="What goes through this account.")
    ] = None,
    note: Note,
    json: arguments.Json = False,
) -> None:
    """Hold back whatever fits all that is named; what is under way goes on to its end."""
    body = {
        "org": _org(org, all_orgs),
        "provider": provider,
        "operation": operation,
        "binding_id": None if binding is None else str(binding),
        "note": note,
    }
    show(ask(lambda doors: doors.post(_PATH, body)), json=json, as_text=_print_pause)


def resume(
    pause_id: Annotated[UUID, typer.Argument(metavar="PAUSE", help="As `work pauses` shows it.")],
    *,
    org: AnyOrg = None,
    all_orgs: AllOrgs = False,
    ramp_seconds: Annotated[
        float,
        typer.Option(
            "--ramp",
            min=0,
            max=RAMP_SECONDS_MAX,
            help="Seconds from one at once to all of them; 0 is all of them now.",
        ),
    ] = RAMP_SECONDS_DEFAULT,
    expected_version: ExpectedVersion,
    note: Note,
    json: arguments.Json = False,
) -> None:
    """Let go what a pause holds, at once or slowly."""
    body = {
        "org": _org(org, all_orgs),
        "ramp_seconds": ramp_seconds,
        "expected_version": expected_version,
        "note": note,
    }
    document = ask(lambda doors: doors.post(f"{_PATH}/{pause_id}/resume", body))
    show(document, json=json, as_text=_print_resumed)


def pauses(
    *,
    org: AnyOrg = None,
    ended: Annotated[bool, typer.Option("--ended", help="With those that are over.")] = False,
    json: arguments.Json = False,
) -> None:
    """List what is held back, by which pause, and how many items each holds."""
    query = {"org": org, "with_ended": "true" if ended else "false"}
    show(ask(lambda doors: doors.get(_PATH, query)), json=json, as_text=_print_pauses)


def _org(org: str | None, all_orgs: bool) -> str:
    if (org is None) != all_orgs:
        raise typer.BadParameter("give either --org or --all-orgs")
    return org or EVERY_ORG


def _print_pause(document: Document) -> None:
    say(document["pause"]["pause_id"])
    if not document["is_new"]:
        row = document["pause"]
        remark(f"this was paused before, by {row['paused_by']} at {row['paused_at']}")


def _print_resumed(document: Document) -> None:
    row = document["pause"]
    slowly = f", within {row['ramp_seconds']:g} s" if row["ramp_seconds"] else ""
    say(f"{row['pause_id']} is over{slowly}")


def _print_pauses(document: Document) -> None:
    show_table(
        "Pauses",
        (
            "pause",
            "org",
            "provider",
            "operation",
            "binding",
            "items",
            "oldest due",
            "paused by",
            "note",
            "paused at",
            "resumed at",
            "version",
        ),
        [
            (
                row["pause_id"],
                row["org"],
                row["provider"],
                row["operation"],
                row["binding_id"],
                row["items"],
                row["oldest_due_at"],
                row["paused_by"],
                row["note"],
                row["paused_at"],
                row["resumed_at"],
                row["version"],
            )
            for row in document["pauses"]
        ],
    )
