"""What a starter says after somebody took it for dead."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from temporalio.client import Client

from oncefence.catalog.view import IntegrationBindingView
from oncefence.domain.ids import OrgId, ViewId
from oncefence.storage.phases.read_view import ViewShelf
from tests.providers.simulated import Simulated
from tests.support.dialect import simulated_provider
from tests.support.servers import Database
from tests.support.station import FAST, ProviderWorld, make_station, new_queue, until, working
from tests.support.world import Accepted
from tests.workflows.watching import changes, held_submission, patches, reads

pytestmark = pytest.mark.asyncio(loop_scope="module")

SLOW_LADDER = replace(FAST, time_scale=1.0, lease_margin_seconds=3)
"""A lookup that nobody makes due now is due in half a minute."""


class FrozenShelf(ViewShelf):
    """Stops a starter where it reads its view: after the mark and before the first byte."""

    def __init__(self, inner: ViewShelf) -> None:
        self._inner = inner
        self.reached = asyncio.Event()
        self.thawed = asyncio.Event()

    async def view(self, org: OrgId, view: ViewId, digest: str) -> IntegrationBindingView:
        self.reached.set()
        await self.thawed.wait()
        return await self._inner.view(org, view, digest)


async def take_for_dead(world: ProviderWorld, accepted: Accepted) -> None:
    """The starter's lease ends, and somebody settles its attempt as lost."""
    await world.expire_lease(accepted.work)
    assert await world.settle_as_lost(accepted.work) is not None
    assert await world.status(accepted) == "unknown"


class TestLateAnswer:
    """The provider answered a starter that nobody believed in any more."""

    async def test_settles_the_unknown_as_a_receipt(
        self, store: Database, client: Client, simulator: Simulated
    ) -> None:
        """It is about this very request, so no record is read beside it (C106, C274)."""
        world = await ProviderWorld.on(store, simulated_provider(simulator), limits=SLOW_LADDER)
        async with working(make_station(world, client, new_queue())) as station:
            accepted, held = await held_submission(station, simulator, "lead-1")
            await take_for_dead(world, accepted)

            held.release()

            assert await world.settled(accepted) == ["succeeded"]
            execution = await world.execution(accepted)
            assert (execution.evidence_grade, execution.settled_by) == ("receipt", "investigator")
            (attempt,) = await world.attempts(accepted)
            assert (attempt.settled_as, attempt.disposition) == ("lost", "applied")
            evidence = await world.sql(
                "SELECT kind, outcome, verdict FROM oncefence.attempt_evidence WHERE org_id = :org"
            )
            assert [tuple(row) for row in evidence] == [("answer", "ACCEPTED", "lookup_now")]
            (lookup,) = await world.of_command("lookups", accepted)
            assert (lookup.reading, lookup.verdict) == ("late_answer", "applied")
            assert reads(simulator, world.remote_ids["lead-1"]) == 0
            assert (patches(simulator, accepted), changes(simulator, accepted)) == (1, 1)

    async def test_that_contradicts_what_stands_changes_nothing_and_is_listed(
        self, store: Database, client: Client, simulator: Simulated
    ) -> None:
        """A lookup found nothing, and then the provider did it: a person must know (C107)."""
        world = await ProviderWorld.on(store, simulated_provider(simulator))
        async with working(make_station(world, client, new_queue())) as station:
            accepted, held = await held_submission(station, simulator, "lead-1")
            await take_for_dead(world, accepted)
            lookup = await world.lookup_work(accepted)
            assert lookup is not None
            await station.wake(lookup)
            assert await world.settled(accepted) == ["failed"]

            held.release()

            async def is_listed() -> bool:
                return await world.count("contradictions") == 1

            await until(is_listed, what="the contradiction")
            assert await world.status(accepted) == "failed"
            (attempt,) = await world.attempts(accepted)
            assert attempt.disposition == "not_found"
            assert (patches(simulator, accepted), changes(simulator, accepted)) == (1, 1)


class TestLateWordThatNothingWasSent:
    """A starter that froze before its first byte and woke past its deadline."""

    async def test_settles_failed_with_a_proof_of_no_effect(
        self, store: Database, client: Client, simulator: Simulated
    ) -> None:
        """Past its deadline it sends nothing, and its word is a proof (C166, C106)."""
        provider = simulated_provider(simulator)
        world = await ProviderWorld.on(
            store, provider, limits=SLOW_LADDER, view=provider.dialect.view(local_ms=500)
        )
        shelf = FrozenShelf(ViewShelf(world.engine))
        station = make_station(world, client, new_queue(), views=shelf)
        async with working(station):
            accepted = await station.submit("lead-1")
            await asyncio.wait_for(shelf.reached.wait(), 10)
            (attempt,) = await world.attempts(accepted)
            await take_for_dead(world, accepted)

            async def is_past_its_deadline() -> bool:
                return bool(await world.now() > attempt.started_at + timedelta(seconds=0.5))

            await until(is_past_its_deadline)
            shelf.thawed.set()

            assert await world.settled(accepted) == ["failed"]
            (attempt,) = await world.attempts(accepted)
            assert (attempt.settled_as, attempt.disposition) == ("lost", "no_effect_proof")
            evidence = await world.sql(
                "SELECT kind, verdict FROM oncefence.attempt_evidence WHERE org_id = :org"
            )
            assert [tuple(row) for row in evidence] == [("unsent", "lookup_now")]
            assert (await world.execution(accepted)).evidence_grade == "receipt"
            contact = world.remote_ids["lead-1"]
            assert (patches(simulator, accepted), reads(simulator, contact)) == (0, 0)
