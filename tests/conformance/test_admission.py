"""A handoff key belongs to one work scope, by each of its parts (C523, C524)."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from oncefence.domain.command import Handover
from oncefence.domain.errors import ScopeRefused
from tests.support.world import World

pytestmark = pytest.mark.asyncio(loop_scope="module")

PARTS = {
    "org": "another-org",
    "installation": "another-crm",
    "capability": "another-outbox",
    "work_binding_digest": "cd" * 32,
}
VERBS: dict[str, Callable[[World, Handover], Awaitable[object]]] = {
    "accept": lambda world, handover: world.accept(handover),
    "reject": lambda world, handover: world.reject(handover),
}
ADMISSION = ("handoffs", "commands", "executions", "work_items", "handoff_conflicts")


@pytest.mark.parametrize("is_admitted", [True, False], ids=["admitted", "unknown"])
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("part", PARTS)
async def test_a_caller_of_another_scope_is_told_one_thing_and_writes_nothing(
    world: World, part: str, verb: str, is_admitted: bool
) -> None:
    """Whether the key is taken or not, so that nobody finds out which keys there are (C191)."""
    handover = await world.offer()
    if is_admitted:
        await world.accept(handover)
    before = [await world.count(table) for table in ADMISSION]
    other = replace(world.caller.scope, **{part: PARTS[part]})
    world.caller = replace(world.caller, scope=other)

    with pytest.raises(ScopeRefused) as refused:
        await VERBS[verb](world, handover)

    assert str(refused.value) == str(ScopeRefused())
    assert [await world.count(table) for table in ADMISSION] == before
