"""Adding an item of a family: whoever has something to be done later says so in one row."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from oncefence.domain.claim import ENGINE_CAPABILITY
from oncefence.domain.errors import NoSuchTarget
from oncefence.domain.ids import (
    CommandId,
    ExecutionId,
    OrgId,
    PrincipalBindingId,
    ViewId,
    WorkId,
    family_work_id,
)
from oncefence.storage import lanes, work_items
from oncefence.storage.engine import run_phase
from oncefence.storage.phases.find_work import WorkRef

# One at a time for each item, or for each command that it is about: whether it is there is read
# under this lock, so that nobody draws a place in a lane for an item that somebody else makes.
SERIALISE = text(
    "SELECT pg_advisory_xact_lock(hashtextextended(concat_ws(':', 'work', CAST(:org AS text),"
    " CAST(:family AS text), CAST(:of AS text)), 0))"
)
# Whole milliseconds, cut off, as workflow time is: with more digits a due time would look as if
# it were still ahead.
VIEW = text(
    "SELECT installation, digest, revision,"
    " date_trunc('milliseconds', clock_timestamp()) AS now"
    " FROM oncefence.binding_views WHERE org_id = :org AND view_id = :view"
)
# By its identity, or as the one active item of its command and family (C52).
PRESENT = text(
    "SELECT work_id, family, deadline_ms, run_after FROM oncefence.work_items"
    " WHERE org_id = :org AND (work_id = :work"
    "   OR (command_id = :command AND family = :family"
    "       AND state NOT IN ('succeeded', 'skipped', 'dead', 'cancelled',"
    "                         'reconciled_legacy_terminal')))"
    " ORDER BY (work_id = :work) DESC LIMIT 1"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWork:
    """
    What an item is, and never ceases to be (C42).

    It is about the `ordinal`-th occasion of a subject: the same again is the same item.
    """

    org: OrgId
    family: str
    subject_kind: str
    subject_id: str
    view: ViewId
    definition: str
    queue_class: str
    deadline_ms: int
    ordinal: int = 1
    command: CommandId | None = None
    execution: ExecutionId | None = None
    provider: str | None = None
    binding: PrincipalBindingId | None = None
    source_lane: str | None = None
    target_lane: str | None = None
    payload_schema_version: int = 1
    engine_capability: int = ENGINE_CAPABILITY
    run_after: datetime | None = None
    """None is now, by the database's clock."""

    def __post_init__(self) -> None:
        if self.deadline_ms < 1 or self.ordinal < 1:
            raise ValueError("an item has a deadline of 1 ms or more, and ordinals count from 1")

    @property
    def work(self) -> WorkId:
        """Its identity, which is computed and never drawn (C384)."""
        return family_work_id(
            self.org, self.family, self.subject_kind, self.subject_id, self.ordinal
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedWork:
    """The item as its workflow is told of it, and whether it was made just now."""

    ref: WorkRef
    is_new: bool


async def add_work(engine: AsyncEngine, new: NewWork) -> AddedWork:
    """
    Make the item, or find the one that there is; its places in its lanes are drawn once (C221).

    Nobody is told of it: starting its workflow is a hint, and comes after COMMIT (C394).

    Raises:
        NoSuchTarget: The org has no such view.
        StoreUnavailable: Ask again: it may be there.
    """

    async def transaction() -> AddedWork:
        async with engine.begin() as connection:
            await connection.execute(
                SERIALISE,
                {"org": new.org, "family": new.family, "of": str(new.command or new.work)},
            )
            found = await connection.execute(
                PRESENT,
                {"org": new.org, "work": new.work, "command": new.command, "family": new.family},
            )
            present = found.one_or_none()
            if present is not None:
                return AddedWork(ref=_ref(new.org, present), is_new=False)
            return await _add(connection, new)

    return await run_phase("add_work", transaction)


async def _add(connection: AsyncConnection, new: NewWork) -> AddedWork:
    found = await connection.execute(VIEW, {"org": new.org, "view": new.view})
    view = found.one_or_none()
    if view is None:
        raise NoSuchTarget(
            kind="binding view",
            name=str(new.view),
            remedy="publish it with `oncefence catalog publish`, then name its revision",
        )
    places = await lanes.draw(connection, new.org, (new.source_lane, new.target_lane))
    run_after = new.run_after or view.now
    await work_items.add(
        connection,
        {
            "org_id": new.org,
            "work_id": new.work,
            "family": new.family,
            "subject_kind": new.subject_kind,
            "subject_id": new.subject_id,
            "command_id": new.command,
            "execution_id": new.execution,
            "installation": view.installation,
            "view_id": new.view,
            "view_digest": view.digest,
            "view_revision": view.revision,
            "definition": new.definition,
            "provider": new.provider,
            "binding_id": new.binding,
            "payload_schema_version": new.payload_schema_version,
            "engine_capability": new.engine_capability,
            "queue_class": new.queue_class,
            "deadline_ms": new.deadline_ms,
            "source_lane": new.source_lane,
            "source_sequence": places.get(new.source_lane or ""),
            "target_lane": new.target_lane,
            "target_sequence": places.get(new.target_lane or ""),
            "run_after": run_after,
        },
    )
    ref = WorkRef(
        org=new.org,
        work=new.work,
        family=new.family,
        deadline_ms=new.deadline_ms,
        run_after=run_after,
    )
    return AddedWork(ref=ref, is_new=True)


def _ref(org: OrgId, row: Row[Any]) -> WorkRef:
    return WorkRef(
        org=org,
        work=WorkId(row.work_id),
        family=row.family,
        deadline_ms=row.deadline_ms,
        run_after=row.run_after,
    )
