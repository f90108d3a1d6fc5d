"""The ExternalCommand, the handoff that asks for one, and the receipt that answers it."""

from dataclasses import dataclass, field
from datetime import datetime

from oncefence.domain.handoff import Admission, EffectHandoffKey
from oncefence.domain.ids import (
    BindingGenerationId,
    CommandId,
    ExecutionId,
    OutboxId,
    PayloadDigest,
    PrincipalBindingId,
    ViewId,
    WorkId,
)
from oncefence.domain.lane import source_lane, target_lane
from oncefence.domain.remote_link import LinkPin

OUTBOX_ID_LENGTH_MAX = 256
SUBJECT_LENGTH_MAX = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """What a Runtime asks to have done: an operation on a subject with a payload it has put."""

    key: EffectHandoffKey
    outbox: OutboxId
    digest: PayloadDigest
    operation: str
    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """
    The one terminal fact of a handoff key.

    Accepted: `command`, `execution` and `work` are set. Rejected: `reason` is. `is_new` tells
    the first receipt from a repeat of it, and the first one alone knows when the work is due, its
    family and the send deadline of its operation. `has_room` says that few were alive in its class
    when it was accepted and nothing was paused, so that nobody need be asked whether it may start;
    it is a hint and no part of the fact.
    """

    admission: Admission
    key: EffectHandoffKey
    admitted_at: datetime
    is_new: bool
    command: CommandId | None = None
    execution: ExecutionId | None = None
    work: WorkId | None = None
    due: datetime | None = None
    deadline_ms: int | None = None
    has_room: bool = field(default=False, compare=False)
    family: str | None = field(default=None, compare=False)
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalCommand:
    """
    One accepted intent, immutable, with everything that it relies on pinned (C141).

    A later view, generation or link version never reaches it: it is performed as pinned, or it
    ends with the class that says which pin no longer holds.
    """

    command: CommandId
    handover: Handover
    provider: str
    endpoint_class: str
    view: ViewId
    view_digest: str
    binding: PrincipalBindingId
    generation: BindingGenerationId
    link: LinkPin
    deadline_ms: int
    lookup_deadline_ms: int | None
    is_sensitive: bool
    keeps_source_order: bool = True
    keeps_target_order: bool = True

    @property
    def is_create(self) -> bool:
        """Whether its record is still to be made: it holds a create slot instead of a link."""
        return self.link.remote_id is None

    @property
    def source_lane(self) -> str | None:
        """What the same local record gave rise to happens one after the other, where declared."""
        return source_lane(self.handover.subject) if self.keeps_source_order else None

    @property
    def target_lane(self) -> str | None:
        """What changes the same remote record happens one after the other, where declared."""
        if not self.keeps_target_order:
            return None
        return target_lane(self.generation, self.link.link)
