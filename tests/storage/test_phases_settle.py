"""Settling an attempt: what each outcome does to both lifecycles, in one transaction."""

import pytest
from oncefence.domain.effect import Outcome
from tests.support.world import World

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_smoke(world: World) -> None:
    """x."""
    a, s = await world.a_running_command()
    await world.settle(s, Outcome.ACCEPTED)
    assert await world.states(a) == ("succeeded", "succeeded")
    a, s = await world.a_command_for_a_person()
    assert await world.states(a) == ("dead", "needs_attention")
