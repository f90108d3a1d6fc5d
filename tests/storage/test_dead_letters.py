"""The dead-letter queue: what is in it, what leaves it by itself, and what its pages show."""

import pytest

from oncefence.domain.claim import ClaimEnd
from oncefence.domain.effect import Outcome
from oncefence.domain.errors import NoSuchTarget
from oncefence.domain.ids import OrgId, WorkId
from oncefence.domain.lookup import Verdict
from oncefence.domain.replay import ReplayVerdict
from oncefence.storage.dead_letters import DeadLetterFilter, Position
from oncefence.storage.phases.list_dead_letters import list_dead_letters
from oncefence.storage.phases.list_work import WorkFilter, list_work
from oncefence.storage.phases.show_dead_letter import show_dead_letter
from oncefence.storage.phases.show_work import show_work
from tests.support.repairs import NOTE, OPERATOR, Repairs
from tests.support.servers import Database
from tests.support.world import OPERATION, TOKEN, World

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def repairs(world: World) -> Repairs:
    return Repairs(world=world)


async def standing(world: World, work: WorkId) -> str | None:
    """What the list says of one item."""
    rows = await list_work(world.engine, WorkFilter(orgs=[world.org], states=STATES), limit=1_000)
    (row,) = [each for each in rows if each.work_id == work]
    found: str | None = row.standing
    return found


STATES = ("pending", "retry", "processing", "succeeded", "dead", "cancelled", "skipped")


class TestTheQueue:
    """It is derived: nobody puts anything in, and nobody takes anything out."""

    async def test_holds_what_ended_without_success(self, repairs: Repairs) -> None:
        """Refused, unknown and given up are all in it (C400)."""
        world = repairs.world
        refused = await repairs.a_refused_command("lead-1")
        unknown, _, _ = await world.an_unknown_command("lead-2")
        given_up = await repairs.an_ended_item()

        assert await repairs.dead_letters() == {refused.work, unknown.work, given_up}

    async def test_holds_what_the_bridge_cancelled(self, repairs: Repairs) -> None:
        """Cancelled with a failure class is no wish of anybody's (C87)."""
        world = repairs.world
        accepted = await world.accept_command()
        await world.change_link("lead-1")
        await world.try_to_start(accepted)
        assert await world.states(accepted) == ("cancelled", "failed")

        assert await repairs.dead_letters() == {accepted.work}

    async def test_holds_nothing_that_ended_well_or_waits_or_was_cancelled_by_hand(
        self, repairs: Repairs
    ) -> None:
        """Whoever looks into the queue finds only what needs him."""
        world = repairs.world
        done = await world.accept_command("lead-1")
        await world.settle(await world.start(done), Outcome.ACCEPTED)
        await world.a_running_command("lead-2")
        await world.accept_command("lead-3")
        await repairs.cancel((await world.accept_command("lead-4")).work)
        await repairs.an_ended_item(ClaimEnd.SKIP)

        assert await repairs.dead_letters() == set()

    async def test_lets_go_of_what_turned_out_well(self, repairs: Repairs) -> None:
        """The lookup finds it applied, and nobody edits the dead item (C400)."""
        world = repairs.world
        accepted, _, lookup_work = await world.an_unknown_command()
        before = await world.item(accepted.work)
        assert await repairs.dead_letters() == {accepted.work}

        await world.look(lookup_work, Verdict.APPLIED)

        assert await repairs.dead_letters() == set()
        assert await world.item(accepted.work) == before

    async def test_lets_go_of_what_was_replayed(self, repairs: Repairs) -> None:
        """The new item stands for it, and comes in its place if it ends no better."""
        world = repairs.world
        accepted = await repairs.a_refused_command()
        again = await repairs.again(accepted, await repairs.replay(accepted.work))
        assert await repairs.dead_letters() == set()

        await world.settle(await world.start(again), Outcome.REJECTED)

        assert await repairs.dead_letters() == {again.work}

    async def test_keeps_what_turned_out_to_have_failed(self, repairs: Repairs) -> None:
        """A failure is no good end; somebody may have to hand it over anew."""
        world = repairs.world
        accepted, _, lookup_work = await world.an_unknown_command()
        await world.look(lookup_work, Verdict.REFUSED)

        assert await repairs.dead_letters() == {accepted.work}

    async def test_comes_in_pages_without_gap_or_repeat(self, repairs: Repairs) -> None:
        """Each page begins behind the last row of the one before."""
        expected = {(await repairs.a_refused_command(f"lead-{each}")).work for each in range(5)}
        found: list[WorkId] = []
        after = None
        while page := await list_dead_letters(
            repairs.world.engine, [repairs.world.org], DeadLetterFilter(), limit=2, after=after
        ):
            found += [WorkId(row.work_id) for row in page]
            after = Position(at=page[-1].changed_at, work=page[-1].work_id)

        assert len(found) == 5
        assert set(found) == expected

    async def test_shows_no_row_of_another_org(self, repairs: Repairs, store: Database) -> None:
        """No tenant sees another's facts (C8)."""
        await Repairs(world=await World.make(store)).a_refused_command()

        assert await repairs.dead_letters() == set()
        assert (
            await list_dead_letters(
                repairs.world.engine, [OrgId("nobody")], DeadLetterFilter(), limit=10
            )
            == []
        )


