"""`oncefence app`: what we are to providers, so that accounts can be connected."""

from pathlib import Path
from typing import Annotated

import typer

from oncefence.activities.app_assertion import app_key
from oncefence.app import interruptible
from oncefence.app.cli import arguments
from oncefence.app.cli.operator_call import Note
from oncefence.app.cli.screen import note as remark
from oncefence.app.cli.screen import say, show_json, show_table
from oncefence.app.cli.secret_file import read_secret
from oncefence.app.cli.store import ACTOR, opened_store, read_settings
from oncefence.catalog.grants import Grant
from oncefence.catalog.loader import load_pack
from oncefence.domain.authorization import Flow
from oncefence.domain.errors import NoSuchTarget
from oncefence.domain.ids import OrgId
from oncefence.domain.operator import EVERY_ORG
from oncefence.storage.phases.add_provider_app import add_provider_app
from oncefence.storage.phases.list_provider_apps import list_provider_apps
from oncefence.storage.sealing import KeyRing

app = typer.Typer(help="What we are to providers: apps and their secrets.", no_args_is_help=True)

_CLIENT_LENGTH_MAX = 200


def _client(text: str) -> str:
    if not 0 < len(text) <= _CLIENT_LENGTH_MAX or not all("!" <= sign <= "~" for sign in text):
        raise typer.BadParameter(f"use 1 to {_CLIENT_LENGTH_MAX} printable characters, no blanks")
    return text


@app.command()
def add(
    *,
    org: Annotated[
        str | None,
        typer.Option("--org", parser=arguments.name, metavar="ORG", help="Whose app it is."),
    ] = None,
    all_orgs: Annotated[
        bool, typer.Option("--all-orgs", help="Of every org that has none of its own.")
    ] = False,
    provider: Annotated[
        str, typer.Option(parser=arguments.name, metavar="PACK", help="Name of its pack.")
    ],
    grant: Annotated[str, typer.Option(metavar="GRANT", help="As the pack names it.")],
    client_id: Annotated[
        str,
        typer.Option(parser=_client, metavar="ID", help="As the provider calls the app."),
    ],
    secret_file: Annotated[
        Path,
        typer.Option(
            help="File with the client's secret, or the app's RSA key in PEM; its owner's alone."
        ),
    ],
    note: Note,
) -> None:
    """Make an app known, or exchange the secret of one that is."""
    if (org is None) != all_orgs:
        raise typer.BadParameter("give either --org or --all-orgs")
    settings = read_settings()
    declared = load_pack(provider, settings.pack_folders).grants.get(grant)
    flow = _flow(provider, grant, declared)
    secret = read_secret(secret_file, setting="--secret-file", is_text=flow is Flow.MINT)
    if flow is Flow.MINT:
        app_key(secret)
    of_org = EVERY_ORG if org is None else OrgId(org)

    async def store() -> str:
        ring = KeyRing.load(settings.key_file)
        async with opened_store(settings, ring) as engine:
            added = await add_provider_app(
                engine,
                ring,
                of_org,
                provider=provider,
                pack_grant=grant,
                flow=flow,
                client_id=client_id,
                secret=secret,
                actor=ACTOR,
                note=note,
            )
        if added.replaced is not None:
            remark("the secret of this client was exchanged; the one before is not used any more")
        return str(added.app)

    say(interruptible.run(store()))


@app.command("list")
def list_(
    *,
    org: Annotated[
        str | None,
        typer.Option("--org", parser=arguments.name, metavar="ORG", help="Else of all."),
    ] = None,
    json: arguments.Json = False,
) -> None:
    """List the apps; of several of one grant the newest connects accounts."""
    settings = read_settings()

    async def read() -> list[dict[str, object]]:
        async with opened_store(settings) as engine:
            found = await list_provider_apps(engine, None if org is None else OrgId(org))
        return [
            {
                "org": each.org,
                "app_id": each.app,
                "provider": each.provider,
                "grant": each.pack_grant,
                "flow": each.flow,
                "client_id": each.client_id,
                "made_by": each.made_by,
                "note": each.note,
                "made_at": each.made_at,
                "key_id": each.key_id,
            }
            for each in found
        ]

    rows = interruptible.run(read())
    if json:
        show_json({"apps": rows})
        return
    columns = ("org", "provider", "grant", "flow", "client_id", "made_by", "note", "made_at")
    show_table("Apps", columns, [[row[column] for column in columns] for row in rows])


def _flow(provider: str, name: str, grant: Grant | None) -> Flow:
    if grant is not None and grant.oauth2 is not None:
        return Flow.OAUTH2
    if grant is not None and grant.mint is not None:
        return Flow.MINT
    raise NoSuchTarget(
        kind=f"grant of {provider} that needs an app",
        name=name,
        remedy="name one that the pack declares with oauth2 or mint",
    )
