"""Sole writer of `staged_payloads`: staged payloads put before their handoff, each under a key of its own."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.storage.tables import staged_payloads

ADD = insert(staged_payloads).on_conflict_do_nothing()


async def add(connection: AsyncConnection, values: Mapping[str, Any]) -> None:
    """Add one row; one that is there already stays as it is."""
    await connection.execute(ADD, values)
