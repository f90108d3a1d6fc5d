"""`oncefence binding`: the accounts at providers in whose name changes are made."""

from pathlib import Path
from typing import Annotated

import typer

from oncefence.app import interruptible
from oncefence.app.cli import arguments, connections
from oncefence.app.cli.screen import say
from oncefence.app.cli.secret_file import read_secret
from oncefence.app.cli.store import ACTOR, opened_store, read_settings
from oncefence.app.config import Settings
from oncefence.app.origin import check_origin
from oncefence.catalog.loader import load_pack
from oncefence.domain.ids import OrgId
from oncefence.domain.redaction import Secret
from oncefence.storage.phases.add_principal_binding import add_principal_binding
from oncefence.storage.sealing import KeyRing

app = typer.Typer(
    help="The accounts at providers that changes are made with.", no_args_is_help=True
)

app.command()(connections.connect)
app.command()(connections.reauthorize)
app.command("list")(connections.list_)
app.command("show")(connections.show_)
app.command()(connections.disconnect)
app.command()(connections.rebind)


@app.command()
def add(
    *,
    org: arguments.Org,
    name: Annotated[
        str,
        typer.Option(
            parser=arguments.name, metavar="NAME", help="As `principal` in a binding file."
        ),
    ],
    provider: Annotated[
        str, typer.Option(parser=arguments.name, metavar="PACK", help="Name of its pack.")
    ],
    token_file: Annotated[
        Path, typer.Option(help="File with the token; its owner's alone (chmod 600).")
    ],
    user: arguments.User = None,
    base_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Another origin than the pack's.")
    ] = None,
    local: Annotated[
        bool,
        typer.Option("--local", help="Permit http:// and addresses that are not public."),
    ] = False,
) -> None:
    """Add an account: its first generation with a sealed static token."""
    settings = read_settings()
    pack = load_pack(provider, settings.pack_folders)
    origin = check_origin(base_url or pack.base_url, is_local=local)
    token = read_token(token_file)
    binding_id = interruptible.run(
        _add(settings, OrgId(org), name, pack.name, origin, is_local=local, token=token, user=user)
    )
    say(f"{name} is principal binding {binding_id}, at {origin}")


def read_token(path: Path) -> Secret:
    """
    The token in a file that its owner alone can read, without one newline at its end.

    Raises:
        ConfigurationRefused: There is no such file, others may read it, or it holds no token.
    """
    return read_secret(path, setting="--token-file")


async def _add(
    settings: Settings,
    org: OrgId,
    name: str,
    provider: str,
    base_url: str,
    *,
    is_local: bool,
    token: Secret,
    user: str | None,
) -> str:
    ring = KeyRing.load(settings.key_file)
    async with opened_store(settings, ring) as engine:
        added = await add_principal_binding(
            engine,
            ring,
            org,
            name=name,
            provider=provider,
            base_url=base_url,
            is_local=is_local,
            token=token,
            actor=ACTOR,
            user=user,
        )
    return str(added)
