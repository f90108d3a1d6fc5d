"""
What holds a read of the provider back that another may lift, and what the read tells of it.

Asked and told in the transaction of a phase that holds the item's lock.
"""

from datetime import datetime
from typing import Any, Final

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.domain.breaker import Sign
from oncefence.domain.claim import ENGINE_CAPABILITY, ClaimVerdict
from oncefence.domain.ids import CommandId, OrgId, WorkId
from oncefence.domain.limits import Limits
from oncefence.storage import authorization_grants, quota_counts, work_items
from oncefence.storage.claims import NotStarted
from oncefence.storage.quota_counts import Units

TURN: Final = text(
    "SELECT oncefence.quota_turn(w, CAST(:until AS timestamptz), c.lookup_quota)"
    "  FROM oncefence.work_items AS w"
    "  JOIN oncefence.commands AS c ON c.org_id = w.org_id AND c.command_id = w.command_id"
    " WHERE w.org_id = :org AND w.work_id = :work"
)
OBSTACLE: Final = text(
    "SELECT o.obstacle, o.until FROM oncefence.work_items AS w"
    " CROSS JOIN LATERAL oncefence.obstacle_to_claim("
    "   w, :engine_capability, :ramp_claims_max) AS o"
    " WHERE w.org_id = :org AND w.work_id = :work"
)
BREAKER: Final = text(
    "SELECT b.until, b.needs_place FROM oncefence.commands AS c"
    " CROSS JOIN LATERAL oncefence.breaker_obstacle("
    "   c.org_id, c.provider, c.endpoint_class, c.binding_id, true) AS b"
    " WHERE c.org_id = :org AND c.command_id = :command"
)
BREAKER_PLACE: Final = text(
    "SELECT oncefence.take_breaker_place("
    "   c.org_id, c.provider, c.endpoint_class, c.binding_id, true)"
    "  FROM oncefence.commands AS c WHERE c.org_id = :org AND c.command_id = :command"
)
NOTE: Final = text(
    "SELECT oncefence.note_breaker("
    "   c.org_id, c.provider, c.endpoint_class, c.binding_id, true, :sign,"
    "   CAST(:began_at AS timestamptz))"
    "  FROM oncefence.commands AS c WHERE c.org_id = :org AND c.command_id = :command"
)
PINNED: Final = text(
    "SELECT g.generation_id, g.state FROM oncefence.commands AS c"
    " JOIN oncefence.binding_generations AS g"
    "   ON g.org_id = c.org_id AND g.generation_id = c.generation_id"
    " WHERE c.org_id = :org AND c.command_id = :command FOR SHARE OF g"
)
# The read before it, if that was told before this version was made: of two reads side by side both
# are refused for one token.
READ_BEFORE: Final = text(
    "SELECT l.response_status FROM (SELECT * FROM oncefence.lookups AS o"
    "   WHERE o.org_id = :org AND o.work_id = :work"
    "   ORDER BY o.looked_at DESC OFFSET 1 LIMIT 1) AS l"
    "  JOIN oncefence.token_versions AS t ON t.org_id = l.org_id"
    "   AND t.generation_id = :generation AND t.version = :version"
    " WHERE l.looked_at < t.made_at"
)
UNAUTHORIZED: Final = 401
PUT_OFF: Final = text(
    "SELECT oncefence.put_off(w, w.ctid, CAST(:until AS timestamptz))"
    "  FROM oncefence.work_items AS w WHERE w.org_id = :org AND w.work_id = :work"
)


async def held_back(
    connection: AsyncConnection, item: Row[Any], *, as_of: datetime, limits: Limits
) -> NotStarted | Units:
    """
    Why the locked lookup is not made now, although it is due; else the quota that it has taken.

    The breaker that it asks is that of the command which it is about: it is the read from which
    that one learns whether the provider lives. An item that could not be claimed in any case is
    not asked about: the claim says why.
    """
    org, work = OrgId(item.org_id), WorkId(item.work_id)
    if item.state in ("pending", "retry"):
        is_due = item.run_after <= as_of
    else:
        is_due = item.state == "processing" and not await work_items.is_lease_live(
            connection, org, work
        )
    # What is given up makes no read: it ends however long a token or a quota is to be waited for.
    is_given_up = item.state == "processing" and item.claims_lost + 1 >= limits.claims_lost_max
    if not is_due or is_given_up:
        return Units()
    # The claim asks the same again. Here it locks the pauses that it is about, as each start does
    # before any count or breaker.
    asked = await connection.execute(
        OBSTACLE,
        {
            "org": org,
            "work": work,
            "engine_capability": ENGINE_CAPABILITY,
            "ramp_claims_max": limits.admission_window,
        },
    )
    obstacle = asked.one()
    if obstacle.obstacle is not None and item.state != "processing":
        return NotStarted(verdict=ClaimVerdict(obstacle.obstacle), until=obstacle.until)
    of_command = {"org": org, "command": item.command_id}
    breaker = (await connection.execute(BREAKER, of_command)).one()
    if breaker.until is not None:
        return await put_off(connection, item, ClaimVerdict.BREAKER_OPEN, breaker.until)
    token = await _token_held(connection, item)
    if token is not None:
        return token
    return await _take(connection, item, needs_place=breaker.needs_place)


