"""Where something becomes unknown, or stays so, against better knowledge."""

import asyncio
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest
from sqlalchemy import text

from oncefence.activities import http_once as wire
from oncefence.activities.attempt import AttemptActivity
from oncefence.activities.contracts import RunRequest
from oncefence.activities.process_context import ProcessContext
from oncefence.domain.effect import Outcome
from oncefence.domain.errors import StoreUnavailable
from oncefence.domain.limits import Limits
from oncefence.storage.engine import make_engine, run_phase
from oncefence.storage.phases.find_work import WorkRef
from oncefence.storage.phases.read_view import ViewShelf
from oncefence.storage.phases.settle_lost_attempt import settle_lost_attempt
from oncefence.storage.phases.start_attempt import start_attempt
from tests.support.servers import Database
from tests.support.world import Accepted, World, an_end

pytestmark = pytest.mark.asyncio(loop_scope="module")

ATTEMPT = "oncefence.activities.attempt"


def a_process(world: World) -> AttemptActivity:
    async def wake(_: WorkRef) -> None:
        return None

    return AttemptActivity(
        ProcessContext(
            engine=world.engine,
            ring=world.ring,
            limits=world.limits,
            owner=uuid4(),
            wake=wake,
            views=ViewShelf(world.engine),
        )
    )


def run_of(world: World, accepted: Accepted, *, deadline_ms: int = 8_000) -> RunRequest:
    return RunRequest(
        org_id=world.org,
        work_id=str(accepted.work),
        deadline_ms=deadline_ms,
        as_of=datetime.now(UTC) + timedelta(seconds=5),
    )


async def test_a_pool_that_has_run_dry_is_a_store_that_is_away(store: Database) -> None:
    """C159, C173: an answer in hand is not dropped because no connection was free in time."""
    engine = make_engine(store.app_url, size=1)
    engine.pool._timeout = 0.1  # type: ignore[attr-defined]  # thirty seconds otherwise
    busy = [await engine.connect(), await engine.connect()]

    async def settle() -> None:
        async with engine.connect() as connection:
            await connection.execute(text("SELECT 1"))

    try:
        with pytest.raises(StoreUnavailable):
            await run_phase("settle_attempt", settle)
    finally:
        for connection in busy:
            await connection.close()
        await engine.dispose()


async def test_a_mark_that_is_answered_too_late_is_told_as_unsent(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C154, C172: the starter that gave up waiting for its mark knows that it sent nothing."""
    world = await World.make(store, limits=Limits(time_scale=0.001))
    accepted = await world.accept_command()
    back_at = asyncio.get_running_loop().time() + 1.0

    async def answer_lost(*these: Any, **those: Any) -> Any:
        marked = await start_attempt(*these, **those)
        if asyncio.get_running_loop().time() < back_at:
            raise StoreUnavailable(verb="start_attempt", reason="lost at COMMIT")
        return marked

    monkeypatch.setattr(f"{ATTEMPT}.start_attempt", answer_lost)
    first = a_process(world).run_attempt(run_of(world, accepted, deadline_ms=200))
    await asyncio.gather(first, return_exceptions=True)
    monkeypatch.undo()
    if (await world.item(accepted.work)).state == "processing":
        await world.expire_lease(accepted.work)
        await a_process(world).run_attempt(run_of(world, accepted))
    assert await world.states(accepted) == ("retry", "retrying")


async def test_what_fails_before_the_first_byte_is_unsent_whatever_it_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C166, C246: no TLS context, no file descriptor, no byte: a failure before dispatch."""
    accepted = await world.accept_command()

    def no_file_left(*_: Any, **__: Any) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(httpx, "create_ssl_context", no_file_left)
    wire._default_tls.cache_clear()
    run: Awaitable[Any] = a_process(world).run_attempt(run_of(world, accepted))
    await asyncio.gather(run, return_exceptions=True)
    assert await world.states(accepted) == ("retry", "retrying")


async def test_a_run_that_settled_nothing_as_lost_does_not_say_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C388: the starter came first, so the re-run goes by what the starter wrote."""
    accepted, started = await world.a_running_command()
    await world.expire_lease(accepted.work)

    async def after_the_starter(*these: Any, **those: Any) -> WorkRef | None:
        await world.settle(started, Outcome.RETRYABLE_PRE_DISPATCH)
        return await settle_lost_attempt(*these, **those)

    monkeypatch.setattr(f"{ATTEMPT}.settle_lost_attempt", after_the_starter)
    result = await a_process(world).run_attempt(run_of(world, accepted))
    assert result.execution_status != "unknown", "it is retrying"
    assert result.step != "finished", "its item is to run again"


async def test_a_lookup_that_lost_every_claim_still_hears_the_starter(world: World) -> None:
    """C106, C274: a receipt on file settles the execution, or stands as a contradiction."""
    accepted, started, lookup = await world.an_unknown_command()
    for _ in range(world.limits.claims_lost_max):
        await world.try_to_look(lookup)
        if (await world.item(lookup)).claims_lost + 1 == world.limits.claims_lost_max:
            break
        await world.expire_lease(lookup)
    await world.tell(started, an_end(Outcome.ACCEPTED, response_status=200))
    await world.expire_lease(lookup)
    await world.try_to_look(lookup)
    status = (await world.execution(accepted)).status
    listed = await world.of_command("contradictions", accepted)
    assert status != "needs_attention" or listed, "the receipt is nowhere shown"


async def test_an_unknown_whose_content_was_erased_reaches_a_person(world: World) -> None:
    """C272, C440: without its request there is no usable lookup, so nobody waits for one."""
    accepted, _, lookup = await world.an_unknown_command()
    await world.sql("UPDATE oncefence.execution_keys SET wrapped_key = NULL WHERE org_id = :org")
    await asyncio.gather(world.try_to_look(lookup), return_exceptions=True)
    item, execution = await world.item(lookup), await world.execution(accepted)
    assert item.state != "pending" or execution.status == "needs_attention", "asked for ever"
