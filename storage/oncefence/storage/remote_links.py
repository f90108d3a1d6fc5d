"""
Sole writer of `remote_links`: which remote record stands for which local subject.

But for the SQL of acceptance and of the hot phases, which open and close the slots of creates.
"""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import insert, text
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.domain.ids import CommandId, LinkId, OrgId
from oncefence.storage.tables import remote_links

ADD = insert(remote_links)
SLOT_OF = text(
    "SELECT link_id FROM oncefence.commands"
    " WHERE org_id = :org AND command_id = :command AND remote_id IS NULL"
)
FILL_SLOT = text("SELECT oncefence.fill_create_slot(:org, :link, :remote_id)")
GIVE_BACK_SLOT = text("SELECT oncefence.give_back_create_slot(:org, :link)")


async def add(connection: AsyncConnection, values: Mapping[str, Any]) -> None:
    """Add one row."""
    await connection.execute(ADD, values)


async def slot_of(connection: AsyncConnection, org: OrgId, command: CommandId) -> LinkId | None:
    """The slot that a create holds; None for every other command."""
    found = await connection.execute(SLOT_OF, {"org": org, "command": command})
    link = found.scalar_one_or_none()
    return None if link is None else LinkId(link)


async def fill_slot(
    connection: AsyncConnection, org: OrgId, slot: LinkId, remote_id: str | None
) -> bool:
    """
    Make the slot the link of the record that was created.

    False, and nothing is written, where no record is named or another link stands for it.
    """
    found = await connection.execute(FILL_SLOT, {"org": org, "link": slot, "remote_id": remote_id})
    return bool(found.scalar_one())


async def give_back_slot(connection: AsyncConnection, org: OrgId, slot: LinkId) -> None:
    """End the slot of a create that came to nothing, so that another may be accepted."""
    await connection.execute(GIVE_BACK_SLOT, {"org": org, "link": slot})
