"""Sole writer of `operators`: whose token is whose, and which of them are revoked."""

import hashlib
from collections.abc import Mapping
from typing import Any

from sqlalchemy import bindparam, func, insert, update
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.domain.ids import OperatorId
from oncefence.domain.redaction import Secret
from oncefence.storage.tables import operators

ADD = insert(operators)
# The WHERE names the operator and not its name: a name is free again once it is revoked.
REVOKE = (
    update(operators)
    .where(operators.c.operator_id == bindparam("operator"), operators.c.revoked_at.is_(None))
    .values(revoked_at=func.clock_timestamp())
    .returning(operators.c.revoked_at)
)


def token_hash(token: Secret) -> bytes:
    """The stored form; a token has 256 random bits, so a plain hash cannot be guessed."""
    return hashlib.sha256(token.reveal().encode("utf-8", "surrogateescape")).digest()


async def add(connection: AsyncConnection, values: Mapping[str, Any]) -> None:
    """Add one live operator."""
    await connection.execute(ADD, values)


async def revoke(connection: AsyncConnection, operator: OperatorId) -> bool:
    """Whether the operator was live until now; its token ends with this transaction."""
    row = (await connection.execute(REVOKE, {"operator": operator})).one_or_none()
    return row is not None
