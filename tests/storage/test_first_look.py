"""The look before a create that nothing makes safe to repeat: no record is made twice."""

import secrets
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from sqlalchemy import Row

from oncefence.activities.contracts import Step
from oncefence.activities.not_started import rest
from oncefence.domain.claim import ClaimVerdict
from oncefence.domain.effect import Outcome
from oncefence.domain.errors import FenceLost
from oncefence.domain.ids import LeaseToken
from oncefence.domain.limits import Limits
from oncefence.domain.lookup import WAITS_SECONDS, FirstLook
from oncefence.storage.claims import NotStarted
from oncefence.storage.phases.begin_first_look import FirstLookBegun, begin_first_look
from oncefence.storage.phases.settle_first_look import (
    FirstLookEnd,
    FirstLookSettled,
    settle_first_look,
)
from oncefence.storage.sealing import KeyRing
from tests.storage.lifecycle_rows import CLAIM
from tests.support.books import OPEN, Books, BooksWorld, Trouble, books_provider
from tests.support.servers import Database
from tests.support.station import until
from tests.support.world import Accepted, seconds

pytestmark = pytest.mark.asyncio(loop_scope="module")

EMAIL = "customer-1@example.com"


@pytest.fixture
def books() -> Iterator[Books]:
    with books_provider() as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def world(store: Database, books: Books) -> BooksWorld:
    return await BooksWorld.at(store, books)


async def begin(world: BooksWorld, accepted: Accepted) -> FirstLookBegun:
    return await begin_first_look(world.engine, world.org, accepted.work)


async def settle(
    world: BooksWorld,
    begun: FirstLookBegun,
    look: FirstLook = FirstLook.ABSENT,
    token: LeaseToken | None = None,
) -> FirstLookSettled:
    end = FirstLookEnd(look=look, reading="", response_status=200, receipt={}, phases={})
    return await settle_first_look(
        world.engine,
        begun,
        end,
        token=token or LeaseToken(uuid4()),
        as_of=await world.now(),
        limits=world.limits,
    )


async def looks(world: BooksWorld, accepted: Accepted) -> list[Row[Any]]:
    return list(await world.of_command("lookups", accepted))


def tries_of(rows: list[Row[Any]]) -> list[int | None]:
    return [getattr(row, "try") for row in rows]  # the name is a word of the language


async def claim_by_hand(world: BooksWorld, accepted: Accepted) -> None:
    await world.sql(
        f"UPDATE oncefence.work_items SET state = 'processing', via = 'claim', {CLAIM}"
        " WHERE org_id = :org AND work_id = :work",
        work=accepted.work,
    )


