"""
What a Runtime signs when it hands work over through Temporal, and how that is read (C137).

Temporal keeps and shows what it carries. So every part of a message is an identifier in a form
that holds neither a blank nor an address, and whatever is not is refused before it gets there.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from oncefence.domain.errors import Refused
from oncefence.domain.handoff import EffectHandoffKey, is_payload_digest
from oncefence.domain.ids import OutboxId, PayloadDigest

SIGNED_AS: Final = "oncefence.handoff.v1"
"""Parts these signatures from all others that the same key may ever make."""

# No blank, no `@` and no other alphabet: a name, a sentence or a mail address does not fit.
_IDENTIFIER: Final = re.compile(r"[A-Za-z0-9._:/=+~-]{1,256}")
_OPERATION: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,99}")
_SIGNATURE: Final = re.compile(r"[0-9a-f]{128}")


class HandoffVerb(StrEnum):
    """What a signature asks for; one that was made for the other verb is worth nothing."""

    ACCEPT = "accept"
    REJECT_IF_UNACCEPTED = "reject_if_unaccepted"


@dataclass(eq=False)
class HandoffMessageMalformed(Refused):
    """A member of a signed message is not of its form; its value is not repeated."""

    member: str
    reason: str

    def __str__(self) -> str:
        return f"{self.member} {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffClaim:
    """A handoff as a Runtime states it; `operation` and `subject` belong to an acceptance."""

    verb: HandoffVerb
    key: EffectHandoffKey
    digest: PayloadDigest
    outbox: OutboxId
    operation: str | None = None
    subject: str | None = None

    def signed_text(self) -> bytes:
        """
        The bytes that the signature covers.

        Each part is written as its length in bytes, a colon, itself and a comma, so that no two
        claims share a text, whatever their parts contain.
        """
        parts = [
            SIGNED_AS,
            self.verb,
            str(self.key),
            self.key.scope.work_binding_digest,
            self.digest,
            self.outbox,
        ]
        if self.operation is not None and self.subject is not None:
            parts += [self.operation, self.subject]
        encoded = (part.encode() for part in parts)
        return b"".join(b"%d:%b," % (len(part), part) for part in encoded)


def read_claim(
    verb: HandoffVerb,
    *,
    handoff_key: str,
    payload_digest: str,
    outbox_id: str,
    operation: str | None = None,
    subject: str | None = None,
) -> HandoffClaim:
    """
    The claim that these texts make.

    Raises:
        HandoffKeyMalformed: The key is not canonical.
        HandoffMessageMalformed: Another member is not of its form.
    """
    key = EffectHandoffKey.parse(handoff_key)
    if not is_payload_digest(payload_digest):
        raise HandoffMessageMalformed(
            member="payload_digest",
            reason="must be the SHA-256 of the payload's exact bytes as 64 lower-case hex digits",
        )
    _check_identifier("outbox_id", outbox_id)
    if verb is HandoffVerb.ACCEPT:
        if operation is None or not _OPERATION.fullmatch(operation):
            raise HandoffMessageMalformed(
                member="operation", reason="must be the name of an operation"
            )
        _check_identifier("subject", subject or "")
    return HandoffClaim(
        verb=verb,
        key=key,
        digest=PayloadDigest(payload_digest),
        outbox=OutboxId(outbox_id),
        operation=operation,
        subject=subject,
    )


def read_signature(text: str) -> bytes:
    """
    The 64 bytes of a signature.

    Raises:
        HandoffMessageMalformed: The text is none.
    """
    if not _SIGNATURE.fullmatch(text):
        raise HandoffMessageMalformed(
            member="signature", reason="must be 128 lower-case hex digits"
        )
    return bytes.fromhex(text)


def _check_identifier(member: str, text: str) -> None:
    if not _IDENTIFIER.fullmatch(text):
        raise HandoffMessageMalformed(
            member=member,
            reason="must be 1 to 256 of A-Z a-z 0-9 . _ : / = + ~ - to travel through Temporal, "
            "which shows it; hand anything else over through HTTP",
        )
