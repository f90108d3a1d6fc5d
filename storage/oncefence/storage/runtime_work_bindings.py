"""Sole writer of `runtime_work_bindings`: which Runtime may hand over work of which scope."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.storage.tables import runtime_work_bindings

ADD = insert(runtime_work_bindings)


async def add(connection: AsyncConnection, values: Mapping[str, Any]) -> None:
    """Add one row."""
    await connection.execute(ADD, values)
