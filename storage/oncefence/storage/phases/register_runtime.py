"""Registering a Runtime: its work binding, its credential's hash and its org's key."""

import hashlib
import secrets

from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.errors import Refused
from oncefence.domain.handoff import TrustedRuntimeWorkScope
from oncefence.domain.ids import WorkBindingId, named_id
from oncefence.storage import audit, org_keys, runtime_work_bindings
from oncefence.storage.engine import constraint_name, run_phase
from oncefence.storage.sealing import KeyRing

CREDENTIAL_PREFIX = "ofc1_"


def credential_hash(credential: str) -> bytes:
    """The stored form; a credential has 256 random bits, so a plain hash cannot be guessed."""
    return hashlib.sha256(credential.encode("utf-8", "surrogateescape")).digest()


class ScopeTaken(Refused):
    """This scope has a work binding already, and its credential was shown once."""

    def __str__(self) -> str:
        return (
            "this org, installation, capability and digest are registered already; "
            "the credential was printed then. Register under another capability or digest"
        )


async def register_runtime(
    engine: AsyncEngine,
    ring: KeyRing,
    scope: TrustedRuntimeWorkScope,
    *,
    actor: str,
    public_key: bytes | None = None,
) -> str:
    """
    Register the scope and give back its bearer credential, which is nowhere stored.

    With `public_key` (Ed25519, 32 raw bytes) it may also hand over through Temporal (C137).

    Raises:
        ScopeTaken: The scope is registered already.
    """
    credential = CREDENTIAL_PREFIX + secrets.token_urlsafe(32)
    _, wrapped, key_id = ring.new_key("org", scope.org)
    binding = WorkBindingId(
        named_id(
            "work-binding",
            scope.org,
            scope.installation,
            scope.capability,
            scope.work_binding_digest,
        )
    )

    async def transaction() -> None:
        async with engine.begin() as connection:
            await org_keys.add(
                connection, {"org_id": scope.org, "wrapped_key": wrapped, "key_id": key_id}
            )
            await runtime_work_bindings.add(
                connection,
                {
                    "org_id": scope.org,
                    "work_binding_id": binding,
                    "installation": scope.installation,
                    "capability": scope.capability,
                    "work_binding_digest": scope.work_binding_digest,
                    "credential_hash": credential_hash(credential),
                    "public_key": public_key,
                },
            )
            await audit.add(
                connection,
                scope.org,
                actor=actor,
                act="runtime.register",
                subject_kind="work_binding",
                subject_id=str(binding),
            )

    try:
        await run_phase("register_runtime", transaction)
    except Exception as error:
        if constraint_name(error) in ("runtime_work_bindings_pkey", "one_work_binding_per_scope"):
            raise ScopeTaken from None
        raise
    return credential
