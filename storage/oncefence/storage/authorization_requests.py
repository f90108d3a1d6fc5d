"""Sole writer of `authorization_requests`: who asked to connect an account, and what came of it."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Result, Row, bindparam, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.domain.ids import OrgId
from oncefence.storage.tables import authorization_requests

_OF_REQUEST = (
    authorization_requests.c.org_id == bindparam("of_org"),
    authorization_requests.c.request_id == bindparam("of_request"),
)
ADD = insert(authorization_requests).returning(authorization_requests)
LOCK = select(authorization_requests).where(*_OF_REQUEST).with_for_update()
LOCK_OF_STATE = (
    select(authorization_requests)
    .where(authorization_requests.c.state_hash == bindparam("of_hash"))
    .with_for_update()
)
# The guard judges the time again, under the row's lock.
USE = (
    update(authorization_requests)
    .where(
        *_OF_REQUEST,
        authorization_requests.c.used_at.is_(None),
        authorization_requests.c.expires_at > func.clock_timestamp(),
    )
    .values(used_at=func.clock_timestamp(), wrapped_key=None)
    .returning(authorization_requests.c.used_at)
)
SETTLE = (
    update(authorization_requests)
    .where(
        *_OF_REQUEST,
        authorization_requests.c.used_at.is_not(None),
        authorization_requests.c.settled_at.is_(None),
    )
    .values(
        settled_at=func.clock_timestamp(),
        outcome=bindparam("with_outcome"),
        failure_class=bindparam("with_class"),
        response_status=bindparam("with_status"),
        phases=bindparam("with_phases"),
        generation_id=bindparam("with_generation"),
    )
    .returning(authorization_requests)
)
ERASE_EXPIRED = (
    update(authorization_requests)
    .where(
        authorization_requests.c.org_id == bindparam("of_org"),
        authorization_requests.c.expires_at < func.clock_timestamp(),
        authorization_requests.c.wrapped_key.is_not(None),
    )
    .values(wrapped_key=None)
)


async def add(connection: AsyncConnection, values: dict[str, Any]) -> Row[Any]:
    """A new request; what the org's expired ones were sealed with is erased."""
    await connection.execute(ERASE_EXPIRED, {"of_org": values["org_id"]})
    added: Result[Any] = await connection.execute(ADD, values)
    return added.one()


async def lock(connection: AsyncConnection, org: OrgId, request: UUID) -> Row[Any] | None:
    """The request, locked until COMMIT; None where the org has none of this id."""
    found = await connection.execute(LOCK, {"of_org": org, "of_request": request})
    return found.one_or_none()


async def lock_of_state(connection: AsyncConnection, state_hash: bytes) -> Row[Any] | None:
    """The request whose state has this hash, locked until COMMIT."""
    return (await connection.execute(LOCK_OF_STATE, {"of_hash": state_hash})).one_or_none()


async def use(connection: AsyncConnection, org: OrgId, request: UUID) -> datetime | None:
    """When the request was used, which is now; None of one that was used before or is too old."""
    used = await connection.execute(USE, {"of_org": org, "of_request": request})
    at: datetime | None = used.scalar_one_or_none()
    return at


async def settle(
    connection: AsyncConnection,
    org: OrgId,
    request: UUID,
    *,
    outcome: str,
    failure_class: str | None = None,
    response_status: int | None = None,
    phases: dict[str, Any] | None = None,
    generation: UUID | None = None,
) -> Row[Any]:
    """Write what the used, locked request came to."""
    settled: Result[Any] = await connection.execute(
        SETTLE,
        {
            "of_org": org,
            "of_request": request,
            "with_outcome": outcome,
            "with_class": failure_class,
            "with_status": response_status,
            "with_phases": phases,
            "with_generation": generation,
        },
    )
    return settled.one()
