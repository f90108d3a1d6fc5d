"""The messages about pauses: what is to be held back, what is, and how it comes back (C57)."""

from datetime import datetime
from typing import Annotated, Self
from uuid import UUID

from pydantic import Field

from oncefence.app.operator_messages import ORG_FORM, ActRequest, NotedRequest, OperatorAnswer
from oncefence.domain.ids import OrgId, PrincipalBindingId
from oncefence.domain.pause import RAMP_SECONDS_DEFAULT, RAMP_SECONDS_MAX, PauseScope, PauseState
from oncefence.storage.phases.list_pauses import ListedPause
from oncefence.storage.phases.pause_work import Pause

Org = Annotated[OrgId, Field(pattern=ORG_FORM, description="an org; * is every org")]
Name = Annotated[str, Field(min_length=1, max_length=200, pattern="^[!-~]+$")]


class PauseRequest(NotedRequest):
    """What is to be held back: whatever fits all that is named."""

    org: Org
    provider: Name | None = None
    operation: Name | None = None
    binding_id: Annotated[UUID, Field(strict=False)] | None = None

    @property
    def scope(self) -> PauseScope:
        """
        The scope that is named.

        Raises:
            ActRefused: It is too wide, or is one of no org.
        """
        binding = None if self.binding_id is None else PrincipalBindingId(self.binding_id)
        return PauseScope(
            org=self.org, provider=self.provider, definition=self.operation, binding=binding
        )


class ResumeRequest(ActRequest):
    """The end of a pause, at once or over the time of a ramp."""

    org: Org
    ramp_seconds: Annotated[float, Field(ge=0, le=RAMP_SECONDS_MAX, strict=False)] = (
        RAMP_SECONDS_DEFAULT
    )


class PauseRow(OperatorAnswer):
    """One pause; `version` is what resuming it asks for."""

    pause_id: UUID
    org: str
    provider: str | None
    operation: str | None
    binding_id: UUID | None
    version: PauseState
    paused_by: str
    note: str
    paused_at: datetime
    resumed_by: str | None
    resumed_note: str | None
    resumed_at: datetime | None
    ramp_seconds: float | None
    items: int | None = None
    """How many it holds, of the reader's orgs; null where nobody counted."""

    oldest_due_at: datetime | None = None

    @classmethod
    def of(cls, pause: Pause) -> Self:
        """The row of a pause that nobody counted."""
        scope = pause.scope
        return cls(
            pause_id=pause.pause,
            org=scope.org,
            provider=scope.provider,
            operation=scope.definition,
            binding_id=scope.binding,
            version=pause.state,
            paused_by=pause.paused_by,
            note=pause.paused_note,
            paused_at=pause.paused_at,
            resumed_by=pause.resumed_by,
            resumed_note=pause.resumed_note,
            resumed_at=pause.resumed_at,
            ramp_seconds=pause.ramp_seconds,
        )

    @classmethod
    def of_listed(cls, listed: ListedPause) -> Self:
        """The row of a pause with what it holds."""
        counted = {"items": listed.items, "oldest_due_at": listed.oldest_due_at}
        return cls.of(listed.pause).model_copy(update=counted)


class PauseRows(OperatorAnswer):
    """The pauses that hold something back, newest first."""

    pauses: list[PauseRow]


class PauseReport(OperatorAnswer):
    """What an act on a pause came to; `is_new` is false where it had been done before."""

    pause: PauseRow
    is_new: bool
