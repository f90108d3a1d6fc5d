"""
Sole writer of `token_refreshes`: the ledger of renewals, one row for each call, written before it.

A row is the mark of its call. Whoever began it settles it by its own token; past its lease anybody
may say that it is lost.
"""

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Row, bindparam, func, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.domain.grant import RefreshOutcome
from oncefence.domain.ids import LeaseToken, OrgId
from oncefence.storage.tables import token_refreshes

_THIS: Final = (
    token_refreshes.c.org_id == bindparam("of_org"),
    token_refreshes.c.refresh_id == bindparam("of_refresh"),
)

ADD = insert(token_refreshes).returning(token_refreshes)
LOCK = select(token_refreshes).where(*_THIS).with_for_update()
OF_CLAIM = select(token_refreshes).where(
    token_refreshes.c.org_id == bindparam("of_org"),
    token_refreshes.c.work_id == bindparam("of_work"),
    token_refreshes.c.lease_token == bindparam("of_token"),
)
SETTLE = (
    update(token_refreshes)
    .where(*_THIS)
    .values(
        settled_at=func.clock_timestamp(),
        settled_token=bindparam("by_token"),
        outcome=bindparam("came_to"),
        to_version=bindparam("made_version"),
        failure_class=bindparam("why"),
        response_status=bindparam("answered"),
        phases=bindparam("went", type_=token_refreshes.c.phases.type),
    )
)
EXPIRED = text(
    "SELECT r.org_id, r.refresh_id, r.generation_id FROM oncefence.token_refreshes AS r"
    " WHERE r.settled_at IS NULL AND r.lease_until <= clock_timestamp()"
    " ORDER BY r.org_id, r.generation_id LIMIT :page"
)


async def add(connection: AsyncConnection, values: Mapping[str, Any]) -> Row[Any]:
    """Add a row, which begins open; gives it with the database's time of the mark."""
    row: Row[Any] = (await connection.execute(ADD, values)).one()
    return row


async def lock(connection: AsyncConnection, org: OrgId, refresh: UUID) -> Row[Any]:
    """The row, locked until COMMIT, after its grant's."""
    return (await connection.execute(LOCK, {"of_org": org, "of_refresh": refresh})).one()


async def of_claim(
    connection: AsyncConnection, org: OrgId, work: UUID, token: LeaseToken
) -> Row[Any] | None:
    """The renewal that this claim of an item began, if it did."""
    found = await connection.execute(OF_CLAIM, {"of_org": org, "of_work": work, "of_token": token})
    return found.one_or_none()


async def settle(
    connection: AsyncConnection,
    row: Row[Any],
    outcome: RefreshOutcome,
    *,
    by: LeaseToken | None,
    to_version: int | None = None,
    failure_class: str | None = None,
    response_status: int | None = None,
    phases: Mapping[str, Any] | None = None,
) -> None:
    """Say what came of the locked `row`; `by` is None where its lease ended and others say so."""
    await connection.execute(
        SETTLE,
        {
            "of_org": row.org_id,
            "of_refresh": row.refresh_id,
            "by_token": by,
            "came_to": outcome.value,
            "made_version": to_version,
            "why": failure_class,
            "answered": response_status,
            "went": None if phases is None else dict(phases),
        },
    )


async def expired(connection: AsyncConnection, *, page: int) -> list[Row[Any]]:
    """Open rows whose lease has ended, in the order in which their grants are locked."""
    return list((await connection.execute(EXPIRED, {"page": page})).all())
