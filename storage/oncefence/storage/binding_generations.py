"""Sole writer of `binding_generations`: the authority that commands pin."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import Row, bindparam, case, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.domain.authorization import Retirement
from oncefence.domain.ids import BindingGenerationId, OrgId, PrincipalBindingId
from oncefence.storage.tables import binding_generations

# What changes who is current stands in line before it looks: a generation that is not there yet
# has no row to lock.
IN_LINE = text(
    "SELECT pg_advisory_xact_lock(hashtextextended('generation:' || :org || ':' || :binding, 0))"
)

ADD = insert(binding_generations)
LOCK_NEWEST = (
    select(binding_generations)
    .where(
        binding_generations.c.org_id == bindparam("of_org"),
        binding_generations.c.binding_id == bindparam("of_binding"),
    )
    .order_by(binding_generations.c.ordinal.desc())
    .limit(1)
    .with_for_update()
)
RETIRE = (
    update(binding_generations)
    .where(
        binding_generations.c.org_id == bindparam("of_org"),
        binding_generations.c.generation_id == bindparam("of_generation"),
        binding_generations.c.state == "current",
    )
    .values(
        state="retired",
        retired_because=bindparam("why"),
        wrapped_key=case(
            (bindparam("keeps_key").is_(True), binding_generations.c.wrapped_key), else_=None
        ),
    )
)
ERASE_KEY = (
    update(binding_generations)
    .where(
        binding_generations.c.org_id == bindparam("of_org"),
        binding_generations.c.generation_id == bindparam("of_generation"),
        binding_generations.c.state == "retired",
    )
    .values(wrapped_key=None)
)
# In one statement: what is sealed under the new key is the next version, and no other.
REWRAP = (
    update(binding_generations)
    .where(
        binding_generations.c.org_id == bindparam("of_org"),
        binding_generations.c.generation_id == bindparam("of_generation"),
    )
    .values(
        wrapped_key=bindparam("wrapped_key"),
        key_id=bindparam("key_id"),
        token_version=bindparam("token_version"),
    )
)

# NO KEY UPDATE: whoever relies on the token that is used holds the row FOR SHARE, and waits.
LOCK_TOKENS = (
    select(binding_generations)
    .where(
        binding_generations.c.org_id == bindparam("of_org"),
        binding_generations.c.generation_id == bindparam("of_generation"),
    )
    .with_for_update(key_share=True)
)
GO_ON = (
    update(binding_generations)
    .where(
        binding_generations.c.org_id == bindparam("of_org"),
        binding_generations.c.generation_id == bindparam("of_generation"),
    )
    .values(token_version=bindparam("to_version"))
)


async def add(connection: AsyncConnection, values: Mapping[str, Any]) -> None:
    """Add one row."""
    await connection.execute(ADD, values)


async def lock_newest(
    connection: AsyncConnection, org: OrgId, binding: PrincipalBindingId
) -> Row[Any] | None:
    """
    The newest generation of the binding, locked until COMMIT; None where it has none yet.

    Until COMMIT nobody else makes one for it either.
    """
    await connection.execute(IN_LINE, {"org": org, "binding": str(binding)})
    found = await connection.execute(LOCK_NEWEST, {"of_org": org, "of_binding": binding})
    return found.one_or_none()


async def retire(
    connection: AsyncConnection,
    org: OrgId,
    generation: BindingGenerationId,
    *,
    because: Retirement,
    keeps_key: bool,
) -> None:
    """
    The locked, current generation ends; without `keeps_key` its tokens never open again.

    Whoever marked an attempt with it before this COMMIT holds its token already.
    """
    await connection.execute(
        RETIRE,
        {
            "of_org": org,
            "of_generation": generation,
            "why": because.value,
            "keeps_key": keeps_key,
        },
    )


async def erase_key(
    connection: AsyncConnection, org: OrgId, generation: BindingGenerationId
) -> None:
    """The tokens of an ended generation never open again."""
    await connection.execute(ERASE_KEY, {"of_org": org, "of_generation": generation})


async def rewrap(
    connection: AsyncConnection,
    org: OrgId,
    generation: UUID,
    *,
    wrapped_key: bytes,
    key_id: str,
    token_version: int,
) -> None:
    """The locked generation is under another wrapping key, with the version sealed for it."""
    await connection.execute(
        REWRAP,
        {
            "of_org": org,
            "of_generation": generation,
            "wrapped_key": wrapped_key,
            "key_id": key_id,
            "token_version": token_version,
        },
    )


async def lock_tokens(
    connection: AsyncConnection, org: OrgId, generation: BindingGenerationId
) -> Row[Any]:
    """The row, locked until COMMIT against whoever uses its token or goes on to another."""
    found = await connection.execute(LOCK_TOKENS, {"of_org": org, "of_generation": generation})
    return found.one()


async def go_on_to(
    connection: AsyncConnection, org: OrgId, generation: BindingGenerationId, version: int
) -> None:
    """From COMMIT on this token version of the locked generation is the one that is used."""
    await connection.execute(
        GO_ON, {"of_org": org, "of_generation": generation, "to_version": version}
    )
