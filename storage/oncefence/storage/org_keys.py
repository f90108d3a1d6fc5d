"""Sole writer of `org_keys`: the one key of each org, wrapped."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.storage.tables import org_keys

ADD = insert(org_keys).on_conflict_do_nothing()


async def add(connection: AsyncConnection, values: Mapping[str, Any]) -> None:
    """Add one row; one that is there already stays as it is."""
    await connection.execute(ADD, values)
