"""
The EffectHandoffKey: the one stable name under which a Runtime hands one effect over.

The text is `ehk1.<org>.<installation>.<capability>.<digest>.<local>`. Everything before the
local part is the TrustedRuntimeWorkScope, which comes from the caller's credential alone.
"""

import base64
import hashlib
import re
from dataclasses import dataclass
from enum import StrEnum

from oncefence.domain.errors import HandoffKeyMalformed
from oncefence.domain.ids import (
    CapabilityId,
    InstallationId,
    OrgId,
    OutboxId,
    PayloadDigest,
    WorkBindingDigest,
)

VERSION = "ehk1"
LENGTH_MAX = 512

# fullmatch with explicit ASCII classes: `\w` and `$` would let other alphabets and a
# trailing newline through.
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_LOCAL = re.compile(r"[A-Za-z0-9_-]{1,128}")


class Admission(StrEnum):
    """The one terminal fact that a handoff key may have."""

    COMMAND_ACCEPTED = "COMMAND_ACCEPTED"
    HANDOFF_REJECTED = "HANDOFF_REJECTED"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedRuntimeWorkScope:
    """Whose work this is, as the verified work binding says and never as the caller claims."""

    org: OrgId
    installation: InstallationId
    capability: CapabilityId
    work_binding_digest: WorkBindingDigest

    def __post_init__(self) -> None:
        for part, value in (
            ("org", self.org),
            ("installation", self.installation),
            ("capability", self.capability),
        ):
            if not _NAME.fullmatch(value):
                raise HandoffKeyMalformed(part=part, reason="must match [a-z0-9][a-z0-9_-]{0,62}")
        if not _DIGEST.fullmatch(self.work_binding_digest):
            raise HandoffKeyMalformed(
                part="work-binding digest", reason="must be 64 lower-case hex digits"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectHandoffKey:
    """A scope and a local part; `parse` and `str` are inverse and total."""

    scope: TrustedRuntimeWorkScope
    local: str

    def __post_init__(self) -> None:
        if not _LOCAL.fullmatch(self.local):
            raise HandoffKeyMalformed(part="local part", reason="must match [A-Za-z0-9_-]{1,128}")

    def __str__(self) -> str:
        scope = self.scope
        return ".".join(
            (
                VERSION,
                scope.org,
                scope.installation,
                scope.capability,
                scope.work_binding_digest,
                self.local,
            )
        )

    @classmethod
    def parse(cls, text: str) -> "EffectHandoffKey":
        """
        The key that `text` prints.

        Raises:
            HandoffKeyMalformed: Any text that no key prints as.
        """
        if len(text) > LENGTH_MAX:
            raise HandoffKeyMalformed(part="text", reason=f"is longer than {LENGTH_MAX} bytes")
        parts = text.split(".")
        if len(parts) != 6:
            raise HandoffKeyMalformed(part="text", reason="must have six parts joined by dots")
        version, org, installation, capability, digest, local = parts
        if version != VERSION:
            raise HandoffKeyMalformed(part="version", reason=f"must be {VERSION}")
        return cls(
            scope=TrustedRuntimeWorkScope(
                org=OrgId(org),
                installation=InstallationId(installation),
                capability=CapabilityId(capability),
                work_binding_digest=WorkBindingDigest(digest),
            ),
            local=local,
        )

    @classmethod
    def for_outbox(cls, scope: TrustedRuntimeWorkScope, outbox: OutboxId) -> "EffectHandoffKey":
        """The key of an outbox entry: its own id where that is canonical, else a digest of it."""
        if _LOCAL.fullmatch(outbox):
            return cls(scope=scope, local=outbox)
        digest = hashlib.sha256(outbox.encode("utf-8", "surrogatepass")).digest()
        return cls(scope=scope, local=base64.urlsafe_b64encode(digest).decode().rstrip("="))


def payload_digest(payload: bytes) -> PayloadDigest:
    """The digest of exactly these bytes."""
    return PayloadDigest(hashlib.sha256(payload).hexdigest())


def is_payload_digest(text: str) -> bool:
    """Whether `text` is a digest in canonical form."""
    return _DIGEST.fullmatch(text) is not None
