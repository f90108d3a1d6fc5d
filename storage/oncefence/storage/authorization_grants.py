"""
Sole writer of `authorization_grants`, but for the SQL that a 401 is noted with.

One row a generation: whether its tokens can be renewed, and which renewal is out.
"""

from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Row, bindparam, func, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.domain.grant import GrantRotation, GrantState
from oncefence.domain.ids import BindingGenerationId, OrgId
from oncefence.storage.tables import authorization_grants

_THIS: Final = (
    authorization_grants.c.org_id == bindparam("of_org"),
    authorization_grants.c.generation_id == bindparam("of_generation"),
)

ADD = insert(authorization_grants)
LOCK = select(authorization_grants).where(*_THIS).with_for_update()
# A statement of its own after the lock: it reads what the lock's last holder wrote.
OBSTACLE = text("SELECT * FROM oncefence.token_obstacle(:org, :generation)")
IS_OPEN = text(
    "SELECT EXISTS (SELECT FROM oncefence.token_refreshes AS r WHERE r.org_id = :org"
    " AND r.refresh_id = :refresh AND r.settled_at IS NULL)"
)
REFUSED = text(
    "SELECT oncefence.note_credential_refused(:org, :generation, :version, :again) AS is_at_fault"
)
# Of the keys' own version: the secret that was refused is in it still.
FOLLOW_REWRAP = (
    update(authorization_grants)
    .where(*_THIS, authorization_grants.c.suspect_version == bindparam("before"))
    .values(suspect_version=bindparam("after"))
)
OPEN = (
    update(authorization_grants)
    .where(*_THIS)
    .values(open_refresh=bindparam("refresh"), changed_at=func.clock_timestamp())
)
STAND = (
    update(authorization_grants)
    .where(*_THIS)
    .values(
        state=bindparam("to_state"),
        suspect_version=bindparam("suspect"),
        open_refresh=bindparam("refresh"),
        failures=bindparam("failed"),
        not_before=bindparam("until"),
        failure_class=bindparam("why"),
        changed_at=func.clock_timestamp(),
    )
)


async def add(
    connection: AsyncConnection,
    org: OrgId,
    generation: BindingGenerationId,
    rotation: GrantRotation,
) -> None:
    """Add the grant of a new generation, which begins healthy."""
    await connection.execute(
        ADD,
        {
            "org_id": org,
            "generation_id": generation,
            "rotation": rotation.value,
            "state": GrantState.HEALTHY.value,
        },
    )


async def lock(
    connection: AsyncConnection, org: OrgId, generation: BindingGenerationId
) -> Row[Any] | None:
    """The row, locked until COMMIT, after its generation's; None of a binding without one."""
    found = await connection.execute(LOCK, {"of_org": org, "of_generation": generation})
    return found.one_or_none()


async def obstacle(
    connection: AsyncConnection, org: OrgId, generation: BindingGenerationId
) -> Row[Any]:
    """The `obstacle` to using its token now, and `until` when it lasts; nulls where none is."""
    return (await connection.execute(OBSTACLE, {"org": org, "generation": generation})).one()


async def note_refused(
    connection: AsyncConnection,
    org: OrgId,
    generation: BindingGenerationId,
    *,
    version: int,
    again: bool,
) -> bool:
    """
    Keep that the provider answered 401 to this version (C293); says whether nothing helps.

    `again`: whoever says so was refused under an earlier version just before.
    """
    told = await connection.execute(
        REFUSED, {"org": org, "generation": generation, "version": version, "again": again}
    )
    return bool(told.scalar_one())


async def open_refresh(
    connection: AsyncConnection, org: OrgId, generation: BindingGenerationId, refresh: UUID
) -> None:
    """The renewal, whose row is there, is out."""
    await connection.execute(OPEN, {"of_org": org, "of_generation": generation, "refresh": refresh})


async def stand(
    connection: AsyncConnection,
    row: Row[Any],
    state: GrantState,
    *,
    open_refresh: UUID | None = None,
    suspect_version: int | None = None,
    failures: int = 0,
    not_before: datetime | None = None,
    failure_class: str | None = None,
) -> None:
    """How the locked `row` stands from now on; what is not named is cleared."""
    await connection.execute(
        STAND,
        {
            "of_org": row.org_id,
            "of_generation": row.generation_id,
            "to_state": state.value,
            "suspect": suspect_version,
            "refresh": open_refresh,
            "failed": failures,
            "until": not_before,
            "why": failure_class,
        },
    )


async def repair(connection: AsyncConnection, org: OrgId, generation: BindingGenerationId) -> None:
    """
    The grant can be renewed again: a person has authorised it anew.

    Call it after the version that was got so is there. A renewal that is out is left to its end.
    """
    row = await lock(connection, org, generation)
    assert row is not None, "whoever is authorised anew has a grant"
    is_open = await connection.execute(IS_OPEN, {"org": org, "refresh": row.open_refresh})
    await stand(
        connection,
        row,
        GrantState.HEALTHY,
        open_refresh=row.open_refresh if is_open.scalar_one() else None,
    )


async def follow_rewrap(
    connection: AsyncConnection, org: OrgId, generation: BindingGenerationId, *, version: int
) -> None:
    """What was known of the tokens of `version` is true of the same ones in the next version."""
    await connection.execute(
        FOLLOW_REWRAP,
        {"of_org": org, "of_generation": generation, "before": version, "after": version + 1},
    )
