"""What a pack declares of an answer is what the attempt ends as, and when it is tried again."""

from collections.abc import Iterator
from datetime import UTC, timedelta

import pytest
import pytest_asyncio

from tests.support.books import SWAP, Books, BooksWorld, Trouble, books_provider
from tests.support.servers import Database

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def books() -> Iterator[Books]:
    with books_provider() as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def world(store: Database, books: Books) -> BooksWorld:
    return await BooksWorld.at(store, books)


class TestARefusalInABody:
    async def test_ends_the_command_under_a_success_status(
        self, world: BooksWorld, books: Books
    ) -> None:
        """A status line alone is not what the provider says (C246)."""
        accepted = await world.change()
        books.meet(Trouble.DECLINED)

        result = await world.run(accepted)

        assert (result.outcome, result.failure_class) == ("REJECTED", "rejected")
        assert await world.states(accepted) == ("dead", "failed")


class TestANamedLimit:
    async def test_says_when_the_next_attempt_is_due(self, world: BooksWorld, books: Books) -> None:
        """A limit of the day asked again after seconds would use up every attempt (C250)."""
        accepted = await world.change()
        books.meet(Trouble.DAILY)

        await world.run(accepted)

        due = (await world.item(accepted.work)).run_after.astimezone(UTC)
        now = (await world.now()).astimezone(UTC)
        midnight = (now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
        assert timedelta(seconds=-1) <= due - midnight < timedelta(seconds=10)

    async def test_in_a_header_goes_before_the_default(
        self, world: BooksWorld, books: Books
    ) -> None:
        """Half a minute is for those that say nothing."""
        accepted = await world.change()
        books.meet(Trouble.TOO_MANY)
        before = await world.now()

        await world.run(accepted)

        assert (await world.item(accepted.work)).run_after - before < timedelta(seconds=10)


class TestACondition:
    @pytest.mark.parametrize(
        ("known_as", "end"),
        [
            ("v1", ("ACCEPTED", None, "gold")),
            ("v0", ("REJECTED", "precondition_failed", "before")),
        ],
    )
    async def test_is_sent_as_it_was_frozen_and_decides(
        self, world: BooksWorld, books: Books, known_as: str, end: tuple[str, str | None, str]
    ) -> None:
        """Whoever knew an older record changes nothing, and is told so (C142, C246)."""
        await world.link("customer-1")
        account = books.accounts[world.remote_ids["customer-1"]]
        account["tag"] = "v1"
        accepted = await world.take(
            await world.hand_over(SWAP, "customer-1", plan="gold", known_as=known_as)
        )

        await world.run(accepted)

        (sent,) = books.writes
        assert (sent.header("If-Match"), sent.body) == (known_as, b'{"plan":"gold"}')
        (attempt,) = await world.of_command("effect_attempts", accepted)
        assert (attempt.outcome, attempt.failure_class, account["plan"]) == end
