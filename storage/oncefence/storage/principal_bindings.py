"""Sole writer of `principal_bindings`: in whose name requests are sent, and to which host."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.storage.tables import principal_bindings

ADD = insert(principal_bindings)


async def add(connection: AsyncConnection, values: Mapping[str, Any]) -> None:
    """Add one row."""
    await connection.execute(ADD, values)
