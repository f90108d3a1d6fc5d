"""Sending again under the provider's own key: the same bytes, inside the window, one effect."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import datetime

import pytest
import pytest_asyncio

from oncefence.app.local_postgres import LocalPostgres
from oncefence.domain.idempotency import MARGIN_SECONDS_MAX
from oncefence.domain.limits import Limits
from oncefence.domain.redaction import Secret
from oncefence.storage.sealed_tokens import GenerationKey, TokenField
from tests.support import servers
from tests.support.books import TOKEN, Books, BooksWorld, Trouble, books_provider
from tests.support.servers import Database
from tests.support.world import Accepted, World, seconds

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def store(postgres: LocalPostgres) -> AsyncIterator[Database]:
    """Each test is an org of its own, and most of them fail on purpose."""
    async with servers.fresh_database(postgres) as fresh:
        servers.bear_with_ill_orgs(postgres, fresh.name)
        yield fresh


KEPT_SECONDS = 86_400
USABLE_SECONDS = KEPT_SECONDS - MARGIN_SECONDS_MAX
DEADLINE_SECONDS = 2.0


@pytest.fixture
def books() -> Iterator[Books]:
    with books_provider() as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def world(store: Database, books: Books) -> BooksWorld:
    return await BooksWorld.at(store, books)


async def outcomes(world: World, accepted: Accepted) -> list[tuple[str, str | None, bool]]:
    rows = await world.of_command("effect_attempts", accepted)
    return [(row.outcome, row.failure_class, row.may_have_applied) for row in rows]


async def first_mark(world: World, accepted: Accepted) -> datetime:
    first, *_ = await world.of_command("effect_attempts", accepted)
    return first.started_as_of


async def renew_token(world: BooksWorld, token: str) -> None:
    """The account's token is another one from now on, under the same authority."""
    (row,) = await world.sql(
        "SELECT generation_id, wrapped_key, key_id FROM oncefence.binding_generations"
        " WHERE org_id = :org"
    )
    place = (world.org, world.binding, row.generation_id)
    key = GenerationKey.opened(world.ring, row.wrapped_key, row.key_id, *place)
    await world.transaction(
        "INSERT INTO oncefence.token_versions (org_id, generation_id, version, ciphertext,"
        " made_because) VALUES (:org, :generation, 2, :sealed, 'reauthorized')",
        "UPDATE oncefence.binding_generations SET token_version = 2"
        " WHERE org_id = :org AND generation_id = :generation",
        generation=row.generation_id,
        sealed=key.seal(TokenField.ACCESS, 2, Secret(token)),
    )


async def nothing_is_closed(world: World) -> None:
    """Return when the provider may be asked again, which is judged by real time (C300)."""
    async with asyncio.timeout(10):
        while await world.sql(
            "SELECT 1 FROM oncefence.quota_counts WHERE closed_until > clock_timestamp()"
        ):
            await asyncio.sleep(0.05)


class TestACommandUnderAKey:
    async def test_keeps_its_key_and_a_window_with_a_margin(self, world: BooksWorld) -> None:
        """Both are frozen: what the pack says tomorrow is not what the provider was told (C94)."""
        accepted = await world.create()

        (row,) = await world.sql(
            "SELECT idempotency_key, replay_window_seconds, request_headers"
            " FROM oncefence.commands WHERE org_id = :org AND command_id = :command",
            command=accepted.command,
        )
        assert (row.idempotency_key, row.replay_window_seconds) == (
            str(accepted.command),
            USABLE_SECONDS,
        )
        assert ["Idempotency-Key", str(accepted.command)] in row.request_headers

    async def test_sends_its_key_and_no_id_that_changes(
        self, world: BooksWorld, books: Books
    ) -> None:
        """The attempt's id would make each of them another request to the provider (C95)."""
        accepted = await world.change()

        await world.run(accepted)

        (sent,) = books.writes
        assert sent.key == sent.header("X-Command") == str(accepted.command)
        assert sent.header("X-Try") is None

    async def test_without_a_key_tells_its_attempt(self, world: BooksWorld, books: Books) -> None:
        """Where nothing is ever repeated, the provider's log may name the attempt (C245)."""
        accepted = await world.create(operation="customer.open")

        await world.run(accepted)

        (sent,) = books.writes
        (attempt,) = await world.of_command("effect_attempts", accepted)
        assert sent.header("X-Try") == str(attempt.attempt_id)
        assert sent.key is None


class TestALostAnswer:
    async def test_is_asked_for_again_with_the_same_bytes(
        self, world: BooksWorld, books: Books
    ) -> None:
        """One change at the provider, however often the request comes (C94, C95)."""
        accepted = await world.change(plan="gold")
        books.meet(Trouble.LOST)

        await world.run(accepted)
        assert await world.states(accepted) == ("retry", "retrying")
        await world.run(accepted)

        first, second = books.writes
        assert first == second
        assert len(books.kept) == 1
        assert await outcomes(world, accepted) == [
            ("REPLAY_SAFE_RETRY", "lost_answer", True),
            ("ACCEPTED", None, False),
        ]
        attempts = await world.of_command("effect_attempts", accepted)
        assert [row.disposition for row in attempts] == ["applied", None]
        assert await world.states(accepted) == ("succeeded", "succeeded")

    async def test_is_asked_for_again_with_another_token_alone(
        self, world: BooksWorld, books: Books
    ) -> None:
        """A token may have been renewed between two attempts, and nothing else may differ (C95)."""
        accepted = await world.change()
        books.meet(Trouble.LOST)
        await world.run(accepted)
        await renew_token(world, "another-token")

        await world.run(accepted)

        first, second = books.writes
        assert [each.header("Authorization") for each in (first, second)] == [
            f"Bearer {TOKEN}",
            "Bearer another-token",
        ]
        assert first.without("authorization") == second.without("authorization")

    async def test_of_what_never_arrived_is_asked_for_again_too(
        self, world: BooksWorld, books: Books
    ) -> None:
        """Nobody can tell the two apart, and under the key nobody has to."""
        accepted = await world.create()
        books.meet(Trouble.HANG)

        await world.run(accepted)
        await world.run(accepted)

        assert len(books.accounts) == 1
        assert (await world.execution(accepted)).status == "succeeded"