class TestThePageOfADeadLetter:
    """One read shows all that it stands on."""

    async def test_shows_item_command_attempts_and_verdict(self, repairs: Repairs) -> None:
        """Whoever decides about a replay need look nowhere else (C400, C408)."""
        world = repairs.world
        accepted, started, lookup_work = await world.an_unknown_command()
        await world.look(lookup_work, Verdict.INCONCLUSIVE)

        letter = await show_dead_letter(world.engine, world.org, accepted.work, world.limits)

        assert letter.is_listed
        assert letter.page.item["version"] == await repairs.version(accepted.work)
        assert letter.line.verdict == ReplayVerdict.NEEDS_LOOKUP
        sections = letter.sections
        assert sections["command"][0]["operation"] == OPERATION
        assert [each["attempt_id"] for each in sections["attempts"]] == [started.attempt]
        assert [each["verdict"] for each in sections["lookups"]] == ["inconclusive"]
        for name in ("handoff", "execution", "link", "binding"):
            assert len(sections[name]) == 1, name
        assert TOKEN not in repr(letter)

    async def test_shows_the_line_and_what_was_done_to_it(self, repairs: Repairs) -> None:
        """Replay by replay, with who and why (C402, C406)."""
        world = repairs.world
        accepted = await repairs.a_refused_command()
        works = [accepted.work]
        for _ in range(2):
            replayed = await repairs.replay(works[-1])
            again = await repairs.again(accepted, replayed)
            await world.settle(await world.start(again), Outcome.REJECTED)
            works.append(again.work)

        pages = [await show_work(world.engine, world.org, work) for work in works]

        for at, page in enumerate(pages):
            assert [each["work_id"] for each in page.lineage] == works
            assert [each["step"] for each in page.lineage] == [step - at for step in range(3)]
            assert [(each["actor"], each["note"]) for each in page.acts] == [(OPERATOR, NOTE)] * 2
        letter = await show_dead_letter(world.engine, world.org, works[0], world.limits)
        assert not letter.is_listed
        assert letter.line.verdict == ReplayVerdict.ALREADY_REPLAYED

    async def test_of_an_item_without_a_command_is_the_item_alone(self, repairs: Repairs) -> None:
        """Not every family acts on a provider."""
        work = await repairs.an_ended_item()

        letter = await show_dead_letter(
            repairs.world.engine, repairs.world.org, work, repairs.world.limits
        )

        assert letter.sections == {}
        assert letter.page.item["failure_class"] == "by_hand"

    async def test_never_shows_a_token_of_a_claim(self, repairs: Repairs) -> None:
        """Whoever has one could speak for the claim."""
        claimed = await repairs.a_held_item()

        page = await show_work(repairs.world.engine, repairs.world.org, claimed.fence.work)

        assert str(claimed.fence.token) not in repr(page)
        assert page.item["lease_owner"] is not None

    async def test_of_an_item_of_another_org_is_no_page(
        self, repairs: Repairs, store: Database
    ) -> None:
        """No tenant sees another's facts (C8)."""
        accepted = await (await World.make(store)).accept_command()

        for read in (
            show_work(repairs.world.engine, repairs.world.org, accepted.work),
            show_dead_letter(
                repairs.world.engine, repairs.world.org, accepted.work, repairs.world.limits
            ),
        ):
            with pytest.raises(NoSuchTarget):
                await read


