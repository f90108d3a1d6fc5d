"""`oncefence show`: was it sent? One page about one command (C408)."""

from typing import Annotated, Final

import typer

from oncefence.app import interruptible
from oncefence.app.cli import arguments
from oncefence.app.cli.screen import show_json, show_record, show_table
from oncefence.app.cli.store import opened_store, read_settings
from oncefence.app.config import Settings
from oncefence.domain.ids import OrgId
from oncefence.storage.phases.read_command import CommandPage, read_command

_RECORDS: Final = ("handoff", "command", "execution", "link", "binding")
_TITLES: Final = {
    "items": "WorkItems",
    "attempts": "attempts on the wire",
    "evidence": "late evidence",
    "conflicts": "conflicting handoffs",
    "audit": "acts on what it stands on",
}


def show(
    command: Annotated[
        str,
        typer.Argument(help="Id of a command, execution, item or attempt, or a handoff key."),
    ],
    *,
    org: Annotated[
        str | None,
        typer.Option(parser=arguments.name, metavar="ORG", help="Where several orgs have one."),
    ] = None,
    json: arguments.Json = False,
) -> None:
    """Show everything that happened to one command; no payload and no secret."""
    page = interruptible.run(_read(read_settings(), command, None if org is None else OrgId(org)))
    if json:
        show_json({"org": page.org, "command_id": page.command} | dict(page.sections))
        return
    for section, rows in page.sections.items():
        title = _TITLES.get(section, section)
        if section in _RECORDS:
            for row in rows:
                show_record(title, row)
        elif rows:
            # What no row of the section has is no column of it.
            columns = [name for name in rows[0] if any(row[name] is not None for row in rows)]
            if len(columns) > 6:
                for number, row in enumerate(rows, start=1):
                    show_record(f"{title} {number} of {len(rows)}", row)
            else:
                show_table(title, columns, [[row[name] for name in columns] for row in rows])
        else:
            show_record(f"{title}: none", {})


async def _read(settings: Settings, command: str, org: OrgId | None) -> CommandPage:
    async with opened_store(settings) as engine:
        return await read_command(engine, command, org=org)