class TestTheWindow:
    async def test_after_its_end_the_outcome_is_unknown_and_looked_up(
        self, world: BooksWorld, books: Books
    ) -> None:
        """The provider may have forgotten the key by then, and would do it a second time (C94)."""
        accepted = await world.change(plan="gold")
        books.meet(Trouble.LOST)
        await world.run(accepted)
        too_late = await first_mark(world, accepted) + seconds(USABLE_SECONDS - DEADLINE_SECONDS)

        await world.run(accepted, as_of=too_late)

        assert len(books.writes) == 1
        execution = await world.execution(accepted)
        assert (execution.status, execution.via, execution.failure_class) == (
            "unknown",
            "safety_ended",
            "outcome_unknown",
        )
        await world.look_up(accepted)
        assert (await world.execution(accepted)).status == "succeeded"

    async def test_still_holds_a_whole_send_just_before(
        self, world: BooksWorld, books: Books
    ) -> None:
        """As long as the last byte gets there in time, the key is as good as at first."""
        accepted = await world.change()
        books.meet(Trouble.LOST)
        await world.run(accepted)
        just_in_time = await first_mark(world, accepted) + seconds(
            USABLE_SECONDS - DEADLINE_SECONDS - 0.5
        )

        await world.run(accepted, as_of=just_in_time)

        assert len(books.writes) == 2
        assert (await world.execution(accepted)).status == "succeeded"

    async def test_that_would_end_before_the_next_attempt_ends_with_this_one(
        self, world: BooksWorld, books: Books
    ) -> None:
        """What waits past it would only be found to be too late: it is looked up at once (C81)."""
        accepted = await world.change()
        books.meet(Trouble.LOST, Trouble.LOST)
        await world.run(accepted)
        late = await first_mark(world, accepted) + seconds(USABLE_SECONDS - DEADLINE_SECONDS - 0.5)

        await world.run(accepted, as_of=late)

        assert await world.states(accepted) == ("dead", "unknown")

    async def test_does_not_matter_where_nothing_is_in_doubt(
        self, world: BooksWorld, books: Books
    ) -> None:
        """A first attempt that was turned away did nothing that a second one could repeat."""
        accepted = await world.change()
        books.meet(Trouble.TOO_MANY)
        await world.run(accepted)
        await nothing_is_closed(world)
        long_after = await first_mark(world, accepted) + seconds(10 * KEPT_SECONDS)

        await world.run(accepted, as_of=long_after)

        assert (await world.execution(accepted)).status == "succeeded"


class TestAKeptAnswer:
    async def test_that_is_a_fault_ends_as_unknown(self, world: BooksWorld, books: Books) -> None:
        """The provider would give the same 500 for ever, whatever it did (C96)."""
        accepted = await world.create()
        books.meet(Trouble.FAULT)

        await world.run(accepted)
        assert await world.states(accepted) == ("retry", "retrying")
        await world.run(accepted)

        assert await world.states(accepted) == ("dead", "unknown")
        assert await outcomes(world, accepted) == [
            ("REPLAY_SAFE_RETRY", "server_error", True),
            ("OUTCOME_UNKNOWN", "server_error", True),
        ]
        await world.look_up(accepted)
        assert (await world.execution(accepted)).status == "succeeded"
        assert len(books.accounts) == 1


class TestARequestInFlight:
    async def test_is_waited_for(self, world: BooksWorld, books: Books) -> None:
        """409 says of this request that it did nothing, and nothing of the one before (C84)."""
        accepted = await world.create()
        books.meet(Trouble.LOST, Trouble.IN_FLIGHT)

        for _ in range(3):
            await world.run(accepted)

        assert await outcomes(world, accepted) == [
            ("REPLAY_SAFE_RETRY", "lost_answer", True),
            ("REPLAY_SAFE_RETRY", "not_applied", False),
            ("ACCEPTED", None, False),
        ]
        assert len({each.key for each in books.writes}) == 1
        assert len(books.accounts) == 1


class TestARefusal:
    async def test_behind_a_doubt_settles_nothing(self, world: BooksWorld, books: Books) -> None:
        """That this request was refused says nothing of the one that was not answered (C81)."""
        accepted = await world.change()
        books.meet(Trouble.LOST, Trouble.REFUSED)

        await world.run(accepted)
        await world.run(accepted)

        assert await world.states(accepted) == ("dead", "unknown")


class TestTheCeiling:
    async def test_of_attempts_holds_under_a_key_too(self, store: Database, books: Books) -> None:
        """A provider that never answers is not asked for ever (C81)."""
        world = await BooksWorld.at(store, books, limits=Limits(attempts_max=3))
        accepted = await world.change()
        books.meet(*[Trouble.LOST] * 5)

        for _ in range(3):
            await world.run(accepted)

        assert await world.states(accepted) == ("dead", "unknown")
        assert len(books.writes) == 3
        assert len({each.body for each in books.writes}) == 1
