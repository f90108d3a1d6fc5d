"""The admission that stands for a handoff key, and the receipt that it is."""

from typing import Any

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain import ids
from oncefence.domain.command import Receipt
from oncefence.domain.handoff import Admission, EffectHandoffKey
from oncefence.domain.ids import CommandId
from oncefence.storage import handoffs
from oncefence.storage.driver_connection import AnyRow
from oncefence.storage.engine import one_statement, run_phase


async def find_admission(engine: AsyncEngine, key: EffectHandoffKey) -> Row[Any] | None:
    """The admission row of `key`, read without a lock."""

    async def transaction() -> Row[Any] | None:
        async with one_statement(engine).connect() as connection:
            return await handoffs.find(connection, key)

    return await run_phase("find_admission", transaction)


def receipt_of(key: EffectHandoffKey, row: AnyRow, *, is_new: bool) -> Receipt:
    """The receipt that an admission row stands for."""
    if row.admission == Admission.HANDOFF_REJECTED:
        return Receipt(
            admission=Admission.HANDOFF_REJECTED,
            key=key,
            admitted_at=row.admitted_at,
            is_new=is_new,
            reason=row.reason,
        )
    command = CommandId(row.command_id)
    return Receipt(
        admission=Admission.COMMAND_ACCEPTED,
        key=key,
        admitted_at=row.admitted_at,
        is_new=is_new,
        command=command,
        execution=ids.execution_id(command),
        work=ids.dispatch_work_id(command, 1),
    )
