"""Staging payload bytes ahead of their handoff, once per org and digest."""

from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.ids import PayloadDigest
from oncefence.storage import staged_payloads
from oncefence.storage.engine import run_phase
from oncefence.storage.phases.authenticate import Caller
from oncefence.storage.sealing import KeyRing


async def stage_payload(
    engine: AsyncEngine, ring: KeyRing, caller: Caller, digest: PayloadDigest, payload: bytes
) -> None:
    """Keep the bytes of `digest` sealed until a handoff names them; again is the same."""
    org = caller.scope.org
    address = caller.org_key.address(digest)
    key, wrapped, key_id = ring.new_key("staged", org, address.hex())

    async def transaction() -> None:
        async with engine.begin() as connection:
            await staged_payloads.stage(
                connection,
                {
                    "org_id": org,
                    "payload_address": address,
                    "wrapped_key": wrapped,
                    "key_id": key_id,
                    "ciphertext": key.seal(payload, "staged", org, address.hex()),
                },
            )

    await run_phase("stage_payload", transaction)
