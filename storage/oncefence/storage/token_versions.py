"""Sole writer of `token_versions`: sealed access tokens."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.storage.tables import token_versions

ADD = insert(token_versions)


async def add(connection: AsyncConnection, values: Mapping[str, Any]) -> None:
    """Add one row."""
    await connection.execute(ADD, values)
