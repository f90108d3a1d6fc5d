"""The Runtime's inbox: each settlement once, by the contract that was frozen with its command."""

import asyncio
from dataclasses import replace
from uuid import UUID

import pytest

from oncefence.domain.ids import dispatch_work_id
from oncefence.simulator.faults import Fault
from tests.runtime.crm import LOCAL_COMMANDS, ContractUnknown, Crm
from tests.runtime.deployment import Oncefence
from tests.runtime.doors import Completion, open_http
from tests.runtime.own_database import RuntimeDatabase
from tests.support.repairs import Repairs

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECOND = """
command = "lead.title.pushed"
version = 2
data = { object = "lead", field = "title", state = "in step" }
"""
UNHEARD_OF = """
command = "lead.title.celebrated"
version = 7
data = { object = "lead" }
"""
PUSHED = Completion(
    completion_id="x:1",
    settlement=1,
    supersedes=None,
    status="succeeded",
    command="lead.title.pushed",
    version=1,
    data={},
)


async def handed_over(crm: Crm, oncefence: Oncefence, title: str) -> str:
    """An entry that holds the receipt of a command, which waits for a worker."""
    outbox_id = await crm.retitle("lead-1", title)
    async with oncefence.doors_alone() as address, open_http(address) as door:
        assert await crm.hand_over(door) == [outbox_id]
    return outbox_id


async def settled(oncefence: Oncefence, database: RuntimeDatabase, outbox_id: str) -> str:
    command: UUID = (await database.entry(outbox_id))["command_id"]
    async with oncefence.worker_alone():
        return await oncefence.settled(command)


async def take(crm: Crm, oncefence: Oncefence) -> list[str]:
    async with oncefence.doors_alone() as address, open_http(address) as door:
        return await crm.take_results(door)


class TestAResult:
    async def test_is_not_there_before_the_execution_is_settled(
        self, crm: Crm, oncefence: Oncefence, database: RuntimeDatabase
    ) -> None:
        """Accepted is no result, and the lead says nothing that is not known."""
        await handed_over(crm, oncefence, "Director")

        assert await take(crm, oncefence) == []
        assert (await database.lead("lead-1"))["push_state"] == "never pushed"

    async def test_is_taken_once_however_many_ask(
        self, crm: Crm, oncefence: Oncefence, database: RuntimeDatabase
    ) -> None:
        """The settlement's id is the inbox's key, and the lead changes with the row (C99)."""
        outbox_id = await handed_over(crm, oncefence, "Director")
        assert await settled(oncefence, database, outbox_id) == "succeeded"

        async with oncefence.doors_alone() as address, open_http(address) as door:
            takers = [Crm(database.url).take_results(door) for _ in range(6)]
            taken = await asyncio.gather(*takers)
            again = await crm.take_results(door)

        execution = (await database.entry(outbox_id))["execution_id"]
        assert sorted(taken) == [[]] * 5 + [[f"{execution}:1"]]
        assert again == []
        lead = await database.lead("lead-1")
        assert (lead["push_state"], lead["results_applied"]) == ("pushed", 1)

    async def test_of_an_older_title_does_not_hide_that_of_a_newer_one(
        self, crm: Crm, oncefence: Oncefence, database: RuntimeDatabase
    ) -> None:
        """Results may be taken in any order."""
        older = await handed_over(crm, oncefence, "Director")
        newer = await handed_over(crm, oncefence, "President")
        async with oncefence.worker_alone():
            for each in (older, newer):
                await oncefence.settled((await database.entry(each))["command_id"])
        async with oncefence.doors_alone() as address, open_http(address) as door:
            for each in (newer, older):
                completion = await door.completion((await database.entry(each))["execution_id"])
                assert completion is not None
                assert await crm.take(each, completion)

        lead = await database.lead("lead-1")
        assert (lead["pushed_title"], lead["pushed_version"]) == ("President", 3)
        assert lead["results_applied"] == 2

    async def test_of_a_later_settlement_supersedes_the_one_before(
        self, crm: Crm, oncefence: Oncefence, database: RuntimeDatabase
    ) -> None:
        """An operator had it tried again: another result of the same execution comes (C99)."""
        contact = oncefence.world.remote_ids["lead-1"]
        oncefence.simulator.script(contact=contact, fault=Fault.REJECT_400, times=1)
        outbox_id = await handed_over(crm, oncefence, "Director")
        assert await settled(oncefence, database, outbox_id) == "failed"
        first = await take(crm, oncefence)
        after_first = await database.lead("lead-1")
        assert await crm.clear() == [], "what failed may come again"

        command = (await database.entry(outbox_id))["command_id"]
        replayed = await Repairs(world=oncefence.world).replay(dispatch_work_id(command, 1))
        async with oncefence.worker_alone():
            await oncefence.wake(replayed.ref)
            assert await oncefence.settled(command) == "succeeded"
        second = await take(crm, oncefence)

        inbox = await database.rows("SELECT * FROM crm.inbox ORDER BY settlement")
        assert [row["completion_id"] for row in inbox] == [*first, *second]
        assert [row["supersedes"] for row in inbox] == [None, *first]
        assert (after_first["push_state"], after_first["pushed_title"]) == ("failed", None)
        lead = await database.lead("lead-1")
        assert (lead["push_state"], lead["pushed_title"]) == ("pushed", "Director")
        assert await crm.clear() == [outbox_id]

    async def test_that_was_superseded_changes_nothing_when_it_comes_late(
        self, crm: Crm, oncefence: Oncefence, database: RuntimeDatabase
    ) -> None:
        """Two askers may be overtaken by each other."""
        outbox_id = await handed_over(crm, oncefence, "Director")
        older = replace(PUSHED, status="failed")
        newer = replace(PUSHED, completion_id="x:2", settlement=2, supersedes="x:1")

        assert await crm.take(outbox_id, newer)
        assert not await crm.take(outbox_id, older)

        assert (await database.lead("lead-1"))["push_state"] == "pushed"


