"""Bringing a database to the version that this code is written for."""

from importlib.resources import files
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.errors import ConfigurationRefused
from oncefence.storage.engine import OWNER_ROLE


def _upgrade(connection: Connection, is_development: bool) -> None:
    config = Config()
    config.set_main_option(
        "script_location", str(Path(str(files("oncefence.storage"))) / "migrations")
    )
    config.attributes["connection"] = connection
    # The owner cannot log in, so everything is made by the migrator acting as it.
    connection.execute(text(f"SET LOCAL ROLE {OWNER_ROLE}"))
    connection.execute(text("SET LOCAL search_path TO oncefence"))
    command.upgrade(config, "head")
    connection.execute(
        text(
            "INSERT INTO oncefence.deployment (is_development) VALUES (:is_development)"
            " ON CONFLICT DO NOTHING"
        ),
        {"is_development": is_development},
    )


async def migrate(engine: AsyncEngine, *, is_development: bool) -> str:
    """
    Bring the database to the newest version in one transaction; says which that is.

    `is_development` marks a *new* database as one where time may be scaled; an existing mark is
    never changed.

    Raises:
        ConfigurationRefused: The role may not act as the owner, or the schema is not there.
    """
    async with engine.begin() as connection:
        missing = (
            await connection.execute(
                text(
                    "SELECT to_regrole(:owner) IS NULL OR to_regrole('oncefence_app') IS NULL"
                    " OR NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'oncefence')"
                ),
                {"owner": OWNER_ROLE},
            )
        ).scalar_one()
        if missing:
            raise ConfigurationRefused(
                setting="ONCEFENCE_MIGRATOR_URL",
                reason="the roles or the schema of oncefence are not there yet",
                remedy="Have an administrator run the SQL of `oncefence migrate --print-roles`",
            )
        may = (
            await connection.execute(
                text("SELECT pg_has_role(current_user, :owner, 'MEMBER')"), {"owner": OWNER_ROLE}
            )
        ).scalar_one()
        if not may:
            raise ConfigurationRefused(
                setting="ONCEFENCE_MIGRATOR_URL",
                reason=f"this role may not act as {OWNER_ROLE}",
                remedy="Use the role oncefence_migrator",
            )
        await connection.run_sync(_upgrade, is_development)
        return str(
            (
                await connection.execute(text("SELECT version_num FROM oncefence.alembic_version"))
            ).scalar_one()
        )
