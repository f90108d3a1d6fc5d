"""Putting on record, under the caller's own org, that it asked for another scope's key."""

from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.errors import ScopeRefused
from oncefence.domain.handoff import EffectHandoffKey, TrustedRuntimeWorkScope
from oncefence.storage import audit
from oncefence.storage.engine import run_phase


async def refuse_other_scope(
    engine: AsyncEngine, scope: TrustedRuntimeWorkScope, key: EffectHandoffKey, *, verb: str
) -> None:
    """
    Compare the caller's scope with the text of the key, before anything is read (C125).

    Raises:
        ScopeRefused: They differ; the same words whether the key exists or not.
    """
    if key.scope == scope:
        return

    async def transaction() -> None:
        async with engine.begin() as connection:
            await audit.add(
                connection,
                scope.org,
                actor=f"runtime:{scope.capability}",
                act=f"handoff.{verb}.scope_refused",
                subject_kind="work_binding",
                subject_id=scope.work_binding_digest,
                note="the handoff key names another work scope",
            )

    await run_phase("refuse_scope", transaction)
    raise ScopeRefused
