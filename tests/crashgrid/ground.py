"""What a cell stands on before its first life: an account, a record, and the provider's rules."""

import http.client
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.ids import OrgId
from oncefence.domain.redaction import Secret
from oncefence.simulator.faults import Fault
from oncefence.simulator.in_process import SimulatorHere
from oncefence.storage.phases.add_principal_binding import add_principal_binding
from oncefence.storage.phases.adopt_link import adopt_link
from oncefence.storage.phases.publish_view import publish_view
from oncefence.storage.phases.register_runtime import register_runtime
from tests.crashgrid.cell import Cell, Story
from tests.crashgrid.renewing import connect_account
from tests.crashgrid.world import (
    PUBLIC_KEY,
    RING,
    SUBJECT,
    operation_of,
    payload_of,
    token_of,
    view_of,
)
from tests.support.world import INSTALLATION, scope_of

_FIRST_CONTACT = 100_000
# After the send was given up, and before the last lookup.
_LATE_SECONDS = 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """Where a slot's database and provider are."""

    database_url: str
    provider_port: int
    admin_port: int
    restart_database: Callable[[], None] | None = None
    """Of the slot that has servers of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What was made for one cell."""

    org: str
    contact: str | None
    """None where the story makes the record itself."""
    base_url: str
    credential: str | None
    """None where the story makes the account itself."""


async def make_ground(
    engine: AsyncEngine,
    servers: Servers,
    cell: Cell,
    provider: SimulatorHere | None = None,
    *,
    token_url: str | None = None,
) -> Ground:
    """
    An org, a record of its own and an account; without the latter where an operator comes.

    `provider` is the cell's own where the story makes the record; `token_url` is where tokens are
    renewed, of a story in which they are.
    """
    if provider is not None:
        for rule in _rules(cell, {}, {"operation": "search"}):
            provider.strike(**rule)
        if cell.is_there:
            provider.add_record(properties=json.loads(payload_of(cell)))
        ground = Ground(org=cell.name, contact=None, base_url=provider.base_url, credential=None)
    else:
        ground = _with_record(servers, cell)
    if cell.story is Story.SETUP:
        return ground
    org, view = OrgId(ground.org), view_of(cell)
    operation = view.operation(operation_of(cell))
    credential = await register_runtime(
        engine, RING, scope_of(org), actor="grid", public_key=PUBLIC_KEY
    )
    await publish_view(engine, org, INSTALLATION, view, actor="grid")
    binding = await add_principal_binding(
        engine,
        RING,
        org,
        name=view.principal,
        provider=view.pack,
        base_url=token_url or ground.base_url,
        is_local=True,
        token=Secret(token_of(cell)),
        actor="grid",
    )
    if cell.story.renews:
        await connect_account(
            engine,
            RING,
            org,
            binding,
            story=cell.story,
            provider=view.pack,
            base_url=ground.base_url,
            token=token_of(cell),
        )
    if ground.contact is not None:
        await adopt_link(
            engine,
            org,
            binding_name=view.principal,
            local_object=operation.local_object,
            subject=SUBJECT,
            remote_object=operation.remote_object,
            remote_id=ground.contact,
            actor="grid",
        )
    return replace(ground, credential=credential)


def _with_record(servers: Servers, cell: Cell) -> Ground:
    contact = str(_FIRST_CONTACT + int(cell.name.rsplit("-", 1)[-1]))
    _tell(servers, "/contacts", {"id": contact, "properties": {"jobtitle": "before"}})
    rules = _rules(cell, {"contact": contact}, {"contact": contact, "method": "GET"})
    if rules:
        _tell(servers, "/script", rules)
    return Ground(
        org=cell.name,
        contact=contact,
        base_url=f"http://127.0.0.1:{servers.provider_port}",
        credential=None,
    )


def _tell(servers: Servers, path: str, body: object) -> None:
    # Blocking, and short: nothing of this slot happens while its ground is made.
    connection = http.client.HTTPConnection("127.0.0.1", servers.admin_port, timeout=10)
    try:
        connection.request("POST", path, json.dumps(body).encode())
        answer = connection.getresponse()
        said = answer.read().decode()
        assert answer.status == 201, said
    finally:
        connection.close()


def _rules(cell: Cell, write: dict[str, str], read: dict[str, str]) -> list[dict[str, Any]]:
    """What goes wrong with a request of the cell that writes, and with one that reads."""
    rules: list[dict[str, Any]] = []
    if cell.fault is Fault.REFUSE:
        # Nobody knows at accept what a connection will ask for, so it is not told of whom.
        rules.append({"fault": cell.fault.value})
    elif cell.fault is Fault.LATE_ANSWER and cell.freezes:
        # Without a time it waits for its client to give up, and a frozen one holds on: longer
        # than any horizon that a provider could declare.
        rules.append({"fault": cell.fault.value, "delay_s": _LATE_SECONDS} | write)
    elif cell.fault is not None:
        rules.append({"fault": cell.fault.value} | write)
    if cell.story is Story.OPERATE and cell.fault is not Fault.REFUSE:
        # The first request that comes to an answer is declined, and so there is what to replay.
        rules.append({"fault": Fault.REJECT_400.value} | write)
    if cell.lookup_fault is not None:
        rules.append({"fault": cell.lookup_fault.value} | read)
    return rules
