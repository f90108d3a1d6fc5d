"""Sole writer of `remote_links`: which remote record stands for which local subject."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.storage.tables import remote_links

ADD = insert(remote_links)


async def add(connection: AsyncConnection, values: Mapping[str, Any]) -> None:
    """Add one row."""
    await connection.execute(ADD, values)
