"""Sole writer of `binding_generations`: the authority that commands pin."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.storage.tables import binding_generations

ADD = insert(binding_generations)


async def add(connection: AsyncConnection, values: Mapping[str, Any]) -> None:
    """Add one row."""
    await connection.execute(ADD, values)
