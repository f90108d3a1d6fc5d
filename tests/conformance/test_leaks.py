"""Nothing that somebody else wrote gets into a row that operators see, or into a log (C517)."""

import pytest

from oncefence.storage import work_items
from oncefence.storage.engine import constraint_name
from tests.conformance.family import Family, claim
from tests.support.world import World

pytestmark = pytest.mark.asyncio(loop_scope="module")

BAD_SUMMARIES = ("two\nlines", "an umlaut: \u00fc", "x" * 201)


@pytest.mark.parametrize("summary", BAD_SUMMARIES, ids=["lines", "not ASCII", "long"])
async def test_a_summary_is_one_short_printable_line(
    world: World, family: Family, summary: str
) -> None:
    """Held by the database, whoever writes it (C43)."""
    held = await claim(family, world, await family.pending(world))

    with pytest.raises(Exception) as refused:  # its constraint is what counts
        async with world.engine.begin() as connection:
            await work_items.leave(
                connection, held.fence, target="retry", trigger="defer", summary=summary
            )

    assert constraint_name(refused.value) == "summary_is_short_and_printable"
