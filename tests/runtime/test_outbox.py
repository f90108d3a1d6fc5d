"""The Runtime's outbox: written with the change, kept until there is a receipt, whatever dies."""

import asyncio
import json
import sys
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import asyncpg
import pytest

from oncefence.domain.handoff import EffectHandoffKey
from oncefence.domain.ids import OutboxId
from tests.runtime.crm import Crm, ReceiptsDiffer
from tests.runtime.deployment import Oncefence
from tests.runtime.doors import (
    ACCEPTED,
    REJECTED,
    Address,
    Door,
    Entry,
    NoAnswer,
    Receipt,
    Refused,
    Way,
    open_http,
    open_way,
)
from tests.runtime.own_database import RuntimeDatabase, fetch
from tests.support.station import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROOT = Path(__file__).parents[2]
AT_ONCE = timedelta(0)


async def no_pause(_: float) -> None:
    await asyncio.sleep(0)


async def kill_before_receipt(
    database: RuntimeDatabase, outbox_id: str, way: Way, address: Address
) -> None:
    """A process of the Runtime has the door's answer, and is killed before it can write it down."""
    holder = await asyncpg.connect(database.admin_url)
    try:
        # It gets as far as the row of the entry, and no further.
        holding = holder.transaction()
        await holding.start()
        await holder.execute("SELECT FROM crm.outbox WHERE outbox_id = $1 FOR UPDATE", outbox_id)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.runtime"), cwd=ROOT, stdin=asyncio.subprocess.PIPE
        )
        told = {"database_url": database.url, "way": way, **asdict(address)}
        communicating = asyncio.create_task(process.communicate(json.dumps(told).encode()))

        async def waits_for_the_row() -> bool:
            assert process.returncode is None, "the process ended by itself"
            return bool(
                await fetch(
                    database.server_url,
                    "SELECT FROM pg_stat_activity WHERE usename = $1 AND wait_event_type = 'Lock'",
                    database.role,
                )
            )

        await until(waits_for_the_row, within_s=30, what="a process with a receipt in its hands")
        process.kill()
        await communicating
        await holding.rollback()
    finally:
        await holder.close()

    async def is_gone() -> bool:
        return not await fetch(
            database.server_url,
            "SELECT FROM pg_stat_activity WHERE usename = $1",
            database.role,
        )

    await until(is_gone, what="the end of what the killed process had open")


class TestALocalChange:
    async def test_is_written_with_its_entry_in_one_transaction(
        self, crm: Crm, database: RuntimeDatabase
    ) -> None:
        """The database itself says that one transaction wrote both."""
        outbox_id = await crm.retitle("lead-1", "Director")

        written = await database.row(
            "SELECT l.title, l.version, o.lead_version, o.payload, l.xmin::text = o.xmin::text"
            " AS together FROM crm.leads AS l JOIN crm.outbox AS o USING (lead_id)"
            " WHERE o.outbox_id = $1",
            outbox_id,
        )
        assert written["together"]
        assert (written["title"], written["version"], written["lead_version"]) == ("Director", 2, 2)
        assert json.loads(written["payload"]) == {"title": "Director"}

    async def test_is_not_made_where_its_entry_cannot_be_written(
        self, crm: Crm, database: RuntimeDatabase
    ) -> None:
        """A change that nobody is told of would be lost to the provider for ever."""
        await fetch(database.url, f"REVOKE INSERT ON crm.outbox FROM {database.role}")

        try:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await crm.retitle("lead-1", "Director")
        finally:
            await fetch(database.url, f"GRANT INSERT ON crm.outbox TO {database.role}")

        lead = await database.lead("lead-1")
        assert (lead["title"], lead["version"]) == ("Engineer", 1)


