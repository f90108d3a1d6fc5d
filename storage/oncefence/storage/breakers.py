"""
Sole writer of `breakers` for persons; what requests tell of them is written by SQL alone.

A breaker's own moves are in `breakers_0004.sql`, beside what the hot phases call for them.
"""

from datetime import timedelta
from typing import Any, Final

from sqlalchemy import Interval, Result, Row, and_, bindparam, func, select, text, update
from sqlalchemy.dialects.postgresql import insert as pg_insert
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.domain.breaker import BREAKER, BreakerKey, BreakerState
from oncefence.storage.tables import breakers

_THIS = (
    breakers.c.org_id == bindparam("of_org"),
    breakers.c.key == bindparam("of_key"),
)
_BY_A_PERSON = {
    "version": breakers.c.version + 1,
    "changed_at": func.clock_timestamp(),
    "changed_by": bindparam("actor"),
    "changed_note": bindparam("why"),
    # What is under way says nothing of what comes after this.
    "counts_from": func.clock_timestamp(),
    "failures": 0,
    "first_failed_at": None,
    "watched_from": None,
    "watched_until": None,
}

ADD: Final = pg_insert(breakers).on_conflict_do_nothing()
LOCK: Final = select(breakers).where(*_THIS).with_for_update(key_share=True)
# A second statement after the lock: in LOCK itself the clock is read before the wait for it.
STANDING: Final = select(
    breakers,
    and_(breakers.c.state == "open", breakers.c.until <= func.clock_timestamp()).label("is_past"),
).where(*_THIS)
OPEN: Final = (
    update(breakers)
    .where(*_THIS)
    .values(
        state="open",
        via="override_open",
        opens=breakers.c.opens + 1,
        opened_at=func.clock_timestamp(),
        until=func.clock_timestamp() + bindparam("length", type_=Interval),
        **_BY_A_PERSON,
    )
    .returning(breakers)
)
CLOSE: Final = (
    update(breakers)
    .where(*_THIS)
    .values(state="closed", via="override_close", opens=0, **_BY_A_PERSON)
    .returning(breakers)
)
# Its time has passed, and nobody has come since who would have said so.
COME_TO_ITS_TIME: Final = text(
    "SELECT oncefence.move_breaker(b, 'half_open', 'probe') FROM oncefence.breakers AS b"
    " WHERE b.org_id = :of_org AND b.key = :of_key"
    "   AND b.state = 'open' AND b.until <= clock_timestamp()"
)


async def lock(connection: AsyncConnection, key: BreakerKey, *, provider: str) -> Row[Any]:
    """The row of `key`, locked until COMMIT; made now where nothing was ever told of it."""
    this = {"of_org": key.org, "of_key": key.row_key}
    await connection.execute(
        ADD,
        {
            "org_id": key.org,
            "key": key.row_key,
            "provider": provider,
            "endpoint_class": key.endpoint_class,
            "binding_id": key.binding,
            "state": BREAKER.initial,
            "via": "create",
        },
    )
    await connection.execute(LOCK, this)
    found: Result[Any] = await connection.execute(STANDING, this)
    return found.one()


async def override(
    connection: AsyncConnection,
    row: Row[Any],
    target: BreakerState,
    *,
    actor: str,
    note: str,
    length: timedelta | None = None,
) -> Row[Any]:
    """
    Move the locked `row` to open, for `length`, or to closed; first to half-open if it is that.

    Raises:
        InvalidTransition: It stands so already.
    """
    trigger = "override_open" if target is BreakerState.OPEN else "override_close"
    source = BreakerState.HALF_OPEN if row.is_past else row.state
    BREAKER.check(source, target, trigger)
    this = {"of_org": row.org_id, "of_key": row.key}
    await connection.execute(COME_TO_ITS_TIME, this)
    values = {**this, "actor": actor, "why": note}
    if target is BreakerState.OPEN:
        moved: Result[Any] = await connection.execute(OPEN, {**values, "length": length})
    else:
        moved = await connection.execute(CLOSE, values)
    return moved.one()
