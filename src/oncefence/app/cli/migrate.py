"""`oncefence migrate`: the schema, and what has to be there before it."""

from pathlib import Path
from typing import Annotated

import typer

from oncefence.app import interruptible
from oncefence.app.cli.screen import note, say
from oncefence.app.cli.store import opened_as_migrator, read_settings
from oncefence.domain.errors import ConfigurationRefused
from oncefence.storage.sealing import KeyRing
from oncefence.storage.sql_files import sql_file


def migrate(
    *,
    development: Annotated[
        bool,
        typer.Option("--development", help="Mark a new database as one where time may be scaled."),
    ] = False,
    print_roles: Annotated[
        bool,
        typer.Option("--print-roles", help="Print the SQL that makes roles and schema; stop."),
    ] = False,
    make_key_file: Annotated[
        Path | None,
        typer.Option("--make-key-file", help="Make a new key file there; stop."),
    ] = None,
) -> None:
    """Bring the database of ONCEFENCE_MIGRATOR_URL to this program's version."""
    if print_roles:
        for line in sql_file("roles").splitlines():
            say(line)
    if make_key_file is not None:
        _make_key_file(make_key_file)
    if print_roles or make_key_file is not None:
        note("nothing was migrated; run `oncefence migrate` without these options for that")
        return
    version = interruptible.run(_migrate(development))
    say(f"the schema is at version {version}")


async def _migrate(is_development: bool) -> str:
    # Imported here: only this verb needs Alembic, which takes as long to load as all the rest.
    from oncefence.storage.phases import migrate_schema  # noqa: PLC0415

    async with opened_as_migrator(read_settings()) as engine:
        return await migrate_schema.migrate(engine, is_development=is_development)


def _make_key_file(path: Path) -> None:
    try:
        KeyRing.make_file(path)
    except FileExistsError:
        raise ConfigurationRefused(
            setting="--make-key-file",
            reason=f"{path} is there already, and another key could not open what it sealed",
            remedy="Use that file, or name a new one",
        ) from None
    except OSError as error:
        raise ConfigurationRefused(
            setting="--make-key-file",
            reason=f"{path} cannot be made ({error.strerror})",
            remedy="Name a file in a folder that can be written",
        ) from None
    say(f"{path} holds a new key; set ONCEFENCE_KEY_FILE to it and keep a copy safe")
