"""Temporal's histories carry identifiers and classes only, so that its pages are safe to show."""

import base64
import json
import uuid
from urllib.parse import quote

import pytest
from sqlalchemy.engine import make_url
from temporalio.api.common.v1 import Payload
from temporalio.api.history.v1 import History
from temporalio.client import Client, WorkflowExecution

from tests.canaries.scan import decoded, found_in
from tests.providers.simulated import TOKEN, Simulated
from tests.support.dialect import Form, Provider, simulated_provider
from tests.support.servers import Database
from tests.support.station import (
    BRIEF,
    ProviderWorld,
    Station,
    make_station,
    new_queue,
    until,
    working,
)
from tests.support.world import Accepted
from tests.workflows.store_link import linked_engine
from tests.workflows.test_sweep import sweep
from tests.workflows.watching import MARKER, seen

pytestmark = pytest.mark.asyncio(loop_scope="module")

TITLE = "Canary Ältester der Vögel <canary.title@birds.example>"
SUBJECT = "canary-subject.of.birds"
REFUSALS = ("refused by script", "the token is expired")
RULES: dict[str, dict[str, object]] = {
    "plain": {"hold": "nothing", "nth": 99},
    "garbled": {"fault": "garbled"},
    "limited": {"fault": "rate_limit_429", "retry_after": 1},
    "refused": {"fault": "reject_400"},
    "unauthorized": {"fault": "unauthorized_401"},
    "cut": {"fault": "cut_body"},
}

LAST = "unauthorized"
"""From here on nothing more is sent with the account."""


async def exported(client: Client, execution: WorkflowExecution) -> list[bytes]:
    """All that Temporal shows of one run: its history twice over, and its description."""
    handle = client.get_workflow_handle(execution.id, run_id=execution.run_id)
    history = await handle.fetch_history()
    described = await handle.describe()
    return [
        History(events=history.events).SerializeToString(),
        described.raw_description.SerializeToString(),
        *decoded(json.loads(history.to_json())),
    ]


async def all_runs(station: Station, expected: int) -> list[WorkflowExecution]:
    """Every run on the station's queue, when as many are listed and all are over."""

    async def listed() -> list[WorkflowExecution]:
        query = f"TaskQueue = '{station.task_queue}'"
        runs = [run async for run in station.client.list_workflows(query)]
        is_over = all(run.close_time is not None for run in runs)
        return runs if len(runs) >= expected and is_over else []

    return await until(listed, what=f"{expected} runs on the queue")


def arranged(provider: Provider, simulator: Simulated) -> tuple[Provider, list[str]]:
    """The provider with ids that occur nowhere by chance, and the list of those."""
    contacts: list[str] = []

    def make_record() -> str:
        contact = str(uuid.uuid4().int)[:17].replace("0", "7")
        simulator.admin("/contacts", {"id": contact, "properties": {"jobtitle": "before"}})
        contacts.append(contact)
        return contact

    return Provider(
        base_url=provider.base_url, dialect=provider.dialect, make_record=make_record
    ), contacts


class TestHistories:
    """What leaves the database for Temporal."""

    async def test_hold_no_secret_and_nothing_of_a_customer(
        self, store: Database, client: Client, simulator: Simulated
    ) -> None:
        """Payload, token, address and provider text stay out, in failures too (C380)."""
        provider, contacts = arranged(simulated_provider(simulator), simulator)
        world = await ProviderWorld.on(
            store, provider, limits=BRIEF, view=provider.dialect.view(local_ms=1_000)
        )
        async with linked_engine(store.app_url) as (engine, link):
            station = make_station(world, client, new_queue(), engine=engine)
            async with working(station):
                commands = [
                    await submitted(station, simulator, trouble, form)
                    for trouble in RULES
                    if trouble != LAST
                    for form in Form
                ]
                await world.settled(*commands, within_s=60)
                link.cut()
                late = await station.submit(f"late-{SUBJECT}", title=TITLE)
                await seen(station, late.work, MARKER)
                link.mend()
                await world.settled(late)
                commands.append(await submitted(station, simulator, LAST, Form.LOCAL))
                await until(
                    lambda: refused(world, commands[-1]), what="an attempt that was refused"
                )
                await sweep(station)
                lookups = [each for each in commands if await world.lookup_work(each) is not None]
                # Every command, its investigation, and the sweep.
                runs = await all_runs(station, len(commands) + len(lookups) + 2)
                places = [each for run in runs for each in await exported(client, run)]
        database = make_url(store.app_url)
        canaries = {
            TITLE,
            TITLE.partition("<")[2],
            SUBJECT,
            TOKEN,
            world.credential,
            *REFUSALS,
            provider.base_url,
            provider.base_url.partition("//")[2],
            f"127.0.0.1:{database.port}",
            str(database.password),
            *contacts,
        }

        assert len(lookups) >= 2 * len(Form) + 1
        assert found_in(places, canaries) == set()
        assert found_in(places, {str(late.work), str(world.org)}) == {
            str(late.work),
            str(world.org),
        }

    @pytest.mark.parametrize("shift", ["", "a", "ab"])
    @pytest.mark.parametrize("written", ["plain", "json", "base64", "hex", "url"])
    async def test_are_searched_by_a_search_that_finds(self, written: str, shift: str) -> None:
        """A search that finds nothing in any history would prove nothing."""
        text = f"{shift}{TITLE}{shift}"
        data = {
            "plain": text.encode(),
            "json": json.dumps({"x": text}).encode(),
            "base64": base64.b64encode(text.encode()),
            "hex": text.encode().hex().encode(),
            "url": quote(text).encode(),
        }[written]
        history = History()
        event = history.events.add()
        event.workflow_execution_started_event_attributes.input.payloads.append(Payload(data=data))
        shown = {"events": [{"input": {"data": base64.b64encode(data).decode()}}]}

        assert found_in([history.SerializeToString()], {TITLE, TOKEN}) == {TITLE}
        assert found_in(decoded(shown), {TITLE, TOKEN}) == {TITLE}


async def refused(world: ProviderWorld, accepted: Accepted) -> bool:
    return [row.response_status for row in await world.attempts(accepted)] == [401]


async def submitted(station: Station, simulator: Simulated, trouble: str, form: Form) -> Accepted:
    """A command full of canaries that meets a trouble."""
    subject = f"{trouble}-{form}-{SUBJECT}"
    world = station.world
    await world.link(subject)
    simulator.script(contact=world.remote_ids[subject], **RULES[trouble])
    return await station.submit(subject, title=TITLE, form=form)
