"""What a process checks once, before it does anything: role, schema, time scale, primary."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.errors import ConfigurationRefused, StoreUnavailable
from oncefence.storage.engine import is_store_away, refuse_wrong_role, sqlstate

DEVELOPMENT = text("SELECT is_development FROM oncefence.deployment")
REPLICA = text("SELECT pg_is_in_recovery()")


async def check_store(engine: AsyncEngine, *, time_scale: float) -> None:
    """
    Refuse to run on a store that could not keep the promise (C186, C208).

    Raises:
        ConfigurationRefused: Wrong role, wrong schema version, a scaled clock on a database that
            is not marked for development, or a replica; the message says what to do.
    """
    try:
        async with engine.connect() as connection:
            await refuse_wrong_role(connection)
            is_development = (await connection.execute(DEVELOPMENT)).scalar_one()
            is_replica = (await connection.execute(REPLICA)).scalar_one()
    except (StoreUnavailable, ConfigurationRefused):
        raise
    except Exception as error:
        state = sqlstate(error)
        if state in ("28P01", "28000", "3D000"):
            raise ConfigurationRefused(
                setting="ONCEFENCE_DATABASE_URL",
                reason="PostgreSQL refuses this user, password or database name",
                remedy="Check the URL; the role is oncefence_app",
            ) from None
        if is_store_away(error):
            raise ConfigurationRefused(
                setting="ONCEFENCE_DATABASE_URL",
                reason=f"no PostgreSQL answers there ({type(error).__name__})",
                remedy="Start the server, or correct the URL; `oncefence up` runs one of its own",
            ) from None
        raise
    if is_replica:
        raise ConfigurationRefused(
            setting="ONCEFENCE_DATABASE_URL",
            reason="this server is a replica, and fences are never read from one",
            remedy="Use the primary",
        )
    if time_scale != 1 and not is_development:
        raise ConfigurationRefused(
            setting="ONCEFENCE_TIME_SCALE",
            reason="time is scaled, and this database is not marked for development",
            remedy="Unset it, or use a database made by `oncefence migrate --development`",
        )
