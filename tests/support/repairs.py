"""What operators do by hand in a world of the tests, and what they looked at before."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import asyncpg
from sqlalchemy import Row

from oncefence.domain.claim import ClaimEnd, WorkEnd
from oncefence.domain.effect import Outcome
from oncefence.domain.ids import CommandId, LeaseToken, ViewId, WorkId
from oncefence.domain.replay import ReplayVerdict
from oncefence.storage.claims import NotStarted
from oncefence.storage.dead_letters import DeadLetterFilter
from oncefence.storage.phases.add_work import NewWork, add_work
from oncefence.storage.phases.begin_replay import begin_replay
from oncefence.storage.phases.cancel_work import CancelEnd, cancel_work
from oncefence.storage.phases.claim_work import ClaimedWork, claim_work
from oncefence.storage.phases.list_dead_letters import list_dead_letters
from oncefence.storage.phases.plan_replay import ReplayPlan, plan_replay
from oncefence.storage.phases.reclaim_work import Reclaimed, reclaim_work
from oncefence.storage.phases.replay_work import Replayed, replay_work
from oncefence.storage.phases.settle_work import WorkSettled, settle_work
from tests.support.world import Accepted, World

OPERATOR = "ada"
NOTE = "the incident of this morning"
FAMILY = "event.apply"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repairs:
    """An operator of one world; versions are those of the moment, unless told."""

    world: World

    async def version(self, work: WorkId) -> str:
        """What an operator who looks now sees."""
        rows = await self.world.sql(
            "SELECT oncefence.work_version(w) FROM oncefence.work_items AS w"
            " WHERE w.org_id = :org AND w.work_id = :work",
            work=work,
        )
        return str(rows[0][0])

    async def replay(self, work: WorkId, *, version: str | None = None) -> Replayed:
        """The item replayed."""
        return await replay_work(
            self.world.engine,
            self.world.org,
            work,
            expected_version=version or await self.version(work),
            note=NOTE,
            actor=OPERATOR,
            limits=self.world.limits,
        )

    async def cancel(self, work: WorkId, *, version: str | None = None) -> CancelEnd:
        """The item cancelled, or asked to be."""
        return await cancel_work(
            self.world.engine,
            self.world.org,
            work,
            expected_version=version or await self.version(work),
            note=NOTE,
            actor=OPERATOR,
        )

    async def reclaim(self, work: WorkId, *, version: str | None = None) -> Reclaimed:
        """The item reclaimed."""
        return await reclaim_work(
            self.world.engine,
            self.world.org,
            work,
            expected_version=version or await self.version(work),
            note=NOTE,
            actor=OPERATOR,
        )

    async def plan(self, **narrowed: Any) -> ReplayPlan:  # fields of the filter
        """A plan of the dead letters that the filter leaves."""
        return await plan_replay(
            self.world.engine, self.world.org, DeadLetterFilter(**narrowed), self.world.limits
        )

    async def begin(self, digest: str, **narrowed: Any) -> ReplayPlan:  # fields of the filter
        """That plan, begun."""
        return await begin_replay(
            self.world.engine,
            self.world.org,
            DeadLetterFilter(**narrowed),
            digest,
            note=NOTE,
            actor=OPERATOR,
            limits=self.world.limits,
        )

    async def verdict(self, work: WorkId) -> ReplayVerdict:
        """What a plan says of this one dead letter."""
        (line,) = (await self.plan(work=work)).lines
        return line.verdict

    async def dead_letters(self) -> set[WorkId]:
        """The whole queue of the org."""
        rows = await list_dead_letters(
            self.world.engine, [self.world.org], DeadLetterFilter(), limit=1_000
        )
        return {WorkId(row.work_id) for row in rows}

    async def acts(self) -> Sequence[Row[Any]]:
        """The audit rows of the operator, oldest first."""
        return await self.world.sql(
            "SELECT * FROM oncefence.audit WHERE org_id = :org AND actor = :actor"
            " ORDER BY audit_id",
            actor=OPERATOR,
        )

    # --- what has ended ----------------------------------------------------------------------

    async def a_refused_command(self, subject: str = "lead-1") -> Accepted:
        """A command that the provider refused."""
        accepted = await self.world.accept_command(subject)
        await self.world.settle(await self.world.start(accepted), Outcome.REJECTED)
        return accepted

    async def again(self, accepted: Accepted, replayed: Replayed) -> Accepted:
        """The same command by its new item."""
        return Accepted(
            handover=accepted.handover,
            receipt=accepted.receipt,
            command=accepted.command,
            execution=accepted.execution,
            work=replayed.ref.work,
        )

    async def a_waiting_item(self, *, command: CommandId | None = None) -> WorkId:
        """An item of another family that nobody has claimed yet."""
        world = self.world
        (view,) = await world.sql(
            "SELECT view_id FROM oncefence.binding_views WHERE org_id = :org AND revision = 1"
        )
        added = await add_work(
            world.engine,
            NewWork(
                org=world.org,
                family=FAMILY,
                subject_kind="event",
                subject_id=f"event-{uuid4()}",
                view=ViewId(view.view_id),
                definition="contact.changed",
                queue_class="events",
                deadline_ms=1_000,
                command=command,
                binding=world.binding,
            ),
        )
        return added.ref.work

    async def try_to_hold(self, work: WorkId) -> ClaimedWork | NotStarted:
        """What the claim of such an item says."""
        world = self.world
        return await claim_work(
            world.engine,
            world.org,
            work,
            family=FAMILY,
            as_of=max(await world.now(), (await world.item(work)).run_after),
            owner=uuid4(),
            token=LeaseToken(uuid4()),
            limits=world.limits,
        )

    async def a_held_item(self) -> ClaimedWork:
        """Such an item, claimed."""
        claimed = await self.try_to_hold(await self.a_waiting_item())
        assert isinstance(claimed, ClaimedWork), claimed
        return claimed

    async def end(self, claimed: ClaimedWork, end: ClaimEnd) -> WorkSettled:
        """The claim ended by its holder."""
        return await settle_work(
            self.world.engine,
            claimed.fence,
            WorkEnd(
                end=end,
                failure_class="by_hand" if end is ClaimEnd.GIVE_UP else None,
                wait_seconds=0.0 if end is ClaimEnd.DEFER else None,
            ),
            as_of=await self.world.now(),
            limits=self.world.limits,
        )

    async def an_ended_item(self, end: ClaimEnd = ClaimEnd.GIVE_UP) -> WorkId:
        """Such an item, ended."""
        claimed = await self.a_held_item()
        await self.end(claimed, end)
        return claimed.fence.work

    async def erase_content(self, accepted: Accepted) -> None:
        """The data key of the command's request is gone; no phase erases one yet."""
        connection = await asyncpg.connect(self.world.database.admin_url)
        try:
            await connection.execute(
                "UPDATE oncefence.execution_keys SET wrapped_key = NULL"
                " WHERE org_id = $1 AND execution_id = $2",
                self.world.org,
                accepted.execution,
            )
        finally:
            await connection.close()
