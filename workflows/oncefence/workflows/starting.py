"""Starting and waking the workflow of an item: a hint each time, never a fact."""

from dataclasses import dataclass, field
from typing import Any

from temporalio.client import Client, WorkflowHandle
from temporalio.common import (
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)

from oncefence.activities.contracts import WorkInput
from oncefence.workflows import policies
from oncefence.workflows.work_item import (
    FAMILY,
    ORG,
    WAKE,
    WORK_ITEM_WORKFLOW,
    workflow_id,
)

_SUMMARY = "Closing this workflow cancels no work: the item is in the database and runs on."


@dataclass(slots=True, kw_only=True)
class EagerStarts:
    """How often an eager start was asked for and given; fewer given means a second Client."""

    asked: int = 0
    given: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkStarter:
    """
    Starts and wakes item workflows over the one Client of the process.

    An eager start is given only to the Client object that the Worker itself uses.
    """

    client: Client
    task_queue: str
    eager: EagerStarts = field(default_factory=EagerStarts)

    async def start(self, item: WorkInput) -> None:
        """Start the workflow of an item that is due at once, eagerly; a running one is used."""
        self.eager.asked += 1
        handle = await self._start(item, is_eager=True)
        if getattr(handle, "__temporal_eagerly_started", False):
            self.eager.given += 1

    async def start_later(self, item: WorkInput) -> None:
        """Start the workflow of an item that is due later; a running one is left as it is."""
        await self._start(item)

    async def wake(self, item: WorkInput) -> None:
        """Start the workflow where there is none, and have it look again where there is."""
        await self._start(item, signal=WAKE)

    async def _start(
        self, item: WorkInput, *, signal: str | None = None, is_eager: bool = False
    ) -> WorkflowHandle[Any, Any]:
        return await self.client.start_workflow(
            WORK_ITEM_WORKFLOW,
            item,
            id=workflow_id(item.work_id),
            task_queue=self.task_queue,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            task_timeout=policies.WORKFLOW_TASK_TIMEOUT,
            search_attributes=_attributes(item),
            static_summary=_SUMMARY,
            start_signal=signal,
            request_eager_start=is_eager,
        )


def _attributes(item: WorkInput) -> TypedSearchAttributes:
    return TypedSearchAttributes(
        [SearchAttributePair(ORG, item.org_id), SearchAttributePair(FAMILY, item.family)]
    )