@pytest.mark.parametrize("way", Way)
class TestAnEntry:
    async def test_becomes_one_command_one_change_and_one_result(
        self, crm: Crm, oncefence: Oncefence, database: RuntimeDatabase, way: Way
    ) -> None:
        """The whole way through each door, and both sides end in step (C136)."""
        async with oncefence.running() as address:
            outbox_id = await crm.retitle("lead-1", "Director")
            async with open_way(way, address) as door, open_http(address) as results:
                assert await crm.hand_over(door) == [outbox_id]
                assert await crm.hand_over(door) == []
                entry = await database.entry(outbox_id)
                assert await oncefence.settled(entry["command_id"]) == "succeeded"
                taken = await crm.take_results(results)

        assert entry["admission"] == ACCEPTED
        assert taken == [f"{entry['execution_id']}:1"]
        assert await oncefence.commands() == [entry["command_id"]]
        assert oncefence.changes(entry["command_id"]) == 1
        assert oncefence.simulator.title(oncefence.world.remote_ids["lead-1"]) == "Director"
        lead = await database.lead("lead-1")
        assert (lead["pushed_title"], lead["pushed_version"]) == ("Director", lead["version"])

    async def test_whose_process_is_killed_before_the_receipt_is_handed_over_again(
        self, crm: Crm, oncefence: Oncefence, database: RuntimeDatabase, way: Way
    ) -> None:
        """The entry is still there, and asking again gives the receipt that was lost (C138)."""
        async with oncefence.running() as address:
            outbox_id = await crm.retitle("lead-1", "Director")
            await kill_before_receipt(database, outbox_id, way, address)
            before = await database.entry(outbox_id)
            made = await oncefence.commands()

            async with open_way(way, address) as door:
                assert await crm.hand_over(door) == [outbox_id]
            after = await database.entry(outbox_id)
            assert await oncefence.settled(after["command_id"]) == "succeeded"

        assert before["admission"] is None
        assert (after["admission"], [after["command_id"]]) == (ACCEPTED, made)
        assert await oncefence.commands() == made
        assert oncefence.changes(after["command_id"]) == 1

    async def test_that_nobody_wants_any_more_is_rejected_for_good(
        self, crm: Crm, oncefence: Oncefence, database: RuntimeDatabase, way: Way
    ) -> None:
        """However late a copy of it arrives, it becomes no command (C128, C129)."""
        async with oncefence.running() as address, open_way(way, address) as door:
            outbox_id = await crm.retitle("lead-1", "Director")
            row = await database.entry(outbox_id)
            late = Entry(
                outbox_id=outbox_id,
                operation=row["operation"],
                subject=row["lead_id"],
                payload=row["payload"],
            )

            assert await crm.withdraw(door, older_than=timedelta(hours=1)) == []
            assert await crm.withdraw(door, older_than=AT_ONCE) == [outbox_id]
            with pytest.raises(Refused, match="handoff_already_rejected"):
                await door.hand_over(late)

        assert (await database.entry(outbox_id))["admission"] == REJECTED
        assert await oncefence.commands() == []
        assert await crm.clear() == [outbox_id]

    async def test_that_was_accepted_unnoticed_is_not_withdrawn(
        self, crm: Crm, oncefence: Oncefence, database: RuntimeDatabase, way: Way
    ) -> None:
        """Acceptance came first: the answer is the receipt of the command (C128, C133)."""
        async with oncefence.running() as address, open_way(way, address) as door:
            outbox_id = await crm.retitle("lead-1", "Director")
            await crm.hand_over(LostAnswers(door))
            (command,) = await oncefence.commands()

            assert await crm.withdraw(door, older_than=AT_ONCE) == []

        entry = await database.entry(outbox_id)
        assert (entry["admission"], entry["command_id"]) == (ACCEPTED, command)


class LostAnswers:
    """A door whose every answer is lost on the way back."""

    def __init__(self, door: Door) -> None:
        self._door = door

    async def hand_over(self, entry: Entry) -> Receipt:
        await self._door.hand_over(entry)
        raise NoAnswer("the answer was lost")

    async def reject(self, entry: Entry) -> Receipt:
        await self._door.reject(entry)
        raise NoAnswer("the answer was lost")


