"""The messages about work: items, what is done to one, dead letters, and plans to replay them."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from http import HTTPStatus
from typing import Annotated, Any, Final
from uuid import UUID

from pydantic import Field

from oncefence.app.operator_messages import (
    ActRequest,
    NotedRequest,
    OperatorAnswer,
    OperatorRequest,
)
from oncefence.app.problems import RequestRefused
from oncefence.domain.ids import OrgId
from oncefence.domain.replay import ReplayVerdict
from oncefence.storage.dead_letters import DeadLetterFilter, Position
from oncefence.storage.phases.cancel_work import CancelEnd
from oncefence.storage.phases.plan_replay import ReplayPlan
from oncefence.storage.phases.reclaim_work import Reclaimed
from oncefence.storage.phases.replay_work import Replayed
from oncefence.storage.phases.show_dead_letter import DeadLetter
from oncefence.storage.phases.show_work import WorkPage
from oncefence.storage.replay_facts import PlanLine

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROS_MAX: Final = 10**16

OneOrg = Annotated[OrgId, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$", description="its org")]
Word = Annotated[str, Field(min_length=1, max_length=200, pattern="^[!-~]+$")]
"""A name as the catalog and the kernel have them: narrowing by another one finds nothing."""

DocumentRow = dict[str, Any]
"""The columns of a row by their names; Any, because each statement has its own."""


class WorkActRequest(ActRequest):
    """An act on one item: why, and the version of it that was looked at."""

    org: OneOrg


class DeadLetterQuery(OperatorRequest):
    """Which dead letters of an org; what is left out does not narrow."""

    org: OneOrg
    work: Annotated[UUID | None, Field(strict=False)] = None
    family: Word | None = None
    provider: Word | None = None
    definition: Word | None = None
    failure_class: Word | None = None

    @property
    def filter(self) -> DeadLetterFilter:
        """The same without the org."""
        return DeadLetterFilter(
            work=self.work,
            family=self.family,
            provider=self.provider,
            definition=self.definition,
            failure_class=self.failure_class,
        )


class ReplayPlanRequest(NotedRequest, DeadLetterQuery):
    """A plan to be applied: the same filter, and the digest that the plan was shown with."""

    digest: Word


class WorkRows(OperatorAnswer):
    """A page of items; `next_after` asks for the following one, if there may be one."""

    rows: list[DocumentRow]
    next_after: str | None

    @classmethod
    def of(cls, rows: Sequence[Any], *, by: str, limit: int) -> "WorkRows":
        """The page of `rows`, in the order of their column `by`; Any: rows have their columns."""
        last = rows[-1] if len(rows) == limit else None
        after = None if last is None else Position(at=getattr(last, by), work=last.work_id)
        return cls(
            rows=[dict(row._mapping) for row in rows],  # noqa: SLF001  # a public name of Row
            next_after=None if after is None else cursor_of(after),
        )


class WorkMessage(OperatorAnswer):
    """One item, the line of replays that it stands in, and what operators did to that line."""

    item: DocumentRow
    lineage: list[DocumentRow]
    acts: list[DocumentRow]

    @classmethod
    def of(cls, page: WorkPage) -> "WorkMessage":
        """The message of `page`."""
        return cls(
            item=dict(page.item),
            lineage=[dict(each) for each in page.lineage],
            acts=[dict(each) for each in page.acts],
        )


class PlanLineMessage(OperatorAnswer):
    """What a plan says of one item."""

    work_id: UUID
    family: str
    definition: str
    provider: str | None
    version: str
    verdict: ReplayVerdict
    remedy: str
    failure_class: str | None
    execution_status: str | None
    view: str
    pinned_revision: int
    pinned_digest: str
    current_revision: int
    current_digest: str
    pinned_generation: int | None
    current_generation: int | None
    pinned_link_version: int | None
    current_link_version: int | None
    attempts_started: int
    attempts_max: int
    replayed_as: UUID | None

    @classmethod
    def of(cls, line: PlanLine) -> "PlanLineMessage":
        """The message of `line`."""
        return cls(
            work_id=line.work,
            family=line.family,
            definition=line.definition,
            provider=line.provider,
            version=line.version,
            verdict=line.verdict,
            remedy=line.remedy,
            failure_class=line.failure_class,
            execution_status=line.execution_status,
            view=line.view,
            pinned_revision=line.pinned_revision,
            pinned_digest=line.pinned_digest,
            current_revision=line.current_revision,
            current_digest=line.current_digest,
            pinned_generation=line.pinned_generation,
            current_generation=line.current_generation,
            pinned_link_version=line.pinned_link_version,
            current_link_version=line.current_link_version,
            attempts_started=line.attempts_started,
            attempts_max=line.attempts_max,
            replayed_as=line.replayed_as,
        )


class DeadLetterMessage(OperatorAnswer):
    """An ended item with all that it stands on, and what a replay of it would do."""

    is_listed: bool
    replay: PlanLineMessage
    item: DocumentRow
    lineage: list[DocumentRow]
    acts: list[DocumentRow]
    sections: dict[str, list[DocumentRow]]

    @classmethod
    def of(cls, letter: DeadLetter) -> "DeadLetterMessage":
        """The message of `letter`."""
        page = WorkMessage.of(letter.page)
        return cls(
            is_listed=letter.is_listed,
            replay=PlanLineMessage.of(letter.line),
            item=page.item,
            lineage=page.lineage,
            acts=page.acts,
            sections={name: [dict(row) for row in rows] for name, rows in letter.sections.items()},
        )


class PlanMessage(OperatorAnswer):
    """A plan (C405): applying it names its digest, and is refused if anything has moved."""

    org: str
    digest: str
    planned_at: datetime
    provider_calls: int
    has_more: bool
    lines: list[PlanLineMessage]

    @classmethod
    def of(cls, plan: ReplayPlan) -> "PlanMessage":
        """The message of `plan`."""
        return cls(
            org=plan.org,
            digest=plan.digest,
            planned_at=plan.planned_at,
            provider_calls=plan.provider_calls,
            has_more=plan.has_more,
            lines=[PlanLineMessage.of(line) for line in plan.lines],
        )


class ReplayEnd(StrEnum):
    """What came of one item of a plan that was applied."""

    REPLAYED = "replayed"
    REPLAYED_BEFORE = "replayed_before"
    """By an earlier run of the same plan, or by somebody else meanwhile."""

    LEFT = "left"
    """Its verdict was another one than safe to replay."""

    REFUSED = "refused"
    """It was safe when the plan began, and no longer when its turn came."""


class AppliedLine(OperatorAnswer):
    """One item of a plan that was applied."""

    work_id: UUID
    end: ReplayEnd
    detail: str
    new_work_id: UUID | None = None


class AppliedPlan(OperatorAnswer):
    """What came of each item of a plan, in the order in which they were taken."""

    org: str
    digest: str
    lines: list[AppliedLine]

    @property
    def refused(self) -> int:
        """How many of them were refused when their turn came."""
        return sum(line.end is ReplayEnd.REFUSED for line in self.lines)


class ReplayReport(OperatorAnswer):
    """The new item, and the ended one that it replays."""

    work_id: UUID
    new_work_id: UUID
    run_after: datetime

    @classmethod
    def of(cls, replayed: Replayed) -> "ReplayReport":
        """The report of `replayed`."""
        return cls(
            work_id=replayed.replays,
            new_work_id=replayed.ref.work,
            run_after=replayed.ref.run_after,
        )


class CancelReport(OperatorAnswer):
    """What a cancellation came to: ended, or asked of whoever holds the item."""

    work_id: UUID
    item_state: str
    execution_status: str | None
    is_cancelled: bool
    lease_until: datetime | None

    @classmethod
    def of(cls, end: CancelEnd) -> "CancelReport":
        """The report of `end`."""
        return cls(
            work_id=end.work,
            item_state=end.item_state,
            execution_status=end.execution_status,
            is_cancelled=end.item_state == "cancelled",
            lease_until=end.lease_until,
        )


class ReclaimReport(OperatorAnswer):
    """What a reclaim came to: an attempt settled as lost, or an item that may be claimed again."""

    work_id: UUID
    is_lost: bool
    lookup_work_id: UUID | None

    @classmethod
    def of(cls, work: UUID, reclaimed: Reclaimed) -> "ReclaimReport":
        """The report of `reclaimed`."""
        return cls(
            work_id=work,
            is_lost=reclaimed.is_lost,
            lookup_work_id=reclaimed.wake.work if reclaimed.is_lost else None,
        )


def cursor_of(position: Position) -> str:
    """Where the next page begins, in one word."""
    micros = (position.at - _EPOCH) // timedelta(microseconds=1)
    return f"{micros}.{position.work}"


def position_of(cursor: str | None) -> Position | None:
    """
    The position that `cursor` names.

    Raises:
        RequestRefused: It names none.
    """
    if cursor is None:
        return None
    micros, _, work = cursor.partition(".")
    try:
        # Bounded first: a number of any length is one that int() would read.
        if len(micros) < len(str(_MICROS_MAX)):
            at = _EPOCH + timedelta(microseconds=int(micros))
            return Position(at=at, work=UUID(work))
    except ValueError:
        pass
    raise RequestRefused(
        status=HTTPStatus.UNPROCESSABLE_ENTITY,
        code="query_invalid",
        detail="after: give `next_after` exactly as the page before shows it",
    )
