"""What a pause holds back, and how claims begin again after it."""

from uuid import uuid4

import pytest

from oncefence.domain.claim import ClaimVerdict
from oncefence.domain.limits import Limits
from oncefence.storage.claims import NotStarted
from oncefence.storage.phases.claim_work import ClaimedWork
from oncefence.storage.phases.start_attempt import Started
from oncefence.storage.phases.start_lookup import LookupStarted
from tests.storage.racing import all_at_once
from tests.storage.unnamed_family import an_item, claim, end, held, pause, renew, resume, verdict
from tests.support.servers import Database
from tests.support.world import World, seconds

pytestmark = pytest.mark.asyncio(loop_scope="module")


class TestAPause:
    @pytest.mark.parametrize(
        ("scope", "expected"),
        [
            ({}, "paused"),
            ({"provider": "a-provider"}, "paused"),
            ({"definition": "a.definition"}, "paused"),
            ({"provider": "a-provider", "definition": "a.definition"}, "paused"),
            ({"provider": "b-provider"}, "claimed"),
            ({"definition": "b.definition"}, "claimed"),
            ({"provider": "a-provider", "definition": "b.definition"}, "claimed"),
            ({"binding_id": "own"}, "paused"),
            ({"binding_id": "another"}, "claimed"),
            ({"org_id": "another"}, "claimed"),
        ],
    )
    async def test_holds_what_it_is_about_and_nothing_else(
        self, world: World, scope: dict[str, object], expected: str
    ) -> None:
        """One account in trouble is no reason to stop the others."""
        named = {"own": world.binding, "another": uuid4()}
        if scope.get("org_id") == "another":
            named = {"another": f"{world.org}-other"}
        work = await an_item(world)
        await pause(world, **{key: named.get(value, value) for key, value in scope.items()})

        assert await verdict(world, work) == expected

    async def test_of_every_org_holds_each_of_them(self, store: Database) -> None:
        """A provider that is down is down for all tenants."""
        world, other = await World.make(store), await World.make(store)
        works = [(each, await an_item(each)) for each in (world, other)]
        await world.sql(
            "INSERT INTO oncefence.pauses (org_id, pause_id, definition, paused_by, paused_note)"
            " SELECT '*', gen_random_uuid(), 'a.definition', 'ann', 'n' WHERE :org <> ''"
        )
        try:
            assert [await verdict(each, work) for each, work in works] == ["paused"] * 2
        finally:
            await world.sql(
                "UPDATE oncefence.pauses SET resumed_by = 'ann', resumed_note = 'n',"
                " resumed_at = clock_timestamp(), ramp_seconds = 0"
                " WHERE org_id = '*' AND :org <> ''"
            )
        assert [await verdict(each, work) for each, work in works] == ["claimed"] * 2

    async def test_lets_who_holds_an_item_come_to_the_end(self, world: World) -> None:
        """It stops claims and nothing that was begun."""
        fence = await held(world)
        await pause(world)

        await renew(world, fence)
        assert (await end(world, fence)).item_state == "succeeded"

    async def test_that_is_over_starts_slowly(self, world: World) -> None:
        """A provider that has just come back is not met by all that waited at once."""
        works = [await an_item(world) for _ in range(3)]
        await pause(world)
        await resume(world, ago="1 hour", ramp_seconds=36_000)
        limits = Limits(admission_window=20)

        answers = [await claim(world, work, limits=limits) for work in works]

        # A tenth of the way, so two of the twenty.
        assert [isinstance(answer, ClaimedWork) for answer in answers] == [True, True, False]
        last = answers[-1]
        assert isinstance(last, NotStarted)
        assert last.verdict is ClaimVerdict.SLOW_START
        assert last.until is not None
        assert last.until > await world.now() - seconds(60)

    async def test_that_is_over_lets_one_through_from_the_first_moment(self, world: World) -> None:
        """Somebody has to find out whether it works again."""
        works = [await an_item(world) for _ in range(2)]
        await pause(world)
        await resume(world, ago="0 s", ramp_seconds=36_000)

        assert [await verdict(world, work) for work in works] == ["claimed", "slow_start"]

    async def test_that_is_over_counts_nobody_of_another_org(self, store: Database) -> None:
        """A tenant that is busy takes nothing of what another one may run."""
        world, other = await World.make(store), await World.make(store)
        assert await verdict(other, await an_item(other)) == "claimed"
        await pause(world)
        await resume(world, ago="0 s", ramp_seconds=36_000)

        assert await verdict(world, await an_item(world)) == "claimed"

    async def test_that_is_over_counts_those_who_come_at_once(self, world: World) -> None:
        """Each would see that nobody runs yet, and all of them would."""
        works = [await an_item(world) for _ in range(4)]
        await pause(world)
        await resume(world, ago="0 s", ramp_seconds=36_000)

        answers = await all_at_once(
            world.database,
            [claim(world, work) for work in works],
            "SELECT FROM oncefence.pauses WHERE org_id = $1 FOR UPDATE",
            world.org,
        )

        assert sum(isinstance(answer, ClaimedWork) for answer in answers) == 1
        assert {answer.verdict for answer in answers if isinstance(answer, NotStarted)} == {
            ClaimVerdict.SLOW_START
        }

    async def test_whose_ramp_is_over_holds_nobody(self, world: World) -> None:
        """All may run again that could before."""
        works = [await an_item(world) for _ in range(3)]
        await pause(world)
        await resume(world, ago="1 hour", ramp_seconds=3_599)

        assert {await verdict(world, work) for work in works} == {"claimed"}


async def test_a_mark_is_held_up_by_a_pause_too(world: World) -> None:
    """The dispatch has a claim of its own, and asks for the same obstacles."""
    accepted = await world.accept_command()
    await pause(world, binding_id=world.binding)

    answer = await world.try_to_start(accepted)

    assert isinstance(answer, NotStarted)
    assert answer.verdict is ClaimVerdict.PAUSED
    await resume(world, ago="0 s", ramp_seconds=0)
    assert isinstance(await world.try_to_start(accepted), Started)


@pytest.mark.parametrize("named", ["provider", "definition", "binding_id"])
async def test_a_lookup_is_held_up_by_a_pause_of_what_it_looks_up(world: World, named: str) -> None:
    """It asks the same account of the same provider, about the same operation."""
    accepted, _, lookup_work = await world.an_unknown_command()
    of_command = await world.item(accepted.work)
    await pause(world, **{named: getattr(of_command, named)})

    answer = await world.try_to_look(lookup_work)

    assert isinstance(answer, NotStarted)
    assert answer.verdict is ClaimVerdict.PAUSED
    await resume(world, ago="0 s", ramp_seconds=0)
    assert isinstance(await world.try_to_look(lookup_work), LookupStarted)
