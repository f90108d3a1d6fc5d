"""Creating a record: one at a time of each local object, and its link as part of its outcome."""

import secrets
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar
from uuid import uuid4

import pytest
import pytest_asyncio
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.activities.contracts import Step
from oncefence.activities.lookup import strongest
from oncefence.domain.claim import ENGINE_CAPABILITY
from oncefence.domain.command import Receipt
from oncefence.domain.effect import Outcome
from oncefence.domain.errors import NoSuchTarget, StoreUnavailable, SubjectTaken
from oncefence.domain.ids import LinkId
from oncefence.domain.lane import target_lane
from oncefence.domain.limits import Limits
from oncefence.domain.lookup import Grade, Verdict
from oncefence.domain.replay import ReplayVerdict
from oncefence.storage.claims import NotStarted
from oncefence.storage.phases.adopt_link import adopt_link
from oncefence.storage.phases.audit_invariants import audit_invariants
from oncefence.storage.phases.settle_attempt import AttemptEnd, settle_attempt
from oncefence.storage.phases.settle_lookup import LookupEnd, settle_lookup
from oncefence.storage.sealing import KeyRing
from tests.storage.deaf_line import deaf_engine
from tests.storage.racing import all_at_once
from tests.support.books import OPEN, Books, BooksWorld, Trouble, books_provider
from tests.support.repairs import Repairs
from tests.support.servers import Database
from tests.support.world import Accepted, an_end, seconds

pytestmark = pytest.mark.asyncio(loop_scope="module")

T = TypeVar("T")

HOLD_LANE = "INSERT INTO oncefence.lanes (org_id, lane_key, sequence) VALUES ($1, $2, 1)"


@pytest.fixture
def books() -> Iterator[Books]:
    with books_provider() as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def world(store: Database, books: Books) -> BooksWorld:
    return await BooksWorld.at(store, books)


async def adopt(world: BooksWorld, subject: str, remote_id: str) -> LinkId:
    return await adopt_link(
        world.engine,
        world.org,
        binding_name="books-main",
        local_object="customer",
        subject=subject,
        remote_object="account",
        remote_id=remote_id,
        actor="tests",
    )


def created(identity: str) -> AttemptEnd:
    """The end of an attempt whose answer named this new record."""
    end = an_end(Outcome.ACCEPTED, receipt={"remote_id": identity})
    return AttemptEnd(
        **{name: getattr(end, name) for name in AttemptEnd.__slots__ if name != "created_id"},
        created_id=identity,
    )


def finding(identity: str | None) -> LookupEnd:
    """A lookup that found this record."""
    return LookupEnd(
        verdict=Verdict.APPLIED,
        reading="equal",
        grade=Grade.STATE,
        response_status=200,
        receipt={},
        phases={},
        created_id=identity,
    )


async def found(world: BooksWorld, accepted: Accepted, identity: str | None) -> str:
    """The status that a lookup leads to which found this record."""
    work = await world.lookup_work(accepted)
    assert work is not None, "its outcome is unknown"
    looking = await world.start_looking(work)
    settled = await settle_lookup(
        world.engine,
        looking.fence,
        finding(identity),
        is_sensitive=False,
        as_of=await world.now(),
        limits=world.limits,
    )
    return settled.execution_status


