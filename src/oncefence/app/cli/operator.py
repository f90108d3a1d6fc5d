"""
`oncefence operator`: who may act on what runs (C407).

Through the doors, as an administrator; or with `--in-database`, as whoever holds the database
setting, which is how the first administrator is made and how a lost token is replaced.
"""

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from oncefence.app import interruptible
from oncefence.app.cli import arguments
from oncefence.app.cli.operator_call import ExpectedVersion, Note, ask, show
from oncefence.app.cli.screen import note as remark
from oncefence.app.cli.screen import say, show_table
from oncefence.app.cli.store import ACTOR, opened_store, read_settings
from oncefence.app.operator_client import Document
from oncefence.app.roster_messages import (
    OperatorAdded,
    OperatorRevoked,
    OperatorRow,
    OperatorRows,
)
from oncefence.domain.ids import OrgId
from oncefence.domain.operator import EVERY_ORG, Role, is_operator_name
from oncefence.storage.phases.add_operator import add_operator
from oncefence.storage.phases.list_operators import list_operators
from oncefence.storage.phases.revoke_operator import revoke_operator

app = typer.Typer(help="Who may act on what runs.", no_args_is_help=True)


def _name(text: str) -> str:
    if not is_operator_name(text):
        raise typer.BadParameter(
            "use 1 to 63 of a-z, 0-9, '.', _ and -, beginning with a letter or a digit"
        )
    return text


Name = Annotated[str, typer.Argument(parser=_name, metavar="NAME", help="Whose token it is.")]
InDatabase = Annotated[
    bool,
    typer.Option(
        "--in-database",
        help="Act on ONCEFENCE_DATABASE_URL itself, without doors and without an operator.",
    ),
]
_PATH: Final = "operators"


@app.command()
def add(
    name: Name,
    *,
    role: Annotated[list[Role], typer.Option("--role", help="May be given several times.")],
    note: Note,
    org: Annotated[
        list[str] | None,
        typer.Option(
            "--org", parser=arguments.name, metavar="ORG", help="May be given several times."
        ),
    ] = None,
    all_orgs: Annotated[
        bool, typer.Option("--all-orgs", help="Every org there is and will be.")
    ] = False,
    in_database: InDatabase = False,
    json: arguments.Json = False,
) -> None:
    """Make an operator and print the token, this once."""
    if bool(org) == all_orgs:
        raise typer.BadParameter("give either --org, once for each org, or --all-orgs")
    orgs = [EVERY_ORG] if all_orgs else sorted({OrgId(each) for each in org or ()})
    roles = sorted(set(role))
    if in_database:
        document = interruptible.run(_add(name, roles, orgs, note))
    else:
        body = {"name": name, "roles": roles, "orgs": orgs, "note": note}
        document = ask(lambda doors: doors.post(_PATH, body))
    show(document, json=json, as_text=_print_token)


@app.command("list")
def list_(
    *,
    revoked: Annotated[bool, typer.Option("--revoked", help="With those that are.")] = False,
    in_database: InDatabase = False,
    json: arguments.Json = False,
) -> None:
    """List the operators whose orgs are all within one's own."""
    if in_database:
        document = interruptible.run(_list(revoked))
    else:
        query = {"with_revoked": "true" if revoked else "false"}
        document = ask(lambda doors: doors.get(_PATH, query))
    show(document, json=json, as_text=_print_operators)


@app.command()
def revoke(
    name: Name,
    *,
    expected_version: ExpectedVersion,
    note: Note,
    in_database: InDatabase = False,
    json: arguments.Json = False,
) -> None:
    """End an operator's token at once; `operator list` shows the version."""
    if in_database:
        document = interruptible.run(_revoke(name, expected_version, note))
    else:
        body = {"expected_version": expected_version, "note": note}
        document = ask(lambda doors: doors.post(f"{_PATH}/{name}/revoke", body))
    show(document, json=json, as_text=lambda _: say(f"{name} is revoked"))


async def _add(name: str, roles: Sequence[Role], orgs: Sequence[OrgId], note: str) -> Document:
    async with opened_store(read_settings()) as engine:
        added = await add_operator(
            engine,
            name=name,
            roles=frozenset(roles),
            orgs=frozenset(orgs),
            actor=ACTOR,
            note=note,
        )
    message = OperatorAdded(name=name, operator_id=added.operator, token=added.token.reveal())
    return message.model_dump(mode="json")


async def _list(with_revoked: bool) -> Document:
    async with opened_store(read_settings()) as engine:
        found = await list_operators(engine, with_revoked=with_revoked)
    rows = OperatorRows(operators=[OperatorRow.of(each) for each in found])
    return rows.model_dump(mode="json")


async def _revoke(name: str, expected_version: str, note: str) -> Document:
    async with opened_store(read_settings()) as engine:
        revoked = await revoke_operator(
            engine, name=name, expected_version=expected_version, actor=ACTOR, note=note
        )
    return OperatorRevoked(name=name, operator_id=revoked).model_dump(mode="json")


def _print_token(document: Document) -> None:
    say(document["token"])
    remark("this token is stored nowhere and not shown again; set ONCEFENCE_OPERATOR_TOKEN to it")


def _print_operators(document: Document) -> None:
    show_table(
        "Operators",
        ("name", "roles", "orgs", "made at", "revoked at", "version"),
        [
            (
                row["name"],
                ", ".join(row["roles"]),
                ", ".join(row["orgs"]),
                row["made_at"],
                row["revoked_at"],
                row["version"],
            )
            for row in document["operators"]
        ],
    )