class TestALook:
    async def test_goes_before_the_one_request_that_creates(
        self, world: BooksWorld, books: Books
    ) -> None:
        """Nothing found is on record before anything is sent (C342)."""
        accepted = await world.create(operation=OPEN)

        result = await world.run(accepted)

        assert [each.method for each in books.seen] == ["GET", "POST"]
        assert result.execution_status == "succeeded"
        (look,) = await looks(world, accepted)
        (attempt,) = await world.of_command("effect_attempts", accepted)
        assert (look.verdict, look.attempt_id, tries_of([look])) == ("not_found", None, [None])
        assert look.looked_at < attempt.started_at

    async def test_is_not_made_where_the_providers_key_makes_a_repeat_harmless(
        self, world: BooksWorld, books: Books
    ) -> None:
        """A read more for every create would be a cost without a use."""
        await world.run(await world.create())

        assert [each.method for each in books.seen] == ["POST"]

    async def test_that_finds_the_record_ends_the_create_unsent(
        self, world: BooksWorld, books: Books
    ) -> None:
        """It is neither made twice nor taken without asking; a person may adopt it (C28)."""
        there = books.add(email=EMAIL)
        accepted = await world.create(operation=OPEN)

        result = await world.run(accepted)

        assert (result.step, result.failure_class) == (Step.FINISHED, "already_there")
        assert books.writes == []
        execution = await world.execution(accepted)
        assert (execution.status, execution.via, execution.failure_class, execution.attempt) == (
            "failed",
            "cannot_proceed",
            "already_there",
            0,
        )
        item = await world.item(accepted.work)
        assert (item.state, item.failure_class) == ("cancelled", "already_there")
        assert await world.slot(accepted) == ("retired", 2, None)
        assert len(await world.of_command("completions", accepted)) == 1
        (look,) = await looks(world, accepted)
        assert look.provider_receipt == {"remote_id": there}

    @pytest.mark.parametrize("made_ms", [1, -1_000_000_000_000, None])
    async def test_counts_a_record_however_old_it_is(
        self, world: BooksWorld, books: Books, made_ms: int | None
    ) -> None:
        """A lookup after a send leaves out what was there before; this one is after just that."""
        books.add(email=EMAIL, made_ms=made_ms)
        accepted = await world.create(operation=OPEN)

        await world.run(accepted)

        assert (await world.execution(accepted)).failure_class == "already_there"

    async def test_that_finds_several_ends_the_create_unsent(
        self, world: BooksWorld, books: Books
    ) -> None:
        """Which of them is meant is not guessed (C28)."""
        for _ in range(2):
            books.add(email=EMAIL)
        accepted = await world.create(operation=OPEN)

        await world.run(accepted)

        assert (await world.execution(accepted)).failure_class == "identity_ambiguous"
        assert books.writes == []

    async def test_that_reaches_nobody_waits_and_sends_nothing(
        self, world: BooksWorld, books: Books
    ) -> None:
        """An outage is waited out, however long it is; it spends no try (C265)."""
        books.search_answers = 503
        accepted = await world.create(operation=OPEN)
        for _ in range(6):
            result = await world.run(accepted)
            assert result.step is Step.WAIT
        assert await world.states(accepted) == ("pending", "accepted")
        assert result.until == (await world.item(accepted.work)).run_after
        assert books.writes == []

        books.search_answers = 200
        await world.run(accepted)

        assert (await world.execution(accepted)).status == "succeeded"

    async def test_whose_answer_was_cut_sends_nothing(
        self, world: BooksWorld, books: Books
    ) -> None:
        """What arrived may read like a whole answer, and the record be in the rest (C268)."""
        books.cuts_reads = True
        accepted = await world.create(operation=OPEN)

        result = await world.run(accepted)

        assert (result.step, result.verdict) == (Step.WAIT, FirstLook.UNREACHABLE)
        assert books.writes == []

    async def test_that_this_process_cannot_make_waits_and_sends_nothing(
        self, world: BooksWorld, books: Books
    ) -> None:
        """Without the key nothing can be read; a person gives it, and the create goes on."""
        accepted = await world.create(operation=OPEN)
        ring, world.ring = world.ring, KeyRing({"another": secrets.token_bytes(32)})

        result = await world.run(accepted)

        assert (result.step, result.verdict) == (Step.WAIT, FirstLook.UNREACHABLE)
        assert books.seen == []
        world.ring = ring
        assert (await world.run(accepted)).execution_status == "succeeded"

    async def test_that_cannot_tell_is_repeated_five_times_and_then_ends_it(
        self, world: BooksWorld, books: Books
    ) -> None:
        """A cut answer may hide the record: nothing is sent on the strength of it (C264)."""
        books.is_deaf = True
        for _ in range(3):
            books.add(email="stranger@example.com")
        accepted = await world.create(operation=OPEN)

        waits = []
        for _ in range(4):
            began = max(await world.now(), (await world.item(accepted.work)).run_after)
            await world.run(accepted)
            waits.append(round(((await world.item(accepted.work)).run_after - began).seconds, -1))
        await world.run(accepted)

        assert waits == list(WAITS_SECONDS[1:])
        assert (await world.execution(accepted)).failure_class == "look_inconclusive"
        assert tries_of(await looks(world, accepted)) == [1, 2, 3, 4, 5]
        assert {row.reading for row in await looks(world, accepted)} == {"capped"}
        assert books.writes == []

    async def test_goes_before_each_attempt(self, world: BooksWorld, books: Books) -> None:
        """Between two attempts somebody may have made the record by hand (C342)."""
        books.meet(Trouble.TOO_MANY)
        accepted = await world.create(operation=OPEN)
        await world.run(accepted)
        assert await world.states(accepted) == ("retry", "retrying")
        books.add(email=EMAIL)

        await world.run(accepted)

        assert (await world.execution(accepted)).failure_class == "already_there"
        assert [each.method for each in books.seen] == ["GET", "POST", "GET"]

    async def test_ends_a_create_whose_content_was_erased(
        self, world: BooksWorld, books: Books
    ) -> None:
        """What can never be sent needs not be looked for either (C440)."""
        accepted = await world.create(operation=OPEN)
        await world.sql(
            "UPDATE oncefence.execution_keys SET wrapped_key = NULL WHERE org_id = :org"
        )

        await world.run(accepted)

        assert (await world.execution(accepted)).failure_class == "look_unusable"
        assert books.seen == []


