"""`oncefence runtime`: the Runtimes that may hand work over."""

from pathlib import Path
from typing import Annotated

import typer

from oncefence.app import interruptible
from oncefence.app.cli import arguments
from oncefence.app.cli.screen import note, say, show_json
from oncefence.app.cli.store import ACTOR, opened_store, read_settings
from oncefence.app.config import Settings
from oncefence.app.signing_keys import read_public_key
from oncefence.catalog.canonical import canonical_json, text_digest
from oncefence.domain.handoff import TrustedRuntimeWorkScope
from oncefence.domain.ids import CapabilityId, InstallationId, OrgId, WorkBindingDigest
from oncefence.storage.phases.register_runtime import register_runtime
from oncefence.storage.sealing import KeyRing

app = typer.Typer(help="The Runtimes that may hand work over.", no_args_is_help=True)


@app.callback()
def runtime() -> None:
    """Keep the noun, although it has one verb so far."""


@app.command()
def register(
    *,
    org: arguments.Org,
    installation: arguments.Installation,
    capability: Annotated[
        str,
        typer.Option(parser=arguments.name, metavar="NAME", help="Runtime capability."),
    ],
    work_binding_digest: Annotated[
        str | None,
        typer.Option(
            parser=arguments.digest,
            metavar="HEX",
            help="Digest of the work binding; by default one of the other three names.",
        ),
    ] = None,
    public_key_file: Annotated[
        Path | None,
        typer.Option(
            metavar="F",
            help="PEM file of the Ed25519 public key under which it hands over through Temporal.",
        ),
    ] = None,
    json: arguments.Json = False,
) -> None:
    """Register a work binding and print its credential, this once."""
    scope = TrustedRuntimeWorkScope(
        org=OrgId(org),
        installation=InstallationId(installation),
        capability=CapabilityId(capability),
        work_binding_digest=WorkBindingDigest(
            work_binding_digest or default_digest(org, installation, capability)
        ),
    )
    public_key = None if public_key_file is None else read_public_key(public_key_file)
    credential = interruptible.run(_register(read_settings(), scope, public_key))
    if json:
        show_json(
            {
                "credential": credential,
                "org": scope.org,
                "installation": scope.installation,
                "capability": scope.capability,
                "work_binding_digest": scope.work_binding_digest,
            }
        )
        return
    say(credential)
    note("this credential is stored nowhere and not shown again; set ONCEFENCE_CREDENTIAL to it")


def default_digest(org: str, installation: str, capability: str) -> str:
    """The digest of a work binding that says nothing more than its three names."""
    names = {"capability": capability, "installation": installation, "org": org}
    return text_digest(canonical_json(names))


async def _register(
    settings: Settings, scope: TrustedRuntimeWorkScope, public_key: bytes | None
) -> str:
    ring = KeyRing.load(settings.key_file)
    async with opened_store(settings, ring) as engine:
        return await register_runtime(engine, ring, scope, actor=ACTOR, public_key=public_key)
