"""`oncefence catalog`: packs and bindings, checked and published."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from oncefence.app.cli import arguments
from oncefence.app.cli.exits import ExitCode
from oncefence.app.cli.screen import note, say
from oncefence.app.cli.store import ACTOR, opened_store, read_settings
from oncefence.app.config import Settings
from oncefence.catalog import loader
from oncefence.catalog.view import IntegrationBindingView, compile_view
from oncefence.domain.ids import InstallationId, OrgId
from oncefence.storage.phases.publish_view import Publication, publish_view

app = typer.Typer(help="Packs and bindings, checked and published.", no_args_is_help=True)

PackFolders = Annotated[
    list[Path] | None,
    typer.Option("--pack-folder", help="Where packs are looked for first; may be repeated."),
]


@app.command()
def check(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files and folders.")],
    *,
    pack_folder: PackFolders = None,
) -> None:
    """List everything that is wrong or risky in pack and binding files."""
    report = loader.check(paths, _folders(read_settings(), pack_folder))
    for problem in report.errors:
        note(f"error: {problem}")
    for problem in report.warnings:
        note(f"warning: {problem}")
    say(
        f"{len(report.checked)} checked, {len(report.errors)} errors, "
        f"{len(report.warnings)} warnings"
    )
    if not report.is_sound:
        raise typer.Exit(ExitCode.REFUSED)


@app.command()
def publish(
    file: Annotated[Path, typer.Argument(help="A binding file.")],
    *,
    org: arguments.Org,
    installation: arguments.Installation,
    pack_folder: PackFolders = None,
) -> None:
    """Publish a binding as the next revision. The same content again publishes nothing."""
    settings = read_settings()
    binding = loader.load_binding(file)
    pack = loader.load_pack(binding.pack, _folders(settings, pack_folder))
    view = compile_view(pack, binding)
    done = asyncio.run(_publish(settings, OrgId(org), InstallationId(installation), view))
    verb = "is published as" if done.is_new else "was published before and stays"
    say(f"{done.name} {verb} revision {done.revision}, digest {done.digest}")


def _folders(settings: Settings, given: list[Path] | None) -> tuple[Path, ...]:
    return (*(given or ()), *settings.pack_folders)


async def _publish(
    settings: Settings, org: OrgId, installation: InstallationId, view: IntegrationBindingView
) -> Publication:
    async with opened_store(settings) as engine:
        return await publish_view(engine, org, installation, view, actor=ACTOR)
