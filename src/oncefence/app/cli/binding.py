"""`oncefence binding`: the accounts at providers in whose name changes are made."""

import asyncio
import os
from pathlib import Path
from typing import Annotated, Final

import typer

from oncefence.activities.target import TargetPolicy, TargetRefusal, check_target
from oncefence.app.cli import arguments
from oncefence.app.cli.screen import say
from oncefence.app.cli.store import ACTOR, opened_store, read_settings
from oncefence.app.config import Settings
from oncefence.catalog.loader import load_pack
from oncefence.domain.errors import ConfigurationRefused
from oncefence.domain.ids import OrgId
from oncefence.domain.redaction import Secret
from oncefence.storage.phases.add_principal_binding import add_principal_binding
from oncefence.storage.sealing import KeyRing

app = typer.Typer(
    help="The accounts at providers that changes are made with.", no_args_is_help=True
)

_TOKEN_BYTES_MAX: Final = 16_384
_OPEN_TO_OTHERS: Final = 0o077
_SETTING: Final = "--token-file"


@app.callback()
def binding() -> None:
    """Keep the noun, although it has one verb so far."""


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
    binding_id = asyncio.run(
        _add(settings, OrgId(org), name, pack.name, origin, is_local=local, token=token)
    )
    say(f"{name} is principal binding {binding_id}, at {origin}")


def check_origin(url: str, *, is_local: bool, setting: str = "--base-url") -> str:
    """
    The URL as it is stored, by the same rule that every request is checked with.

    Raises:
        ConfigurationRefused: No request could ever be sent there.
    """
    checked = check_target(url, "/", TargetPolicy(is_local=is_local))
    if isinstance(checked, TargetRefusal):
        reason, remedy = {
            TargetRefusal.PLAIN_HTTP: (
                "plain http is for local bindings",
                "Give an https:// URL, or say --local",
            )
        }.get(
            checked,
            ("this is no origin", "Give scheme, host and perhaps port, and nothing after them"),
        )
        raise ConfigurationRefused(setting=setting, reason=reason, remedy=remedy)
    return url.rstrip("/")


def read_token(path: Path) -> Secret:
    """
    The token in a file that its owner alone can read, without one newline at its end.

    Raises:
        ConfigurationRefused: There is no such file, others may read it, or it holds no token.
    """
    try:
        # Asked of the open file, so that it is the same one that is read.
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(_TOKEN_BYTES_MAX + 1)
    except OSError as error:
        raise _no_token(
            path, f"cannot be read ({error.strerror})", "Name a readable file"
        ) from None
    if mode & _OPEN_TO_OTHERS:
        raise _no_token(path, "can be read by others than its owner", f"chmod 600 {path}")
    token = content.removesuffix(b"\n").removesuffix(b"\r")
    if not token:
        raise _no_token(path, "is empty", "Write the token into it")
    if len(content) > _TOKEN_BYTES_MAX:
        raise _no_token(
            path, f"has more than {_TOKEN_BYTES_MAX} bytes", "Name the file of the token alone"
        )
    if not all(0x21 <= byte <= 0x7E for byte in token):
        raise _no_token(
            path,
            "holds blanks, line ends or characters beyond ASCII, which no token has",
            "Write the token alone into it, on one line",
        )
    return Secret(token.decode("ascii"))


def _no_token(path: Path, reason: str, remedy: str) -> ConfigurationRefused:
    return ConfigurationRefused(setting=_SETTING, reason=f"{path} {reason}", remedy=remedy)


async def _add(
    settings: Settings,
    org: OrgId,
    name: str,
    provider: str,
    base_url: str,
    *,
    is_local: bool,
    token: Secret,
) -> str:
    ring = KeyRing.load(settings.key_file)
    async with opened_store(settings) as engine:
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
        )
    return str(added)
