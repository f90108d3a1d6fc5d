"""Creates and repeats under a key, as workflows drive them."""

from collections.abc import Iterator

import pytest
from temporalio.client import Client

from tests.support.books import OPEN, Books, BooksWorld, Trouble, books_provider
from tests.support.servers import Database
from tests.support.station import FAST, make_station, new_queue, until, working
from tests.support.world import Accepted

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def books() -> Iterator[Books]:
    with books_provider() as running:
        yield running


async def done(world: BooksWorld, accepted: Accepted) -> None:
    assert await world.settled(accepted) == ["succeeded"]


class TestACreate:
    async def test_under_a_key_makes_one_record_whatever_happens_on_the_way(
        self, store: Database, client: Client, books: Books
    ) -> None:
        """A lost answer and a request that is still at work are waited out (C94)."""
        world = await BooksWorld.at(store, books, limits=FAST)
        books.meet(Trouble.LOST, Trouble.IN_FLIGHT)
        async with working(make_station(world, client, new_queue())) as station:
            accepted = await world.create()
            await station.announce(accepted)

            await done(world, accepted)

        (identity,) = books.accounts
        assert await world.slot(accepted) == ("active", 2, identity)
        assert len({(each.body, each.headers) for each in books.writes}) == 1

    async def test_that_is_looked_for_first_is_looked_for_again_when_that_was_in_vain(
        self, store: Database, client: Client, books: Books
    ) -> None:
        """Nothing is sent while nobody can say whether the record is there (C342)."""
        world = await BooksWorld.at(store, books, limits=FAST)
        books.search_answers = 503

        async def was_in_vain() -> bool:
            return len(books.reads) > 1

        async with working(make_station(world, client, new_queue())) as station:
            accepted = await world.create(operation=OPEN)
            await station.announce(accepted)
            await until(was_in_vain, what="a second look")
            assert books.writes == []
            books.search_answers = 200

            await done(world, accepted)

        assert len(books.writes) == len(books.accounts) == 1

    async def test_whose_answer_is_lost_for_good_is_found_and_never_made_twice(
        self, store: Database, client: Client, books: Books
    ) -> None:
        """Without a key one request is all that there is, and the lookup links its record."""
        world = await BooksWorld.at(store, books, limits=FAST)
        books.meet(Trouble.LOST)
        async with working(make_station(world, client, new_queue())) as station:
            accepted = await world.create(operation=OPEN)
            await station.announce(accepted)

            await done(world, accepted)

        (identity,) = books.accounts
        assert await world.slot(accepted) == ("active", 2, identity)
        assert len(books.writes) == 1
