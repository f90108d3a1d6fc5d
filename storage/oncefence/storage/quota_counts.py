"""
What reads of the provider use of its counts; `quota_counts` itself is written by its SQL alone.

Asked and told in the transaction of a phase. The rows of counts are locked in the order of their
keys, after everything of the command and before its breakers. An effect's units are taken by its
mark and kept with its attempt; a read has no row of its own before it is made, so that only the
transaction which took its units can give them back.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.domain.ids import CommandId, OrgId

# The class of a read stands with the counts that it uses. Where it uses none it is closed by a
# name of its own: what turns reads away must not close the writes.
_OF_READ: Final = """
           c.org_id, c.provider, c.binding_id, g.account,
           coalesce(c.lookup_quota -> 0 ->> 'class', 'lookup:' || c.endpoint_class), c.lookup_quota
"""
_OF_COMMAND: Final = """
      JOIN oncefence.binding_generations AS g
        ON g.org_id = c.org_id AND g.generation_id = c.generation_id
     WHERE c.org_id = :org AND c.command_id = :command
"""
_ARGUMENTS: Final = "p_org, p_provider, p_binding, p_account, p_endpoint_class, p_dimensions"

RESERVE: Final = text(
    f"""
    SELECT q.reserved, q.until
      FROM (SELECT {_OF_READ} FROM oncefence.commands AS c {_OF_COMMAND}) AS of_read ({_ARGUMENTS})
     CROSS JOIN LATERAL oncefence.reserve_quota({_ARGUMENTS}, 'lookup') AS q
    """  # noqa: S608  # only constants are joined in
)
GIVE_BACK: Final = text("SELECT oncefence.return_quota(CAST(:reserved AS jsonb))")
CORRECT: Final = text(
    f"""
    SELECT oncefence.correct_quota({_ARGUMENTS}, '[]'::jsonb, CAST(:told AS jsonb))
      FROM (SELECT {_OF_READ} FROM oncefence.commands AS c {_OF_COMMAND}) AS of_read ({_ARGUMENTS})
    """  # noqa: S608  # only constants are joined in
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """What one read has taken; nothing, where it needs nothing."""

    reserved: list[dict[str, Any]] = field(default_factory=list)


async def reserve_read(
    connection: AsyncConnection, org: OrgId, command: CommandId
) -> Units | datetime:
    """
    One unit of each count that a lookup of the command uses, or until when it has none (C301).

    Where there is none, nothing was taken; the time is real time.
    """
    row = (await connection.execute(RESERVE, {"org": org, "command": command})).one()
    if row.reserved is None:
        until: datetime = row.until
        return until
    return Units(reserved=row.reserved)


async def give_back(connection: AsyncConnection, units: Units) -> None:
    """Give back what this very transaction took for a read that is not made after all."""
    if units.reserved:
        await connection.execute(GIVE_BACK, {"reserved": json.dumps(units.reserved)})


async def tell(
    connection: AsyncConnection, org: OrgId, command: CommandId, told: Mapping[str, object]
) -> None:
    """Close what the answer to a read of the command closes (C302)."""
    await connection.execute(
        CORRECT, {"org": org, "command": command, "told": json.dumps(dict(told))}
    )