class TestTheMark:
    async def test_is_refused_without_a_look(self, world: BooksWorld) -> None:
        """The database asks for the row, and takes nobody's word for it (C342)."""
        accepted = await world.create(operation=OPEN)

        answer = await world.try_to_start(accepted)

        assert isinstance(answer, NotStarted)
        assert answer.verdict is ClaimVerdict.LOOK_FIRST
        assert await world.states(accepted) == ("pending", "accepted")

    async def test_finds_the_look_of_a_run_that_died(self, world: BooksWorld, books: Books) -> None:
        """What was seen a moment ago need not be seen again."""
        accepted = await world.create(operation=OPEN)
        await settle(world, await begin(world, accepted))

        await world.run(accepted)

        assert [each.method for each in books.seen] == ["POST"]

    @pytest.mark.parametrize("look", [FirstLook.UNCLEAR, FirstLook.UNREACHABLE])
    async def test_is_refused_after_a_look_that_could_not_tell(
        self, world: BooksWorld, look: FirstLook
    ) -> None:
        """Only that nothing is there permits the create."""
        accepted = await world.create(operation=OPEN)
        await settle(world, await begin(world, accepted), look)

        answer = await world.try_to_start(accepted)

        assert isinstance(answer, NotStarted)
        assert answer.verdict is ClaimVerdict.LOOK_FIRST

    async def test_is_refused_after_a_look_for_another(self, world: BooksWorld) -> None:
        """Each create looks for its own record."""
        await settle(world, await begin(world, await world.create("customer-2", operation=OPEN)))
        accepted = await world.create(operation=OPEN)

        answer = await world.try_to_start(accepted)

        assert isinstance(answer, NotStarted)
        assert answer.verdict is ClaimVerdict.LOOK_FIRST

    async def test_is_refused_after_a_look_of_an_earlier_claim(self, world: BooksWorld) -> None:
        """What an earlier attempt looked for is the past, even if it is a moment ago."""
        accepted = await world.create(operation=OPEN)
        await settle(world, await begin(world, accepted))
        await claim_by_hand(world, accepted)
        await world.expire_lease(accepted.work)

        answer = await world.try_to_start(accepted)

        assert isinstance(answer, NotStarted)
        assert answer.verdict is ClaimVerdict.LOOK_FIRST

    async def test_that_is_refused_once_more_is_asked_for_again(self, world: BooksWorld) -> None:
        """A workflow that ended there would leave the create to the sweep."""
        accepted = await world.create(operation=OPEN)

        answer = await world.try_to_start(accepted)

        assert isinstance(answer, NotStarted)
        assert rest(answer).step is Step.WAIT

    async def test_is_refused_after_a_look_that_is_old(self, store: Database) -> None:
        """The longer ago nothing was there, the less it says (C342)."""
        world = await BooksWorld.at(store, Books(), limits=Limits(lease_margin_seconds=0.1))
        accepted = await world.create(operation=OPEN)
        await settle(world, await begin(world, accepted))

        async def is_old() -> bool:
            rows = await world.sql(
                "SELECT 1 FROM oncefence.lookups WHERE org_id = :org"
                " AND looked_at < clock_timestamp() - interval '0.1 s'"
            )
            return bool(rows)

        await until(is_old)
        answer = await world.try_to_start(accepted)

        assert isinstance(answer, NotStarted)
        assert answer.verdict is ClaimVerdict.LOOK_FIRST