class TestTheFrozenContract:
    async def test_is_that_of_the_revision_under_which_the_entry_was_accepted(
        self, crm: Crm, oncefence: Oncefence, database: RuntimeDatabase
    ) -> None:
        """A newer revision changes what comes after it and nothing that was before (C561)."""
        before = await handed_over(crm, oncefence, "Director")
        assert await oncefence.publish(SECOND) == 2
        assert await settled(oncefence, database, before) == "succeeded"
        taken = await take(crm, oncefence)
        under_first = await database.lead("lead-1")

        after = await handed_over(crm, oncefence, "President")
        assert await settled(oncefence, database, after) == "succeeded"
        taken += await take(crm, oncefence)
        under_second = await database.lead("lead-1")

        inbox = await database.rows("SELECT * FROM crm.inbox ORDER BY taken_at")
        assert [(row["outbox_id"], row["command_version"]) for row in inbox] == [
            (before, 1),
            (after, 2),
        ]
        assert [row["completion_id"] for row in inbox] == taken
        assert (under_first["pushed_title"], under_first["push_state"]) == ("Director", "pushed")
        assert (under_second["pushed_title"], under_second["push_state"]) == (
            "President",
            "in step",
        )

    async def test_that_this_runtime_does_not_know_is_left_for_one_that_does(
        self, crm: Crm, oncefence: Oncefence, database: RuntimeDatabase
    ) -> None:
        """Inbox and lead stay as they were, and the result is there to be asked for again."""
        await oncefence.publish(UNHEARD_OF)
        outbox_id = await handed_over(crm, oncefence, "Director")
        assert await settled(oncefence, database, outbox_id) == "succeeded"
        before = await database.lead("lead-1")

        with pytest.raises(ContractUnknown, match=r"lead\.title\.celebrated, version 7"):
            await take(crm, oncefence)

        assert await database.rows("SELECT FROM crm.inbox") == []
        assert await database.lead("lead-1") == before
        newer = Crm(
            database.url,
            LOCAL_COMMANDS | {("lead.title.celebrated", 7): LOCAL_COMMANDS["lead.title.pushed", 1]},
        )
        assert len(await take(newer, oncefence)) == 1
        assert (await database.lead("lead-1"))["pushed_title"] == "Director"