class TestAcceptance:
    async def test_opens_a_slot_in_the_place_of_a_link(self, world: BooksWorld) -> None:
        """There is no record yet, and its place is taken from now on (C140, C342)."""
        accepted = await world.create()

        assert await world.slot(accepted) == ("creating", 1, None)
        (command,) = await world.sql(
            "SELECT remote_id, link_id, generation_id, looks_first FROM oncefence.commands"
            " WHERE org_id = :org AND command_id = :command",
            command=accepted.command,
        )
        item = await world.item(accepted.work)
        assert (command.remote_id, command.looks_first) == (None, False)
        assert item.target_lane == target_lane(command.generation_id, command.link_id)
        assert item.engine_capability == ENGINE_CAPABILITY

    async def test_is_refused_while_another_create_of_it_is_undecided(
        self, world: BooksWorld
    ) -> None:
        """A second one could only make a second record (C342)."""
        await world.create()

        with pytest.raises(SubjectTaken, match="is being created already") as refused:
            await world.create()

        assert refused.value.is_being_created
        assert await world.count("commands") == await world.count("handoffs") == 1

    async def test_is_refused_where_a_record_is_linked(self, world: BooksWorld) -> None:
        """What is there is changed and not made again."""
        await adopt(world, "customer-1", "acc_1")

        with pytest.raises(SubjectTaken, match="hand over an update"):
            await world.create()

    async def test_of_others_is_not_in_its_way(self, world: BooksWorld) -> None:
        """A slot is one subject's of one org and account, and nobody else's."""
        other = await BooksWorld.at(world.database, Books())

        for each, subject in ((world, "customer-1"), (world, "customer-2"), (other, "customer-1")):
            await each.create(subject)

    async def test_of_a_change_is_refused_until_the_record_is_there(
        self, world: BooksWorld
    ) -> None:
        """There is nothing yet that it could be sent to (C156)."""
        await world.create()

        with pytest.raises(NoSuchTarget, match="its record is being created"):
            await world.take(await world.hand_over("customer.plan.push", "customer-1", plan="x"))

    async def test_of_a_link_is_refused_until_it_is_decided(self, world: BooksWorld) -> None:
        """Or the record that is being made would be nobody's (C28)."""
        await world.create()

        with pytest.raises(SubjectTaken, match="is being created already"):
            await adopt(world, "customer-1", "acc_1")

    async def test_of_two_at_once_lets_one_in(self, world: BooksWorld) -> None:
        """Both saw the place free; the index lets one have it (C342, C502)."""
        handovers = [
            await world.hand_over("customer.create", "customer-1", email="a@example.com")
            for _ in range(2)
        ]

        ends = await all_at_once(
            world.database,
            [world.accept(each) for each in handovers],
            HOLD_LANE,
            world.org,
            "source:customer-1",
        )

        assert sorted(type(end).__name__ for end in ends) == ["Receipt", "SubjectTaken"]
        assert await world.count("commands") == await world.count("remote_links") == 1

    async def test_of_one_handoff_twice_at_once_is_one_create(self, world: BooksWorld) -> None:
        """The key is asked before the place, so that a repeat is no second create (C131, C143)."""
        handover = await world.hand_over("customer.create", "customer-1", email="a@example.com")

        ends = await all_at_once(
            world.database,
            [world.accept(handover) for _ in range(2)],
            HOLD_LANE,
            world.org,
            "source:customer-1",
        )

        assert all(isinstance(end, Receipt) for end in ends), ends
        assert len({end.command for end in ends if isinstance(end, Receipt)}) == 1

    async def test_is_repeated_whatever_became_of_it(self, world: BooksWorld) -> None:
        """The receipt of a key never changes, and the link of the record is no obstacle (C131)."""
        accepted = await world.create()
        await world.run(accepted)

        again = await world.accept(accepted.handover)

        assert (again.command, again.is_new) == (accepted.command, False)


