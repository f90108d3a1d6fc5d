"""A renewal that is interrupted: by the end of its lease or its process, or by a reconnection."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from oncefence.activities.contracts import RunResult, Step
from oncefence.domain.grant import GrantRotation
from oncefence.storage.phases.expire_refreshes import expire_refreshes
from tests.support.clubs import ClubsProcess, ClubsWorld
from tests.support.fault import fault
from tests.support.oauth_server import Family, OAuthServer
from tests.support.servers import Database
from tests.support.station import until
from tests.support.world import Accepted
from tests.tokens.claimants import DEADLINE_MS

pytestmark = pytest.mark.asyncio(loop_scope="module")


@asynccontextmanager
async def a_call_that_is_out(
    world: ClubsWorld, process: ClubsProcess, accepted: Accepted
) -> AsyncIterator["asyncio.Task[RunResult]"]:
    """The run of a command, whose call for a token is answered when the block ends."""
    world.server.gate = threading.Event()
    before = len(world.server.calls)
    run = asyncio.ensure_future(process.run(accepted.work))

    async def has_come() -> bool:
        return len(world.server.calls) > before

    try:
        await until(has_come, what="the call")
        yield run
    finally:
        world.server.gate.set()
        world.server.gate = None


async def a_world(
    store: Database,
    server: OAuthServer,
    grant: str = "app",
    rotation: GrantRotation = GrantRotation.ROTATING,
) -> ClubsWorld:
    view = server.as_provider().dialect.view(local_ms=DEADLINE_MS)
    return await ClubsWorld.connected(store, server, grant=grant, rotation=rotation, view=view)


@fault("slow refresh beyond the lease", at="token call", then="its answer is activated and used")
async def test_a_call_that_outlasts_its_lease_brings_its_token_all_the_same(
    store: Database, server: OAuthServer
) -> None:
    """The grant was told as unknown meanwhile; the answer is the truth, and nobody else has it."""
    world = await a_world(store, server)
    accepted = await world.command()
    async with a_call_that_is_out(world, ClubsProcess(world), accepted) as run:
        await world.end_refresh_lease()
        await expire_refreshes(world.engine)
        told = (await world.grant_row()).state

    result = await run

    assert told == "refresh_unknown"
    assert result.item_state == "succeeded"
    assert await world.outcomes() == ["activated"]
    assert (await world.grant_row()).state == "healthy"
    assert (world.token_calls(), world.writes()) == (1, 1)


@fault("slow refresh beyond the lease", at="token call", then="a second call takes its place")
async def test_a_slow_call_of_a_static_grant_gives_way_to_the_next(
    store: Database, server: OAuthServer
) -> None:
    """Both calls do no harm; the version is of the second, and the first changes nothing."""
    world = await a_world(store, server, "steady", GrantRotation.STATIC)
    slow, other = await world.command("lead-1"), await world.command("lead-2")
    async with a_call_that_is_out(world, ClubsProcess(world), slow) as run:
        gate, world.server.gate = world.server.gate, None
        await world.end_refresh_lease()
        second = await ClubsProcess(world).run(other.work)
        world.server.gate = gate

    first = await run

    assert (first.item_state, second.item_state) == ("succeeded", "succeeded")
    assert await world.outcomes() == ["superseded", "activated"]
    assert (await world.grant_row()).token_version == 2


@fault("reconnect", at="token call", then="its command ends as stale, and nothing is sent")
async def test_a_reconnect_while_a_call_is_out_keeps_the_two_accounts_apart(
    store: Database, server: OAuthServer
) -> None:
    """What the call brings belongs to the old account, and so does the command (C284)."""
    world = await a_world(store, server)
    accepted = await world.command()
    other = Family(account="club-b", client="c", scopes="", refresh="R-b", access={"A-b"})
    server.families.append(other)
    async with a_call_that_is_out(world, ClubsProcess(world), accepted) as run:
        await world.reconnect(family=other)

    result = await run

    assert (result.execution_status, result.failure_class) == (
        "failed",
        "binding_generation_stale",
    )
    assert world.writes() == 0
    assert (await world.grant_row()).token_version == 1


@fault("stale claimant", at="token call of another", then="it waits, and is woken by the winner")
async def test_who_waits_for_a_renewal_is_woken_by_its_end(
    store: Database, server: OAuthServer
) -> None:
    """A lease lasts a minute and more; a renewal takes a second."""
    world = await a_world(store, server)
    first, second = await world.command("lead-1"), await world.command("lead-2")
    process = ClubsProcess(world)
    async with a_call_that_is_out(world, process, first) as run:
        waits = await ClubsProcess(world).run(second.work)
        put_off = (await world.item(second.work)).run_after

    await run

    item = await world.item(second.work)
    assert (waits.step, waits.verdict, waits.until) == (Step.WAIT, "token_busy", put_off)
    assert item.run_after < put_off
    assert second.work in [ref.work for ref in process.woken]
    assert (await ClubsProcess(world).run(second.work)).item_state == "succeeded"
    assert world.token_calls() == 1


async def test_a_process_that_stops_begins_no_call(store: Database, server: OAuthServer) -> None:
    """What it cannot finish it must not begin (C58)."""
    world = await a_world(store, server)
    accepted = await world.command()
    process = ClubsProcess(world)
    process.context.runs.begin_drain()

    result = await process.run(accepted.work)

    assert result.verdict == "draining"
    assert (await world.ledger(), world.token_calls()) == ([], 0)


@fault("crash at a step of a refresh", at="after the call", then="parked, and called once")
async def test_a_process_that_dies_with_the_answer_has_spent_the_token(
    store: Database, server: OAuthServer
) -> None:
    """Nobody can know what it got, and nobody shows the spent token again (C291)."""
    world = await a_world(store, server)
    accepted = await world.command()
    async with a_call_that_is_out(world, ClubsProcess(world), accepted) as run:
        # As a kill: what it owns is gone, whatever the endpoint does.
        for task in asyncio.all_tasks():
            if task.get_name() == f"run {accepted.work}":
                task.cancel()
        await asyncio.gather(run, return_exceptions=True)
    await world.end_refresh_lease()

    found = await ClubsProcess(world).run(accepted.work)

    assert (found.step, found.verdict) == (Step.BLOCKED, "credential_held")
    assert (await world.grant_row()).state == "refresh_unknown"
    assert (world.token_calls(), world.writes()) == (1, 0)
