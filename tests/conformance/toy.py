"""A family in thirty lines: all that a handler has to be, and what its items are."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from oncefence.domain.claim import ClaimEnd, WorkEnd
from oncefence.domain.ids import ViewId
from oncefence.storage.phases.add_work import NewWork, add_work
from oncefence.storage.phases.claim_work import ClaimedWork
from oncefence.storage.phases.find_work import WorkRef

if TYPE_CHECKING:  # a process of its own that runs the family needs no servers
    from tests.support.world import World

TOY = "toy.count"
Act = Callable[[ClaimedWork], Awaitable[WorkEnd]]


async def finish(work: ClaimedWork) -> WorkEnd:
    return WorkEnd(end=ClaimEnd.FINISH)


@dataclass(frozen=True, slots=True, kw_only=True)
class Toy:
    """The handler: does what the test says of a subject, and keeps what it was given."""

    acts: Mapping[str, Act] = field(default_factory=dict)
    family: str = TOY
    runs: list[ClaimedWork] = field(default_factory=list)

    async def run(self, work: ClaimedWork) -> WorkEnd:
        self.runs.append(work)
        return await self.acts.get(work.subject_id, finish)(work)


async def toy_item(world: "World", subject: str, **terms: object) -> WorkRef:
    """An item of the family about `subject`; `terms` are what else it is."""
    (view,) = await world.sql("SELECT view_id FROM oncefence.binding_views WHERE org_id = :org")
    fixed = {
        "family": TOY,
        "subject_kind": "toy",
        "view": ViewId(view.view_id),
        "definition": "toy.count",
        "queue_class": "toys",
        "deadline_ms": 1_000,
    }
    new = NewWork(**{"org": world.org, "subject_id": subject, **fixed, **terms})  # type: ignore[arg-type]  # terms are the test's
    return (await add_work(world.engine, new)).ref