class TestSettlingALook:
    async def test_again_is_the_same(self, world: BooksWorld) -> None:
        """The answer to its COMMIT may be lost (C171)."""
        for look, state in (
            (FirstLook.ABSENT, "pending"),
            (FirstLook.UNREACHABLE, "pending"),
            (FirstLook.THERE, "cancelled"),
        ):
            accepted = await world.create(f"customer-{look}", operation=OPEN)
            begun, token = await begin(world, accepted), LeaseToken(uuid4())

            first = await settle(world, begun, look, token)

            assert await settle(world, begun, look, token) == first
            assert len(await looks(world, accepted)) == 1
            assert (await world.item(accepted.work)).state == state

    async def test_of_an_item_that_somebody_claimed_writes_nothing(self, world: BooksWorld) -> None:
        """Whoever claimed it has looked for itself, and may be sending (C160)."""
        accepted = await world.create(operation=OPEN)
        begun = await begin(world, accepted)
        await settle(world, begun)
        await world.start(accepted)

        with pytest.raises(FenceLost):
            await settle(world, begun, FirstLook.THERE)

        assert await world.states(accepted) == ("processing", "running")
        assert len(await looks(world, accepted)) == 1

    @pytest.mark.parametrize("look", FirstLook)
    async def test_of_an_item_whose_starter_is_gone_writes_nothing(
        self, world: BooksWorld, look: FirstLook
    ) -> None:
        """What it finds may be what the lost attempt made: that is for a lookup to say (C160)."""
        accepted = await world.create(operation=OPEN)
        await settle(world, await begin(world, accepted))
        await world.start(accepted)
        begun = await begin(world, accepted)
        await world.expire_lease(accepted.work)

        with pytest.raises(FenceLost):
            await settle(world, begun, look)

        assert await world.states(accepted) == ("processing", "running")
        assert len(await looks(world, accepted)) == 1

    async def test_of_an_item_that_was_claimed_and_waits_again_writes_nothing(
        self, world: BooksWorld
    ) -> None:
        """An attempt was made since the look began, and the next one looks anew (C160)."""
        accepted = await world.create(operation=OPEN)
        begun = await begin(world, accepted)
        await settle(world, begun)
        await world.settle(await world.start(accepted), Outcome.RETRYABLE_PRE_DISPATCH)
        assert await world.states(accepted) == ("retry", "retrying")

        with pytest.raises(FenceLost):
            await settle(world, begun, FirstLook.THERE)

        assert await world.states(accepted) == ("retry", "retrying")

    async def test_of_an_item_that_was_cancelled_writes_nothing(self, world: BooksWorld) -> None:
        """It has ended, and its slot may be another create's by now."""
        accepted = await world.create(operation=OPEN)
        begun = await begin(world, accepted)
        await settle(world, begun, FirstLook.THERE)

        with pytest.raises(FenceLost):
            await settle(world, begun)

        assert len(await looks(world, accepted)) == 1

    async def test_ends_an_item_whose_claimant_is_gone(self, world: BooksWorld) -> None:
        """Nothing is in the open, and nobody is left who could end it (C87)."""
        accepted = await world.create(operation=OPEN)
        await claim_by_hand(world, accepted)
        begun = await begin(world, accepted)
        with pytest.raises(FenceLost):
            await settle(world, begun, FirstLook.THERE)
        await world.expire_lease(accepted.work)

        await settle(world, begun, FirstLook.THERE)

        item = await world.item(accepted.work)
        assert (item.state, item.via, item.claims_lost) == ("dead", "give_up", 1)
        assert (await world.execution(accepted)).status == "failed"

    async def test_never_makes_an_item_due_earlier(self, world: BooksWorld) -> None:
        """Who looks at the same moment and waits longer is not overruled."""
        accepted = await world.create(operation=OPEN)
        begun = await begin(world, accepted)
        far = await world.now() + seconds(7_200)
        await world.sql(
            "UPDATE oncefence.work_items SET run_after = :far"
            " WHERE org_id = :org AND work_id = :work",
            work=accepted.work,
            far=far,
        )

        await settle(world, begun, FirstLook.UNREACHABLE)

        assert (await world.item(accepted.work)).run_after == far
