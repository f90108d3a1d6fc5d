"""Reading all that the look before a create needs; but for quota, nothing is taken by it."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.ids import CommandId, ExecutionId, OrgId, ViewId, WorkId
from oncefence.storage import work_items
from oncefence.storage.claims import NotStarted
from oncefence.storage.engine import run_phase
from oncefence.storage.pinned_access import (
    ACCESS,
    ACCESS_OF_COMMAND,
    UnsealedLookup,
    unseal_read,
)
from oncefence.storage.read_admission import first_look_held_back
from oncefence.storage.sealing import KeyRing

CONTEXT = text(
    f"""
    SELECT clock_timestamp() AS began_at, x.ownership_epoch, x.execution_id, c.command_id,
           c.view_id, c.view_digest, c.operation,
           coalesce(c.lookup_deadline_ms, c.deadline_ms) AS deadline_ms, {ACCESS}
      FROM oncefence.work_items AS x
      JOIN oncefence.commands AS c ON c.org_id = x.org_id AND c.command_id = x.command_id
      {ACCESS_OF_COMMAND}
     WHERE x.org_id = :org AND x.work_id = :work
    """  # noqa: S608  # only constants are joined in
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstLookBegun:
    """
    What is looked for, and as whom.

    `epoch` is that of the item when it was read: who claims it meanwhile has looked too, and this
    look comes too late to say anything.
    """

    org: OrgId
    work: WorkId
    epoch: int
    began_at: datetime
    """In real time."""

    execution: ExecutionId
    command: CommandId
    view: ViewId
    view_digest: str
    operation: str
    base_url: str
    is_local: bool
    deadline_ms: int
    token_version: int
    sealed: Row[Any] = field(repr=False)


async def begin_first_look(
    engine: AsyncEngine, org: OrgId, work: WorkId
) -> FirstLookBegun | NotStarted:
    """What the create of this dispatch item is looked for with, or until when the look waits."""

    async def transaction() -> Row[Any] | NotStarted:
        async with engine.begin() as connection:
            item = await work_items.lock(connection, org, work)
            row = (await connection.execute(CONTEXT, {"org": org, "work": work})).one()
            assert item is not None, "its context was read"
            held = await first_look_held_back(connection, item)
            return held if isinstance(held, NotStarted) else row

    row = await run_phase("begin_first_look", transaction)
    if isinstance(row, NotStarted):
        return row
    return FirstLookBegun(
        org=org,
        work=work,
        epoch=row.ownership_epoch,
        began_at=row.began_at,
        execution=ExecutionId(row.execution_id),
        command=CommandId(row.command_id),
        view=ViewId(row.view_id),
        view_digest=row.view_digest,
        operation=row.operation,
        base_url=row.base_url,
        is_local=row.is_local,
        deadline_ms=row.deadline_ms,
        token_version=row.token_version,
        sealed=row,
    )


def unseal_first_look(ring: KeyRing, begun: FirstLookBegun) -> UnsealedLookup | None:
    """
    The request that is to be sent and the token to read with, where both are there still.

    Raises:
        ConfigurationRefused: The key ring is not the one that they were sealed with.
    """
    return unseal_read(ring, begun.org, begun.execution, begun.sealed)