class TestAnAcceptedCreate:
    async def test_makes_its_slot_the_link_of_the_record(
        self, world: BooksWorld, books: Books
    ) -> None:
        """The id is part of the outcome, and is written with it or not at all (C66, C342)."""
        accepted = await world.create()

        result = await world.run(accepted)

        (identity,) = books.accounts
        assert (result.outcome, result.execution_status) == ("ACCEPTED", "succeeded")
        assert await world.slot(accepted) == ("active", 2, identity)
        (attempt,) = await world.of_command("effect_attempts", accepted)
        assert attempt.provider_receipt["remote_id"] == identity
        assert [row.status for row in await world.of_command("completions", accepted)] == [
            "succeeded"
        ]

    async def test_is_followed_by_changes_of_its_record_in_one_lane(
        self, world: BooksWorld, books: Books
    ) -> None:
        """The lane of the slot is the lane of the link, so nothing gets ahead of the create."""
        create = await world.create()
        await world.run(create)

        change = await world.take(
            await world.hand_over("customer.plan.push", "customer-1", plan="gold")
        )
        await world.run(change)

        (identity,) = books.accounts
        assert books.accounts[identity]["plan"] == "gold"
        assert (await world.item(change.work)).target_lane == (
            await world.item(create.work)
        ).target_lane

    async def test_under_a_key_is_one_record_however_often_it_is_asked_for(
        self, world: BooksWorld, books: Books
    ) -> None:
        """The answer that names the record is lost, and comes again (C94)."""
        accepted = await world.create()
        books.meet(Trouble.LOST)

        await world.run(accepted)
        await world.run(accepted)

        (identity,) = books.accounts
        assert await world.slot(accepted) == ("active", 2, identity)

    async def test_without_an_id_in_its_answer_is_unknown(
        self, world: BooksWorld, books: Books
    ) -> None:
        """A record that cannot be named is no evidence of one (C147)."""
        accepted = await world.create()
        books.meet(Trouble.BARE)

        await world.run(accepted)

        assert await world.states(accepted) == ("dead", "unknown")
        assert await world.slot(accepted) == ("creating", 1, None)

    async def test_whose_record_is_anothers_is_unknown_and_never_links_it(
        self, world: BooksWorld, books: Books
    ) -> None:
        """Two subjects with one record would overwrite each other; nobody guesses whose (C28)."""
        taken = books.add(email="other@example.com")
        await adopt(world, "customer-2", taken)
        accepted = await world.create()
        books.meet(Trouble.SAME_AGAIN)

        result = await world.run(accepted)

        assert (result.outcome, result.execution_status) == ("OUTCOME_UNKNOWN", "unknown")
        (attempt,) = await world.of_command("effect_attempts", accepted)
        assert (attempt.failure_class, attempt.may_have_applied) == ("identity_taken", True)
        assert attempt.provider_receipt["remote_id"] == taken
        assert await world.slot(accepted) == ("creating", 1, None)

    async def test_is_told_of_a_link_that_is_adopted_at_the_same_moment(
        self, world: BooksWorld
    ) -> None:
        """Whether the record is another's is decided by the index, after any wait (C164)."""
        accepted = await world.create()
        started = await world.start(accepted)

        (settled,) = await all_at_once(
            world.database,
            [world.settle(started, created("acc_1"))],
            "INSERT INTO oncefence.remote_links (org_id, link_id, binding_id, local_object,"
            " subject, remote_object, remote_id, state)"
            " VALUES ($1, $2, $3, 'customer', 'customer-2', 'account', 'acc_1', 'active')",
            world.org,
            uuid4(),
            world.binding,
            commits=True,
        )

        assert getattr(settled, "outcome", settled) is Outcome.OUTCOME_UNKNOWN

    async def test_that_names_no_record_to_the_store_is_unknown(self, world: BooksWorld) -> None:
        """A create is never called done without its link, whoever says so."""
        accepted = await world.create()

        settled = await world.settle(await world.start(accepted), Outcome.ACCEPTED)

        assert (settled.outcome, settled.execution_status) == (Outcome.OUTCOME_UNKNOWN, "unknown")
        (attempt,) = await world.of_command("effect_attempts", accepted)
        assert attempt.failure_class == "evidence_missing"


class TestACreateWithoutEffect:
    async def test_that_was_refused_gives_its_slot_back(
        self, world: BooksWorld, books: Books
    ) -> None:
        """Whoever mends what was refused may ask again (C342)."""
        accepted = await world.create()
        books.meet(Trouble.REFUSED)

        await world.run(accepted)

        assert await world.states(accepted) == ("dead", "failed")
        assert await world.slot(accepted) == ("retired", 2, None)
        again = await world.create()
        await world.run(again)
        assert (await world.execution(again)).status == "succeeded"

    async def test_that_was_cancelled_gives_its_slot_back(self, world: BooksWorld) -> None:
        """Nothing was sent, so nothing can come of it (C69)."""
        accepted = await world.create()
        await Repairs(world=world).cancel(accepted.work)

        assert await world.slot(accepted) == ("retired", 2, None)
        await world.create()

    async def test_whose_account_is_gone_gives_its_slot_back(self, world: BooksWorld) -> None:
        """It is never sent to another account, and ends before the first byte (C6)."""
        accepted = await world.create()
        await world.retire_generation()

        answer = await world.try_to_start(accepted)

        assert isinstance(answer, NotStarted)
        assert answer.failure_class == "binding_generation_stale"
        assert await world.slot(accepted) == ("retired", 2, None)

    async def test_is_not_replayed(self, world: BooksWorld, books: Books) -> None:
        """Its slot is gone, and may be another create's by now (C403)."""
        accepted = await world.create()
        books.meet(Trouble.REFUSED)
        await world.run(accepted)

        verdict = await Repairs(world=world).verdict(accepted.work)

        assert verdict is ReplayVerdict.LINK_CHANGED


