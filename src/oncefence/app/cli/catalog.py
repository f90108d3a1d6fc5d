"""`oncefence catalog`: packs and bindings checked, published, compared and made current."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from oncefence.app import interruptible
from oncefence.app.cli import arguments, catalog_revisions
from oncefence.app.cli.catalog_revisions import (
    ExpectedRevision,
    PackFolders,
    compiled,
    pack_folders,
)
from oncefence.app.cli.exits import ExitCode
from oncefence.app.cli.operator_call import note_text
from oncefence.app.cli.screen import note as remark
from oncefence.app.cli.screen import say, show_json
from oncefence.app.cli.store import ACTOR, opened_store, read_settings
from oncefence.catalog import loader
from oncefence.domain.ids import InstallationId, OrgId
from oncefence.storage.phases.publish_view import Publication, publish_view

app = typer.Typer(
    help="Packs and bindings: check, publish, list, compare and activate revisions.",
    no_args_is_help=True,
)


@app.command()
def check(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files and folders.")],
    *,
    pack_folder: PackFolders = None,
    json: arguments.Json = False,
) -> None:
    """List everything that is wrong or risky in pack and binding files."""
    report = loader.check(paths, pack_folders(read_settings(), pack_folder))
    if json:
        show_json(asdict(report) | {"is_sound": report.is_sound})
    else:
        for problem in report.errors:
            remark(f"error: {problem}")
        for problem in report.warnings:
            remark(f"warning: {problem}")
        say(
            f"{len(report.checked)} checked, {len(report.errors)} errors, "
            f"{len(report.warnings)} warnings"
        )
    if not report.is_sound:
        raise typer.Exit(ExitCode.USAGE)


@app.command()
def publish(
    file: Annotated[Path, typer.Argument(help="A binding file.")],
    *,
    org: arguments.Org,
    installation: arguments.Installation,
    activate: Annotated[
        bool, typer.Option("--activate", help="Accept new commands under it at once.")
    ] = False,
    expected_version: ExpectedRevision = None,
    note: Annotated[
        str | None,
        typer.Option("--note", parser=note_text, metavar="TEXT", help="Why; with --activate."),
    ] = None,
    pack_folder: PackFolders = None,
    json: arguments.Json = False,
) -> None:
    """
    Publish a binding as the next revision. The same content again publishes nothing.

    The first revision of a name is current at once. A later one waits until it is activated.
    """
    if note is not None and not activate:
        raise typer.BadParameter("give it together with --activate", param_hint="--note")
    settings = read_settings()
    view = compiled(settings, file, pack_folder)

    async def published() -> Publication:
        async with opened_store(settings) as engine:
            return await publish_view(
                engine,
                OrgId(org),
                InstallationId(installation),
                view,
                actor=ACTOR,
                activate=activate,
                note=note,
                expected_current=expected_version,
            )

    done = interruptible.run(published())
    if json:
        show_json(asdict(done) | {"is_current": done.is_current})
        return
    verb = "is published as" if done.is_new else "was published before and stays"
    stands = "is current" if done.is_current else f"waits: revision {done.current_revision} is"
    say(
        f"{done.name} {verb} revision {done.revision}, digest {done.digest}, and {stands}"
        + ("" if done.is_current else " current")
    )


catalog_revisions.add_to(app)
