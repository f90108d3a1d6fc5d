"""
What an operator does in a cell, again by whoever comes after one that was struck.

An act whose answer was lost is not asked for blindly again: the operator looks first, as the
version that each act names makes them.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeVar

from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.catalog.view import IntegrationBindingView
from oncefence.domain.errors import ActRefused, NoSuchTarget, VersionMoved
from oncefence.domain.ids import ExecutionId, OperatorId, OrgId, WorkId
from oncefence.domain.operator import Role
from oncefence.domain.pause import PauseScope
from oncefence.domain.replay import ReplayVerdict
from oncefence.storage.dead_letters import DeadLetterFilter
from oncefence.storage.phases.activate_view import activate_view
from oncefence.storage.phases.add_operator import add_operator
from oncefence.storage.phases.begin_replay import begin_replay
from oncefence.storage.phases.cancel_work import cancel_work
from oncefence.storage.phases.open_window import open_window
from oncefence.storage.phases.pause_work import pause_work
from oncefence.storage.phases.plan_replay import plan_replay
from oncefence.storage.phases.publish_view import publish_view
from oncefence.storage.phases.reclaim_work import reclaim_work
from oncefence.storage.phases.replay_work import replay_work
from oncefence.storage.phases.resume_work import resume_work
from oncefence.storage.phases.revoke_operator import revoke_operator
from tests.crashgrid.world import LIMITS
from tests.support.world import INSTALLATION

T = TypeVar("T")

_ACTOR: Final = "grid"
_NOTE: Final = "a cell of the grid"

_ITEM = text(
    """
    SELECT w.work_id, w.state, w.queue_class, oncefence.work_version(w) AS version,
           w.state = 'processing' AND w.lease_until <= clock_timestamp() AS is_abandoned, e.status
      FROM oncefence.work_items AS w
      JOIN oncefence.executions AS e
        ON e.org_id = w.org_id AND e.execution_id = w.execution_id
     WHERE w.org_id = :org AND w.execution_id = :execution AND w.family = 'effect.dispatch'
     ORDER BY w.made_at DESC LIMIT 1
    """
)
_ACTIVATIONS = text(
    "SELECT (SELECT count(*) FROM oncefence.view_activations WHERE org_id = :org)"
    " = (SELECT count(*) FROM oncefence.audit WHERE org_id = :org AND act = 'catalog.activate')"
    " AS are_audited"
)
_ROSTER = text(
    "SELECT (SELECT operator_id FROM oncefence.operators"
    " WHERE name = :name AND revoked_at IS NULL) AS operator_id"
)


class Read(Protocol):
    """Reads one row, however long the database is silent."""

    async def __call__(self, statement: TextClause, values: dict[str, object]) -> Any: ...


class UntilDone(Protocol):
    """Repeats a call while the database is silent."""

    async def __call__(self, call: Callable[[], Awaitable[T]]) -> T: ...


class Operator:
    """One person with every role in the org of the cell."""

    def __init__(self, engine: AsyncEngine, org: str, *, until_done: UntilDone, read: Read) -> None:
        self._engine = engine
        self._org = OrgId(org)
        self._until_done = until_done
        self._read = read

    async def pause(self) -> None:
        """Hold back everything of the org."""
        await self._until_done(
            lambda: pause_work(self._engine, PauseScope(org=self._org), actor=_ACTOR, note=_NOTE)
        )

    async def resume(self) -> None:
        """End the pause, whoever began it."""
        given = await self._until_done(
            lambda: pause_work(self._engine, PauseScope(org=self._org), actor=_ACTOR, note=_NOTE)
        )
        await self._unless_moved(
            lambda: resume_work(
                self._engine,
                self._org,
                given.pause.pause,
                ramp_seconds=0.0,
                actor=_ACTOR,
                note=_NOTE,
                expected_version=given.pause.state,
            )
        )

    async def open_window(self, execution: ExecutionId) -> None:
        """What whoever ends a pause does next: see who may run now."""
        item = await self._item(execution)
        await self._until_done(
            lambda: open_window(self._engine, self._org, item.queue_class, limits=LIMITS)
        )

    async def cancel(self, execution: ExecutionId) -> None:
        """End what was never tried."""
        item = await self._item(execution)
        await self._unless_moved(
            lambda: cancel_work(
                self._engine,
                self._org,
                WorkId(item.work_id),
                expected_version=item.version,
                note=_NOTE,
                actor=_ACTOR,
            )
        )
        assert (await self._item(execution)).status == "cancelled", "nobody else runs it"

    async def reclaim(self, execution: ExecutionId) -> None:
        """Give up on a claimant whose lease has ended, where there is one."""
        item = await self._item(execution)
        if item.is_abandoned:
            await self._unless_moved(
                lambda: reclaim_work(
                    self._engine,
                    self._org,
                    WorkId(item.work_id),
                    expected_version=item.version,
                    note=_NOTE,
                    actor=_ACTOR,
                )
            )

    async def replay(self, execution: ExecutionId) -> bool:
        """Have what the provider refused done anew, by a plan; whether it is on its way again."""
        item = await self._item(execution)
        if item.status == "failed":
            await self._unless_moved(self._apply_plan)
        return (await self._item(execution)).work_id != item.work_id

    async def _apply_plan(self) -> None:
        which = DeadLetterFilter()
        plan = await plan_replay(self._engine, self._org, which, LIMITS)
        begun = await begin_replay(
            self._engine, self._org, which, plan.digest, note=_NOTE, actor=_ACTOR, limits=LIMITS
        )
        for line in begun.lines:
            if line.verdict is ReplayVerdict.SAFE_TO_REPLAY:
                await replay_work(
                    self._engine,
                    self._org,
                    line.work,
                    expected_version=line.version,
                    note=_NOTE,
                    actor=_ACTOR,
                    limits=LIMITS,
                )

    async def change_hands(self) -> None:
        """Make another operator, and revoke it."""
        name = f"other-{self._org}"
        try:
            await self._until_done(
                lambda: add_operator(
                    self._engine,
                    name=name,
                    roles=frozenset((Role.VIEWER,)),
                    orgs=frozenset((self._org,)),
                    actor=_ACTOR,
                    note=_NOTE,
                )
            )
        except ActRefused:
            pass  # made by this very story, and its token was shown to nobody
        found = (await self._read(_ROSTER, {"name": name})).operator_id
        if found is not None:
            await self._unless_moved(
                lambda: revoke_operator(
                    self._engine,
                    name=name,
                    expected_version=str(OperatorId(found)),
                    actor=_ACTOR,
                    note=_NOTE,
                )
            )

    async def revise(self, view: IntegrationBindingView) -> None:
        """Publish another revision ahead, make it current, and go back to the one before."""
        other = view.model_copy(update={"display_name": f"{view.display_name}, revised"})
        published = await self._until_done(
            lambda: publish_view(self._engine, self._org, INSTALLATION, other, actor=_ACTOR)
        )
        for revision, expected in ((published.revision, 1), (1, published.revision)):
            await self._unless_moved(
                lambda revision=revision, expected=expected: activate_view(  # type: ignore[misc]  # bound for this round
                    self._engine,
                    self._org,
                    INSTALLATION,
                    view.name,
                    revision,
                    expected_current=expected,
                    actor=_ACTOR,
                    note=_NOTE,
                )
            )
        assert (await self._read(_ACTIVATIONS, {"org": self._org})).are_audited, "row for row"

    async def _item(self, execution: ExecutionId) -> Any:
        return await self._read(_ITEM, {"org": self._org, "execution": execution})

    async def _unless_moved(self, act: Callable[[], Awaitable[object]]) -> None:
        try:
            await self._until_done(act)
        except (VersionMoved, ActRefused, NoSuchTarget):
            pass  # done already, by this story before or by another life of it
