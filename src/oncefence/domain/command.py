"""A handoff as it is offered, and the receipt that settles what became of it."""

from dataclasses import dataclass
from datetime import datetime

from oncefence.domain.handoff import Admission, EffectHandoffKey
from oncefence.domain.ids import CommandId, ExecutionId, OutboxId, PayloadDigest, WorkId

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
    the first receipt from a repeat of it; `deadline_ms` is the send deadline of the operation.
    """

    admission: Admission
    key: EffectHandoffKey
    admitted_at: datetime
    is_new: bool
    command: CommandId | None = None
    execution: ExecutionId | None = None
    work: WorkId | None = None
    deadline_ms: int | None = None
    reason: str | None = None