class TestTheThreeDoors:
    async def test_give_one_entry_one_receipt(
        self, crm: Crm, oncefence: Oncefence, database: RuntimeDatabase
    ) -> None:
        """Whichever was tried first and lost its answer, the next one finds it (C131)."""
        async with oncefence.running() as address:
            outbox_id = await crm.retitle("lead-1", "Director")
            for way in Way:
                async with open_way(way, address) as door:
                    assert await crm.hand_over(LostAnswers(door)) == []
            async with open_way(Way.HTTP, address) as door:
                assert await crm.hand_over(door) == [outbox_id]

        entry = await database.entry(outbox_id)
        assert await oncefence.commands() == [entry["command_id"]]

    async def test_are_used_by_many_processes_at_once(
        self, crm: Crm, oncefence: Oncefence, database: RuntimeDatabase
    ) -> None:
        """The Runtime's workers need no lock between them: the key is the lock (C124)."""
        async with oncefence.running() as address:
            outbox_id = await crm.retitle("lead-1", "Director")

            async def work(way: Way) -> list[str]:
                async with open_way(way, address) as door:
                    return await Crm(database.url).hand_over(door)

            received = await asyncio.gather(*(work(way) for way in [*Way] * 2))

        assert [outbox_id] in received
        entry = await database.entry(outbox_id)
        assert await oncefence.commands() == [entry["command_id"]]

    async def test_take_a_key_that_any_language_can_write(
        self, crm: Crm, oncefence: Oncefence
    ) -> None:
        """Scope and id, joined by dots: nothing of oncefence has to be imported (C121)."""
        async with oncefence.doors_alone() as address, open_http(address) as door:
            entry = Entry(outbox_id="0a1b", operation="x", subject="lead-1", payload=b"{}")

            key = await door.key_of(entry)

        assert key == str(
            EffectHandoffKey.for_outbox(oncefence.world.caller.scope, OutboxId("0a1b"))
        )

    async def test_that_are_closed_leave_every_entry_where_it_is(
        self, crm: Crm, oncefence: Oncefence, database: RuntimeDatabase
    ) -> None:
        """oncefence is down: the outbox waits and loses nothing, and then goes on (C138)."""
        async with oncefence.running() as address:
            pass  # these are the addresses that nobody listens at any more
        written = [await crm.retitle("lead-1", title) for title in ("Director", "President")]

        async with open_way(Way.HTTP, address) as door:
            assert await crm.hand_over(door) == []
            assert await crm.withdraw(door, older_than=AT_ONCE) == []
        async with open_way(Way.PYTHON, address, pause=no_pause) as door:
            assert await crm.hand_over(door) == []
        waiting = await database.rows("SELECT outbox_id, admission FROM crm.outbox")
        async with (
            oncefence.running() as address,
            open_way(Way.TEMPORAL, address) as door,
            open_http(address) as results,
        ):
            handed_over = await crm.hand_over(door)
            commands = [(await database.entry(each))["command_id"] for each in written]
            settled = [await oncefence.settled(each) for each in commands]
            taken = await crm.take_results(results)

        assert {row["outbox_id"]: row["admission"] for row in waiting} == dict.fromkeys(written)
        assert handed_over == written
        assert (settled, len(taken)) == (["succeeded"] * 2, 2)
        assert [oncefence.changes(each) for each in commands] == [1, 1]
        assert oncefence.simulator.title(oncefence.world.remote_ids["lead-1"]) == "President"
        lead = await database.lead("lead-1")
        assert (lead["pushed_title"], lead["results_applied"]) == ("President", 2)


class TestARefusal:
    async def test_leaves_the_entry_and_holds_back_what_follows_it(
        self, crm: Crm, oncefence: Oncefence, database: RuntimeDatabase
    ) -> None:
        """It is no admission: what was missing can be made good, and the order is kept."""
        await crm.add_lead("lead-2", "Engineer")
        first, second = [await crm.retitle("lead-2", title) for title in ("Head", "Chief")]
        other = await crm.retitle("lead-1", "Director")
        async with oncefence.doors_alone() as address, open_way(Way.HTTP, address) as door:
            assert await crm.hand_over(door) == [other]
            refused = [(await database.entry(each))["refused"] for each in (first, second)]
            await oncefence.world.link("lead-2")

            assert await crm.hand_over(door) == [first, second]

        assert refused == ["no_such_target", None]
        assert (await database.entry(first))["refused"] is None


class TestDeleting:
    async def test_an_entry_without_receipt_is_refused_by_the_database(
        self, crm: Crm, database: RuntimeDatabase
    ) -> None:
        """No code of the Runtime can forget the one rule of its outbox (C138)."""
        outbox_id = await crm.retitle("lead-1", "Director")

        with pytest.raises(asyncpg.PostgresError, match="holds no receipt"):
            await fetch(database.url, "DELETE FROM crm.outbox")

        assert await crm.clear() == []
        assert (await database.entry(outbox_id))["admission"] is None

    async def test_waits_for_the_result_of_what_was_accepted(
        self, crm: Crm, oncefence: Oncefence, database: RuntimeDatabase
    ) -> None:
        """The execution's id is in the receipt, and the result is asked for by it."""
        outbox_id = await crm.retitle("lead-1", "Director")
        async with oncefence.running() as address, open_http(address) as door:
            await crm.hand_over(door)
            assert await crm.clear() == []
            await oncefence.settled((await database.entry(outbox_id))["command_id"])
            await crm.take_results(door)

            assert await crm.clear() == [outbox_id]
            assert await crm.take_results(door) == []

    async def test_never_follows_from_two_receipts(
        self, crm: Crm, oncefence: Oncefence, database: RuntimeDatabase
    ) -> None:
        """A second receipt that says something else is an alarm and changes nothing."""
        outbox_id = await crm.retitle("lead-1", "Director")
        async with oncefence.doors_alone() as address, open_way(Way.HTTP, address) as door:
            await crm.hand_over(door)
        before = await database.entry(outbox_id)
        other = Receipt(admission=ACCEPTED, command_id=UUID(int=1), execution_id=UUID(int=2))

        with pytest.raises(ReceiptsDiffer):
            await crm.keep_receipt(outbox_id, other)

        assert await database.entry(outbox_id) == before
