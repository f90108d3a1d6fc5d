"""Showing one ended item with all that it stands on, in one read (C400)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from oncefence.domain.ids import OrgId, WorkId
from oncefence.domain.limits import Limits
from oncefence.storage.dead_letters import DeadLetterFilter, dead_letters_of
from oncefence.storage.engine import run_phase
from oncefence.storage.phases.read_command import SECTIONS, SNAPSHOT
from oncefence.storage.phases.show_work import Fields, WorkPage, read_page
from oncefence.storage.replay_facts import PlanLine, plan_lines


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """An ended item, its line, its command with everything of it, and what a replay would do."""

    page: WorkPage
    is_listed: bool
    """Whether it is in the queue; it leaves where its execution settled well, or by a replay."""

    line: PlanLine
    sections: Mapping[str, Sequence[Fields]]
    """Of its command, by the names of `read_command`; empty for an item without one."""


async def show_dead_letter(
    engine: AsyncEngine, org: OrgId, work: WorkId, limits: Limits
) -> DeadLetter:
    """
    The page of one item, all of one moment. An item that is no dead letter has one too.

    Raises:
        NoSuchTarget: The org has no such item.
    """

    async def transaction() -> DeadLetter:
        async with engine.begin() as connection:
            await connection.execute(SNAPSHOT)
            page = await read_page(connection, org, work)
            listed = await dead_letters_of(connection, org, DeadLetterFilter(work=work), limit=1)
            (line,) = await plan_lines(connection, org, [work], limits)
            return DeadLetter(
                page=page,
                is_listed=bool(listed),
                line=line,
                sections=await _of_command(connection, page),
            )

    return await run_phase("show_dead_letter", transaction)


async def _of_command(
    connection: AsyncConnection, page: WorkPage
) -> Mapping[str, Sequence[Fields]]:
    command = page.item["command_id"]
    if command is None:
        return {}
    place = {"org": page.item["org_id"], "command": command}
    return {
        name: [dict(row) for row in (await connection.execute(text(query), place)).mappings()]
        for name, query in SECTIONS.items()
    }