class TestAnUnknownCreate:
    @pytest_asyncio.fixture(loop_scope="module")
    async def unknown(self, world: BooksWorld) -> Accepted:
        accepted = await world.create()
        await world.lose(await world.start(accepted))
        return accepted

    async def test_keeps_its_slot(self, world: BooksWorld, unknown: Accepted) -> None:
        """The record may be there: a second create could make it twice (C1, C342)."""
        assert (await world.execution(unknown)).status == "unknown"
        assert await world.slot(unknown) == ("creating", 1, None)
        with pytest.raises(SubjectTaken):
            await world.create()

    async def test_is_found_by_a_lookup_and_linked(
        self, world: BooksWorld, books: Books, unknown: Accepted
    ) -> None:
        """What the search shows carries the command's own id (C268)."""
        identity = books.add(reference=str(unknown.command))
        books.add(reference="another")

        await world.look_up(unknown)

        assert (await world.execution(unknown)).status == "succeeded"
        assert await world.slot(unknown) == ("active", 2, identity)
        (lookup,) = await world.of_command("lookups", unknown)
        assert (lookup.verdict, lookup.provider_receipt) == ("applied", {"remote_id": identity})

    async def test_that_nothing_is_found_of_fails_at_the_last_try(
        self, world: BooksWorld, books: Books, unknown: Accepted
    ) -> None:
        """Then its slot is given back, as C270 calls the execution failed."""
        for _ in range(5):
            assert await world.slot(unknown) == ("creating", 1, None)
            await world.look_up(unknown)

        assert (await world.execution(unknown)).failure_class == "lookup_not_found"
        assert await world.slot(unknown) == ("retired", 2, None)
        assert len(books.reads) == 5

    async def test_that_a_person_must_judge_keeps_its_slot(
        self, world: BooksWorld, unknown: Accepted
    ) -> None:
        """Nobody knows yet whether the record is there (C272)."""
        work = await world.lookup_work(unknown)
        assert work is not None, "it is looked up"

        await world.look(work, Verdict.UNUSABLE)

        assert (await world.execution(unknown)).status == "needs_attention"
        assert await world.slot(unknown) == ("creating", 1, None)

    async def test_whose_record_is_anothers_goes_to_a_person(
        self, world: BooksWorld, unknown: Accepted
    ) -> None:
        """A lookup never takes a record from the subject that has it (C28)."""
        await adopt(world, "customer-2", "acc_1")

        assert await found(world, unknown, "acc_1") == "needs_attention"

        execution = await world.execution(unknown)
        assert execution.failure_class == "identity_taken"
        assert await world.slot(unknown) == ("creating", 1, None)
        (attempt,) = await world.of_command("effect_attempts", unknown)
        assert attempt.disposition is None

    async def test_found_without_an_id_goes_to_a_person(
        self, world: BooksWorld, unknown: Accepted
    ) -> None:
        """That it is there is not enough to link it."""
        assert await found(world, unknown, None) == "needs_attention"

    async def test_is_looked_for_when_the_key_ring_is_the_right_one_again(
        self, world: BooksWorld, books: Books
    ) -> None:
        """A process that was set up wrongly cannot look, and spends no try of it (C265)."""
        books.meet(Trouble.LOST)
        accepted = await world.create(operation=OPEN)
        await world.run(accepted)
        ring, world.ring = world.ring, KeyRing({"another-key": secrets.token_bytes(32)})
        for _ in range(6):
            result = await world.look_up(accepted)
            assert (result.step, result.verdict) == (Step.WAIT, "unreachable")
        assert len(books.reads) == 1

        world.ring = ring
        await world.look_up(accepted)

        assert (await world.execution(accepted)).status == "succeeded"

    async def test_is_linked_by_its_starters_late_answer(self, world: BooksWorld) -> None:
        """What the answer named was kept as evidence, and settles it (C106, C274)."""
        accepted = await world.create()
        started = await world.start(accepted)
        lookup_work = await world.lose(started)
        await world.tell(started, created("acc_7"))

        looking = await world.start_looking(lookup_work)
        word = strongest(looking.late_words)
        assert word is not None, "the starter has spoken"
        await settle_lookup(
            world.engine,
            looking.fence,
            word,
            is_sensitive=False,
            as_of=await world.now(),
            limits=world.limits,
        )

        assert await world.slot(accepted) == ("active", 2, "acc_7")


