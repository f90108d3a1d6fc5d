"""
Two revisions whose requests differ, while work of both is on its way (C519, C561).

The provider is a bare socket that knows both requests, and answers each with a status that the
other revision's contract does not know.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import asyncpg
import pytest

from oncefence.activities.attempt import AttemptActivity
from oncefence.activities.contracts import RunRequest, RunResult
from oncefence.activities.lookup import LookupActivity
from oncefence.activities.process_context import ProcessContext
from oncefence.catalog.view import IntegrationBindingView
from oncefence.domain.effect import Outcome
from oncefence.domain.ids import WorkId
from oncefence.storage.phases.activate_view import activate_view
from oncefence.storage.phases.find_work import WorkRef
from oncefence.storage.phases.publish_view import publish_view
from oncefence.storage.phases.read_view import ViewShelf
from tests.providers.raw_server import Call, RawServer, answer, raw_server
from tests.support.dialect import Provider, shipped_dialect
from tests.support.repairs import Repairs
from tests.support.servers import Database
from tests.support.station import ProviderWorld
from tests.support.world import INSTALLATION, OPERATION, Accepted, World, example_view

pytestmark = pytest.mark.asyncio(loop_scope="module")

OLD_PATH, NEW_PATH = "/crm/v3/objects/contacts/", "/next/contacts/"
RECORD = "77"
CHANGED_AT = "2020-01-01T00:00:00Z"


def next_view() -> IntegrationBindingView:
    """The example, sent to another place in another form, and judged by other words."""
    view = example_view()
    operation = view.operation(OPERATION)
    lookup = operation.lookup
    assert lookup is not None
    changed = operation.model_copy(
        update={
            "path": f"{NEW_PATH}{{remote_id}}",
            "body": {"fields": "{fields}"},
            "response": operation.response.model_copy(update={"success": (202,)}),
            "lookup": lookup.model_copy(update={"path": f"{NEW_PATH}{{remote_id}}"}),
        }
    )
    return view.model_copy(update={"operations": {OPERATION: changed}})


async def provider(call: Call) -> None:
    """Take a change in either form; the first answer to a title that is to be lost is lost."""
    request = await call.read_request()
    head, _, body = request.partition(b"\r\n\r\n")
    status = "202 Accepted" if f" {NEW_PATH}".encode() in head else "200 OK"
    if b"Lost" in body:
        call.reset()
        return
    title = "Lost" if request.startswith(b"GET ") else "whatever was sent"
    shown = {"id": RECORD, "properties": {"jobtitle": title}, "updatedAt": CHANGED_AT}
    # A read is answered alike by both.
    await call.send(
        answer("200 OK" if request.startswith(b"GET ") else status, json.dumps(shown).encode())
    )


@asynccontextmanager
async def account(store: Database) -> AsyncIterator[tuple[ProviderWorld, RawServer]]:
    async with raw_server(provider) as server:
        at = Provider(
            base_url=server.base_url, dialect=shipped_dialect(), make_record=lambda: RECORD
        )
        yield await ProviderWorld.on(store, at, view=example_view()), server


async def publish_next(world: World, *, activate: bool = True) -> None:
    published = await publish_view(
        world.engine, world.org, INSTALLATION, next_view(), actor="tests", activate=activate
    )
    assert published.revision == 2


def a_process(world: World) -> ProcessContext:
    async def wake(ref: WorkRef) -> None:
        """Nobody is told: the test runs what it wants."""

    return ProcessContext(
        engine=world.engine,
        ring=world.ring,
        limits=world.limits,
        owner=uuid4(),
        wake=wake,
        views=ViewShelf(world.engine),
    )


def run_of(world: World, work: WorkId) -> RunRequest:
    later = datetime.now(UTC) + timedelta(hours=1)
    return RunRequest(org_id=world.org, work_id=str(work), deadline_ms=8_000, as_of=later)


async def run(world: World, context: ProcessContext, accepted: Accepted) -> RunResult:
    return await AttemptActivity(context).run_attempt(run_of(world, accepted.work))


def sent(server: RawServer) -> list[tuple[str, object]]:
    """What each request asked for, and its body."""
    found = []
    for received in server.received:
        head, _, body = bytes(received).partition(b"\r\n\r\n")
        method, target, _ = head.split(b"\r\n")[0].decode().split(" ")
        found.append((f"{method} {target}", json.loads(body) if body else None))
    return found


def old_request(title: str) -> tuple[str, object]:
    return f"PATCH {OLD_PATH}{RECORD}", {"properties": {"jobtitle": title}}


def new_request(title: str) -> tuple[str, object]:
    return f"PATCH {NEW_PATH}{RECORD}", {"fields": {"jobtitle": title}}


async def test_each_command_is_sent_and_judged_by_its_own(store: Database) -> None:
    """One process does both, one after the other, with both views on its shelf."""
    async with account(store) as (world, server):
        context = a_process(world)
        first = await world.accept_command(title="one")
        behind = await world.accept_command(title="two")
        await publish_next(world)
        newer = await world.accept_command(title="three")

        ends = [await run(world, context, each) for each in (first, behind, newer)]

        assert sent(server) == [old_request("one"), old_request("two"), new_request("three")]
        # By the contract of the other one, each answer would have been an unknown outcome.
        assert [end.outcome for end in ends] == [Outcome.ACCEPTED] * 3


async def test_a_retry_repeats_the_request_that_was_accepted(store: Database) -> None:
    """Also where another revision has become current between the attempts (C142)."""
    async with account(store) as (world, server):
        context = a_process(world)
        accepted = await world.accept_command(title="one")
        await world.settle(await world.start(accepted), Outcome.RETRYABLE_PRE_DISPATCH)
        await publish_next(world)

        end = await run(world, context, accepted)

        assert end.outcome is Outcome.ACCEPTED
        assert sent(server) == [old_request("one")]


async def test_a_replay_repeats_the_request_that_was_accepted(store: Database) -> None:
    """What is current decides whether it may be sent again, never what is sent (C402)."""
    async with account(store) as (world, server):
        context = a_process(world)
        accepted = await world.accept_command(title="one")
        await world.settle(await world.start(accepted), Outcome.REJECTED)
        await publish_next(world)
        replayed = await Repairs(world=world).replay(accepted.work)

        end = await AttemptActivity(context).run_attempt(run_of(world, replayed.ref.work))

        assert end.outcome is Outcome.ACCEPTED
        assert sent(server) == [old_request("one")]
        items = [await world.item(each) for each in (accepted.work, replayed.ref.work)]
        assert {(each.view_revision, each.view_digest) for each in items} == {
            (1, example_view().digest)
        }


async def test_a_lookup_asks_as_its_own_revision_says(store: Database) -> None:
    """What became of a request is asked where the request went."""
    async with account(store) as (world, server):
        context = a_process(world)
        accepted = await world.accept_command(title="Lost")
        assert (await run(world, context, accepted)).outcome is Outcome.OUTCOME_UNKNOWN
        await publish_next(world)
        lookup = await world.lookup_work(accepted)
        assert lookup is not None

        await LookupActivity(context).run_lookup(run_of(world, lookup))

        asked = f"GET {OLD_PATH}{RECORD}?properties=jobtitle"
        assert sent(server) == [old_request("Lost"), (asked, None)]
        assert await world.status(accepted) == "succeeded"


async def test_after_a_rollback_new_commands_go_the_old_way(store: Database) -> None:
    """And what was accepted in between goes the way that it was accepted for."""
    async with account(store) as (world, server):
        context = a_process(world)
        await publish_next(world)
        between = await world.accept_command(title="between")
        await activate_view(
            world.engine,
            world.org,
            INSTALLATION,
            "lead-title",
            1,
            expected_current=2,
            actor="tests",
            note="the new way is wrong",
        )
        after = await world.accept_command(title="after")

        ends = [await run(world, context, each) for each in (between, after)]

        assert sent(server) == [new_request("between"), old_request("after")]
        assert [end.outcome for end in ends] == [Outcome.ACCEPTED] * 2


async def test_a_revision_that_waits_changes_nothing(store: Database) -> None:
    """It is there to be looked at, compared and tried, and nothing is sent by it."""
    async with account(store) as (world, server):
        await publish_next(world, activate=False)

        end = await run(world, a_process(world), await world.accept_command(title="one"))

        assert (end.outcome, sent(server)) == (Outcome.ACCEPTED, [old_request("one")])


async def test_nothing_is_sent_by_a_view_that_is_not_the_pinned_one(store: Database) -> None:
    """The last look before a send is at the digest that the command pinned (C519)."""
    async with account(store) as (world, server):
        accepted = await world.accept_command(title="one")
        await rewrite_first_view(world, next_view().to_json())

        await run(world, a_process(world), accepted)

        assert server.connections == 0
        (attempt,) = await world.attempts(accepted)
        assert (attempt.outcome, attempt.failure_class) == ("RETRYABLE_PRE_DISPATCH", "not_sent")
        assert await world.states(accepted) == ("retry", "retrying")


async def rewrite_first_view(world: World, content: str) -> None:
    """Past every trigger, as a wrong restore would."""
    connection = await asyncpg.connect(world.database.admin_url)
    try:
        async with connection.transaction():
            await connection.execute("SET LOCAL session_replication_role = replica")
            await connection.execute(
                "UPDATE oncefence.binding_views SET content = $1 WHERE org_id = $2",
                content,
                world.org,
            )
    finally:
        await connection.close()