async def first_look_held_back(connection: AsyncConnection, item: Row[Any]) -> NotStarted | Units:
    """
    Why the look before the create of the locked item is not made now; else what it has taken.

    Its start has asked for everything but the place of a read.
    """
    of_command = {"org": item.org_id, "command": item.command_id}
    breaker = (await connection.execute(BREAKER, of_command)).one()
    if breaker.until is not None:
        return await put_off(connection, item, ClaimVerdict.BREAKER_OPEN, breaker.until)
    return await _take(connection, item, needs_place=breaker.needs_place)


async def _take(
    connection: AsyncConnection, item: Row[Any], *, needs_place: bool
) -> NotStarted | Units:
    """Units of the read's counts and its place where a breaker gives places, or neither."""
    org = OrgId(item.org_id)
    units = await quota_counts.reserve_read(connection, org, CommandId(item.command_id))
    if not isinstance(units, Units):
        place = {"org": org, "work": item.work_id, "until": units}
        turn = (await connection.execute(TURN, place)).scalar_one()
        return await put_off(connection, item, ClaimVerdict.QUOTA_HELD, turn)
    # Last, as the locks of breakers come after all others: whatever else holds it back is asked
    # before this.
    if needs_place:
        of_command = {"org": org, "command": item.command_id}
        until = (await connection.execute(BREAKER_PLACE, of_command)).scalar_one()
        if until is not None:
            await quota_counts.give_back(connection, units)
            return await put_off(connection, item, ClaimVerdict.BREAKER_OPEN, until)
    return units


async def _token_held(connection: AsyncConnection, item: Row[Any]) -> NotStarted | None:
    """What keeps the token of the pinned generation from being used; None where nothing does."""
    # Locked as a start locks it: whoever renews the token waits for this, or this sees the new one.
    pinned = await connection.execute(PINNED, {"org": item.org_id, "command": item.command_id})
    generation = pinned.one()
    if generation.state != "current":
        # There is no usable lookup then, and that needs no token.
        return None
    found = await authorization_grants.obstacle(
        connection, OrgId(item.org_id), generation.generation_id
    )
    if found.obstacle is None:
        return None
    verdict = ClaimVerdict(found.obstacle)
    if found.until is None:
        return NotStarted(verdict=verdict, until=None)
    return await put_off(connection, item, verdict, found.until)


async def note_refused(
    connection: AsyncConnection, org: OrgId, work: WorkId, command: CommandId, *, version: int
) -> None:
    """
    Keep that a read was answered 401 under this version of the pinned generation's token (C293).

    The row of the read is there already; the one before it tells whether that was refused, too.
    """
    pinned = (await connection.execute(PINNED, {"org": org, "command": command})).one()
    before = await connection.execute(
        READ_BEFORE,
        {"org": org, "work": work, "generation": pinned.generation_id, "version": version},
    )
    await authorization_grants.note_refused(
        connection,
        org,
        pinned.generation_id,
        version=version,
        again=before.scalar_one_or_none() == UNAUTHORIZED,
    )


async def put_off(
    connection: AsyncConnection, item: Row[Any], verdict: ClaimVerdict, until: datetime
) -> NotStarted:
    """Have the locked item wait for what holds it back, in the state that it is in."""
    due = await connection.execute(
        PUT_OFF, {"org": item.org_id, "work": item.work_id, "until": until}
    )
    return NotStarted(verdict=verdict, until=due.scalar_one())


async def note_read(
    connection: AsyncConnection, org: OrgId, command: CommandId, sign: Sign, *, began_at: datetime
) -> None:
    """Tell the breakers of `command` what a read about it says; `began_at` is in real time."""
    await connection.execute(
        NOTE, {"org": org, "command": command, "sign": sign, "began_at": began_at}
    )