class TestWhoDoesNotHear:
    """The COMMIT that fills a slot or gives it back is durable, and its answer is lost (C171)."""

    @staticmethod
    async def twice(world: BooksWorld, ask: Callable[[AsyncEngine], Awaitable[T]]) -> T:
        """What `ask` comes to when its first answer is lost and it is asked again."""
        async with deaf_engine(world.database.app_url, size=1) as (deaf, line):
            async with deaf.connect() as connection:
                await connection.execute(text("SELECT 1"))
            line.is_deaf = True
            with pytest.raises(StoreUnavailable):
                await ask(deaf)
            assert line.swallowed == 1
        return await ask(world.engine)

    async def test_that_it_was_settled_finds_the_link(self, world: BooksWorld) -> None:
        """The second asking finds what the first one wrote, and links nothing anew."""
        accepted = await world.create()
        started, as_of = await world.start(accepted), await world.now()

        settled = await self.twice(
            world,
            lambda engine: settle_attempt(
                engine,
                started.fence,
                started.attempt,
                created("acc_1"),
                as_of=as_of,
                limits=world.limits,
            ),
        )

        assert (settled.outcome, settled.execution_status) == (Outcome.ACCEPTED, "succeeded")
        assert await world.slot(accepted) == ("active", 2, "acc_1")

    async def test_that_its_record_is_anothers_is_told_so_again(self, world: BooksWorld) -> None:
        """The attempt says what it was settled as, whatever the starter saw."""
        await adopt(world, "customer-2", "acc_1")
        accepted = await world.create()
        started, as_of = await world.start(accepted), await world.now()

        settled = await self.twice(
            world,
            lambda engine: settle_attempt(
                engine,
                started.fence,
                started.attempt,
                created("acc_1"),
                as_of=as_of,
                limits=world.limits,
            ),
        )

        assert (settled.outcome, settled.execution_status) == (Outcome.OUTCOME_UNKNOWN, "unknown")
        assert settled.lookup is not None

    async def test_that_it_was_found_finds_the_link(self, world: BooksWorld) -> None:
        """As with the answer itself, a lookup is settled once."""
        accepted = await world.create()
        looking = await world.start_looking(await world.lose(await world.start(accepted)))
        as_of = await world.now()

        settled = await self.twice(
            world,
            lambda engine: settle_lookup(
                engine,
                looking.fence,
                finding("acc_1"),
                is_sensitive=False,
                as_of=as_of,
                limits=world.limits,
            ),
        )

        assert settled.execution_status == "succeeded"
        assert await world.slot(accepted) == ("active", 2, "acc_1")


class TestASlot:
    async def test_stands_as_its_create_does(self, world: BooksWorld, books: Books) -> None:
        """What the audit looks for in the tables is not found after any end (C464)."""
        await world.create("open")
        await world.run(await world.create("done"))
        await world.lose(await world.start(await world.create("unknown")))
        books.meet(Trouble.REFUSED)
        await world.run(await world.create("refused"))

        audit = await audit_invariants(world.engine)

        rules = {each.rule.name for each in audit.invariants if each.count}
        assert rules == set()
        states = await world.sql(
            "SELECT subject, state FROM oncefence.remote_links WHERE org_id = :org"
        )
        assert dict(map(tuple, states)) == {
            "open": "creating",
            "done": "active",
            "unknown": "creating",
            "refused": "retired",
        }

    async def test_outlives_an_attempt_that_did_nothing(self, store: Database) -> None:
        """A create that is tried again finds its slot as it was (C141)."""
        world = await BooksWorld.at(store, Books(), limits=Limits(attempts_max=3))
        accepted = await world.create()
        await world.settle(await world.start(accepted), Outcome.RETRYABLE_PRE_DISPATCH)
        assert await world.slot(accepted) == ("creating", 1, None)

        again = await world.start(accepted, as_of=await world.now() + seconds(3600))

        assert again.ordinal == 2