class TestTheListOfWork:
    """What waits, and what keeps it."""

    async def test_says_what_keeps_each_item(self, repairs: Repairs) -> None:
        """A reason for each, as far as one read tells (C26)."""
        world = repairs.world
        due = await world.accept_command("lead-1")
        behind = await world.accept_command("lead-1")
        running, _ = await world.a_running_command("lead-2")
        lost, _ = await world.a_running_command("lead-3")
        await world.expire_lease(lost.work)
        retrying = await world.accept_command("lead-4")
        await world.settle(
            await world.start(retrying),
            Outcome.RETRYABLE_PRE_DISPATCH,
            as_of=await world.now(),
        )
        held = await repairs.a_held_item()
        await repairs.cancel(held.fence.work)
        refused = await repairs.a_refused_command("lead-5")

        assert await standing(world, due.work) == "due"
        assert await standing(world, behind.work) == "lane_blocked"
        assert await standing(world, running.work) == "held"
        assert await standing(world, lost.work) == "lease_ended"
        assert await standing(world, retrying.work) == "not_due"
        assert await standing(world, held.fence.work) == "cancel_requested"
        assert await standing(world, refused.work) is None

    async def test_says_what_is_paused_and_what_starts_slowly(self, repairs: Repairs) -> None:
        """A pause is a reason of its own, and so is the time after it."""
        world = repairs.world
        accepted = await world.accept_command()
        await world.sql(
            "INSERT INTO oncefence.pauses (org_id, pause_id, provider, paused_by, paused_note)"
            " VALUES (:org, gen_random_uuid(), 'hubspot', 'ada', 'looks odd')"
        )
        paused = await standing(world, accepted.work)
        await world.sql(
            "UPDATE oncefence.pauses SET resumed_by = 'ada', resumed_note = 'fine again',"
            " resumed_at = clock_timestamp(), ramp_seconds = 600 WHERE org_id = :org"
        )

        assert paused == "paused"
        assert await standing(world, accepted.work) == "slow_start"

    async def test_is_narrowed_by_each_filter(self, repairs: Repairs) -> None:
        """Each part of the filter alone finds the one item."""
        world = repairs.world
        refused = await repairs.a_refused_command("lead-1")
        await world.accept_command("lead-2")
        other = await repairs.a_waiting_item()

        async def found(**narrowed: object) -> set[WorkId]:
            which = WorkFilter(orgs=[world.org], **narrowed)  # type: ignore[arg-type]
            return {WorkId(row.work_id) for row in await list_work(world.engine, which, limit=9)}

        assert await found(states=("dead",)) == {refused.work}
        assert await found(family="event.apply") == {other}
        assert await found(definition="contact.changed") == {other}
        assert await found(failure_class="rejected", states=STATES) == {refused.work}
        assert len(await found(provider="hubspot")) == 1
        assert len(await found()) == 2

    async def test_comes_in_pages_without_gap_or_repeat(self, repairs: Repairs) -> None:
        """Each page begins behind the last row of the one before."""
        world = repairs.world
        expected = {(await world.accept_command(f"lead-{each}")).work for each in range(5)}
        found: list[WorkId] = []
        after = None
        while page := await list_work(
            world.engine, WorkFilter(orgs=[world.org]), limit=2, after=after
        ):
            found += [WorkId(row.work_id) for row in page]
            after = Position(at=page[-1].made_at, work=page[-1].work_id)

        assert len(found) == 5
        assert set(found) == expected
