"""What the verbs that speak to the database begin with."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from os import getuid
from typing import TYPE_CHECKING

from oncefence.app.cli.screen import note
from oncefence.app.config import Settings
from oncefence.domain.errors import ConfigurationRefused
from oncefence.storage.engine import Store, is_store_away, make_engine, sqlstate
from oncefence.storage.phases.check_store import check_store

if TYPE_CHECKING:
    from oncefence.storage.sealing import KeyRing

ACTOR = f"cli:uid={getuid()}"
"""Who acts, in the audit rows of what is done from a command line."""

_REFUSED_LOGIN = ("28P01", "28000", "3D000")


def read_settings() -> Settings:
    """The settings of this process; a scaled clock is always said (C208)."""
    settings = Settings.from_environment()
    if settings.time_scale != 1:
        note(f"time runs at scale {settings.time_scale:g} (ONCEFENCE_TIME_SCALE)")
    return settings


@asynccontextmanager
async def opened_store(settings: Settings, ring: "KeyRing | None" = None) -> AsyncIterator[Store]:
    """
    An engine as the application's role on a store that is fit for it, and `ring` for the store.

    Raises:
        ConfigurationRefused: It is not, or nothing answers; the message says what to do.
    """
    engine = make_engine(settings.database_url, size=4)
    try:
        await check_store(engine, time_scale=settings.time_scale)
        if ring is not None:
            # Imported here: most verbs need no keys, and start sooner without them.
            from oncefence.storage.phases.check_keys import check_keys  # noqa: PLC0415

            await check_keys(engine, ring)
        yield engine
    finally:
        await engine.dispose()


@asynccontextmanager
async def opened_as_migrator(settings: Settings) -> AsyncIterator[Store]:
    """
    An engine as the migrator's role.

    Raises:
        ConfigurationRefused: Nothing answers there, or not to this role.
    """
    name = "ONCEFENCE_MIGRATOR_URL"
    engine = make_engine(settings.migrator_url, setting=name, size=1)
    try:
        yield engine
    except Exception as error:
        if sqlstate(error) in _REFUSED_LOGIN:
            raise ConfigurationRefused(
                setting=name,
                reason="PostgreSQL refuses this user, password or database name",
                remedy="Check the URL; the role is oncefence_migrator",
            ) from None
        if is_store_away(error):
            raise ConfigurationRefused(
                setting=name,
                reason=f"no PostgreSQL answers there ({type(error).__name__})",
                remedy="Start the server, or correct the URL, and run this again: a migration "
                "is done whole or not at all",
            ) from None
        raise
    finally:
        await engine.dispose()
