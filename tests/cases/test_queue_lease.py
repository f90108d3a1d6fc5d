"""Symptoms of queues and leases that people met in the field, each as a test under its id."""

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Row
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from oncefence.activities import attempt as attempt_activity
from oncefence.app.local_temporal import LocalTemporal
from oncefence.domain.claim import ClaimEnd, ClaimVerdict, WorkEnd
from oncefence.domain.command import Receipt
from oncefence.domain.effect import Outcome
from oncefence.domain.errors import FenceLost, HandoffConflict
from oncefence.domain.handoff import payload_digest
from oncefence.domain.ids import LeaseToken, WorkId
from oncefence.domain.limits import Limits
from oncefence.domain.lookup import Verdict
from oncefence.storage.claims import NotStarted
from oncefence.storage.phases.find_work import find_due_work
from oncefence.storage.phases.renew_work import renew_work
from oncefence.storage.phases.stage_payload import stage_payload
from oncefence.storage.phases.start_attempt import Started, start_attempt
from oncefence.workflows import policies
from tests.cases.processes import Death, Process
from tests.conformance.family import Dispatch, Held, Lookup, OfAHandler, claim
from tests.conformance.toy import toy_item
from tests.providers.simulated import Simulated
from tests.storage.lifecycle_rows import move_item
from tests.support import servers
from tests.support.dialect import Form, simulated_provider
from tests.support.servers import Database
from tests.support.station import ProviderWorld, make_station, new_queue, working
from tests.support.world import Accepted, World, an_end
from tests.workflows.watching import Held as HeldRequest
from tests.workflows.watching import events, patches

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).read_text(encoding="utf-8")
DATA = ROOT / "tests" / "data" / "cases" / "queue_lease.jsonl"
CASES: dict[str, dict[str, Any]] = {
    case["id"]: case for case in map(json.loads, DATA.read_text(encoding="utf-8").splitlines())
}
HANDLER = OfAHandler()


def given(case: str) -> Any:  # a case's own form
    return CASES[case]["input"]


def expected(case: str) -> Any:  # as above
    return CASES[case]["expected"]


async def at_a_provider(store: Database, simulator: Simulated) -> ProviderWorld:
    return await ProviderWorld.on(store, simulated_provider(simulator), limits=Limits())


async def evidence_of(world: World, attempt: UUID) -> Sequence[Row[Any]]:
    return await world.sql(
        "SELECT * FROM oncefence.attempt_evidence WHERE org_id = :org AND attempt_id = :attempt",
        attempt=attempt,
    )


async def ask_to_cancel(world: World, work: WorkId) -> None:
    await world.sql(
        "UPDATE oncefence.work_items SET cancel_requested_at = clock_timestamp()"
        " WHERE org_id = :org AND work_id = :work AND state = 'processing'",
        work=work,
    )


async def test_every_case_has_its_test() -> None:
    """A case without a test is a symptom that may come back."""
    missing = [case for case in CASES if f"test_{case.lower().replace('-', '_')}_" not in HERE]

    assert missing == []
    assert len(CASES) == 10


# --- QUE-01 ----------------------------------------------------------------------------------


class TestQUE01:
    async def test_que_01_the_same_worker_is_not_the_same_claim(self, store: Database) -> None:
        """Each verb of the first run is refused; the second run's row stays as it is (C54)."""
        world = await World.make(store)
        work = await HANDLER.pending(world)
        old = await claim(HANDLER, world, work)
        await world.expire_lease(work)
        new = await claim(HANDLER, world, work)
        row = await world.item(work)
        verbs = {
            "renew": lambda: renew_work(
                world.engine, old.fence, deadline_ms=1_000, limits=world.limits
            ),
            "finish": lambda: HANDLER.finish(world, old),
            "defer": lambda: HANDLER.defer(world, old),
        }

        written = []
        for verb in given("QUE-01")["verbs_of_the_old_run"]:
            with pytest.raises(FenceLost):
                await verbs[verb]()
            written.append(int(await world.item(work) != row))

        assert written == expected("QUE-01")["rows_written"]
        assert row.lease_token == new.fence.token

    async def test_que_01_a_late_result_is_evidence_alone(self, store: Database) -> None:
        """The old run's answer is kept beside the attempt and ends nothing itself (C106, C161)."""
        world = await World.make(store)
        accepted, started = await world.a_running_command()
        await world.lose(started)
        with pytest.raises(FenceLost):
            await world.settle(started, Outcome.ACCEPTED)
        before = await world.item(accepted.work)

        await world.tell(started, an_end(Outcome.ACCEPTED))

        assert await world.item(accepted.work) == before
        assert len(await evidence_of(world, started.attempt)) == 1
        assert (await world.execution(accepted)).status == "unknown"


# --- QUE-02 ----------------------------------------------------------------------------------


class TestQUE02:
    @pytest.mark.parametrize("margin", [0.0, 0.001, 5.0, 60.0])
    @pytest.mark.parametrize("scale", [0.0001, 1.0])
    async def test_que_02_no_setting_makes_a_lease_end_before_the_deadline(
        self, margin: float, scale: float
    ) -> None:
        """Deadline, lease and start-to-close follow each other, whatever is set (C207)."""
        limits = Limits(lease_margin_seconds=margin, time_scale=scale)
        deadline_ms = given("QUE-02")["deadline_ms"]

        lease = deadline_ms / 1000 + limits.lease_margin_scaled_seconds

        assert deadline_ms / 1000 < lease < limits.start_to_close_seconds(deadline_ms)

    async def test_que_02_whoever_is_given_the_item_meanwhile_does_not_send(
        self, store: Database, simulator: Simulated
    ) -> None:
        """An open attempt whose lease ends is unknown; the first answer settles it yet (C106)."""
        world = await at_a_provider(store, simulator)
        await world.link("lead-1")
        held = HeldRequest(simulator, world.remote_ids["lead-1"])
        accepted = await world.accept_in(Form.REGULAR)
        first, second = Process(world), Process(world)
        sending = asyncio.create_task(first.dispatch(accepted.work))
        await held.is_there()
        await world.expire_lease(accepted.work)

        lost = await second.dispatch(accepted.work)
        held.release()
        late = await sending

        assert (lost.verdict, lost.execution_status) == (ClaimVerdict.ATTEMPT_LOST, "unknown")
        assert patches(simulator, accepted) == expected("QUE-02")["patches"]
        assert late.item_state is None
        (attempt,) = await world.attempts(accepted)
        (evidence,) = await evidence_of(world, attempt.attempt_id)
        assert evidence.outcome == Outcome.ACCEPTED
        assert first.woken, "the investigation is told of the receipt"


# --- QUE-04 ----------------------------------------------------------------------------------

# Where a life ends: a call of the attempt, and whether it was made; None is a claim by hand.
DEATHS: dict[str, tuple[str, bool] | None] = {
    "before the mark": ("start_attempt", False),
    "claimed and not marked": None,
    "marked, before the first byte": ("http_once", False),
    "after the last byte": ("http_once", True),
    "answered, not settled": ("settle_attempt", False),
    "settled": ("settle_attempt", True),
}
AFTERWARDS = dict(
    zip(given("QUE-04")["killed"], expected("QUE-04")["then"], strict=True),
)


@pytest.mark.parametrize("killed", AFTERWARDS, ids=str)
async def test_que_04_a_death_around_the_send_is_never_a_second_one(
    store: Database, simulator: Simulated, monkeypatch: pytest.MonkeyPatch, killed: str
) -> None:
    """What may have left is looked up, and what has not is sent by the next one (C75, C166)."""
    world = await at_a_provider(store, simulator)
    accepted = await world.accept_in(Form.LOCAL)
    if (death := DEATHS[killed]) is None:
        await world.transaction(move_item("processing", "claim"), work=accepted.work)
    else:
        call, is_after = death
        await Death(monkeypatch, call, is_after=is_after).of(Process(world).dispatch(accepted.work))
    if (await world.item(accepted.work)).state == "processing":
        await world.expire_lease(accepted.work)
    sent = patches(simulator, accepted)

    then = await Process(world).dispatch(accepted.work)

    attempts = await world.attempts(accepted)
    match AFTERWARDS[killed]:
        case "new attempt":
            assert (then.outcome, len(attempts), sent) == (Outcome.ACCEPTED, 1, 0)
        case "unknown":
            assert (then.verdict, len(attempts)) == (ClaimVerdict.ATTEMPT_LOST, 1)
            assert await world.states(accepted) == ("dead", "unknown")
            assert patches(simulator, accepted) == sent
        case "done already":
            assert then.verdict == ClaimVerdict.FINISHED
            assert await world.states(accepted) == ("succeeded", "succeeded")
            assert patches(simulator, accepted) == sent == 1
    assert patches(simulator, accepted) <= expected("QUE-04")["patches_at_most"]


# --- QUE-05 ----------------------------------------------------------------------------------


class TestQUE05:
    async def test_que_05_an_attempt_that_raises_is_not_made_again(
        self, store: Database, simulator: Simulated, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The row of the attempt lets nobody send twice, whoever retries what (C385, C520)."""
        world = await at_a_provider(store, simulator)
        accepted = await world.accept_in(Form.LOCAL)

        async def raises(*asked: object, **named: object) -> None:
            raise RuntimeError("after the request was sent")

        with monkeypatch.context() as patch:
            patch.setattr(attempt_activity, "settle_attempt", raises)
            with pytest.raises(Exception, match="unforeseen"):
                await Process(world).dispatch(accepted.work)
        again = await Process(world).dispatch(accepted.work)
        await world.expire_lease(accepted.work)
        later = await Process(world).dispatch(accepted.work)

        assert again.verdict == ClaimVerdict.IN_FLIGHT
        assert later.verdict == ClaimVerdict.ATTEMPT_LOST
        assert patches(simulator, accepted) == expected("QUE-05")["patches"]

    async def test_que_05_temporal_is_told_to_try_once(
        self, store: Database, simulator: Simulated, temporal_server: LocalTemporal
    ) -> None:
        """As the history of a real run shows (C385)."""
        client: Client = await servers.connect(temporal_server)
        world = await at_a_provider(store, simulator)
        async with working(make_station(world, client, new_queue())) as station:
            accepted = await station.submit(form=Form.REGULAR)
            await station.workflow(accepted.work).result()

            (scheduled,) = [
                event.activity_task_scheduled_event_attributes
                for event in await events(station, accepted.work)
                if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
            ]

        wanted = expected("QUE-05")["maximum_attempts"]
        assert scheduled.retry_policy.maximum_attempts == wanted
        assert policies.DISPATCH.maximum_attempts == wanted
        assert patches(simulator, accepted) == 1


# --- QUE-07 ----------------------------------------------------------------------------------


class TestQUE07:
    async def test_que_07_a_jump_of_a_workers_clock_ends_no_lease(self, store: Database) -> None:
        """Leases are judged by the database's clock alone (C204)."""
        world = await World.make(store)
        works = [
            (await toy_item(world, f"toy-{n}")).work for n in range(given("QUE-07")["live_leases"])
        ]
        for work in works:
            await claim(HANDLER, world, work)
        now = await world.now()

        for hours in given("QUE-07")["jumps_hours"]:
            as_of = now + timedelta(hours=hours)
            found = [await HANDLER.try_to_claim(world, work, as_of=as_of) for work in works]
            assert {each.verdict for each in found if isinstance(each, NotStarted)} == {
                ClaimVerdict.IN_FLIGHT
            }

        rows = await world.sql(
            "SELECT count(*) AS n FROM oncefence.work_items WHERE org_id = :org AND claims_lost > 0"
        )
        assert rows[0].n == expected("QUE-07")["reclaimed"]

    async def test_que_07_what_is_due_is_found_without_the_workers_clock(
        self, store: Database
    ) -> None:
        """The sweep is told no time; a claim goes by the time that it is given (C200, C201)."""
        world = await World.make(store, limits=Limits(sweep_grace_seconds=0))
        soon = await world.now() + timedelta(minutes=30)
        ready = (await toy_item(world, "ready")).work
        later = (await toy_item(world, "later", run_after=soon)).work

        due = await find_due_work(world.engine, page=1_000, limits=world.limits)

        assert [each.ref.work for each in due if each.ref.org == world.org] == [ready]
        early = await HANDLER.try_to_claim(world, later, as_of=soon - timedelta(seconds=1))
        assert isinstance(early, NotStarted)
        assert early.verdict is ClaimVerdict.NOT_DUE
        assert isinstance(await HANDLER.try_to_claim(world, later, as_of=soon), Held)

    async def test_que_07_a_process_that_was_suspended_neither_renews_nor_marks(
        self, store: Database
    ) -> None:
        """Its claim is somebody else's, and its deadline has passed (C54, C165)."""
        world = await World.make(store)
        work = await HANDLER.pending(world)
        suspended = await claim(HANDLER, world, work)
        await world.expire_lease(work)
        await claim(HANDLER, world, work)
        with pytest.raises(FenceLost):
            await renew_work(world.engine, suspended.fence, deadline_ms=1, limits=world.limits)

        accepted = await world.accept_command()
        asked_too_late = await start_attempt(
            world.engine,
            world.org,
            accepted.work,
            as_of=await world.now(),
            owner=uuid4(),
            token=LeaseToken(uuid4()),
            limits=world.limits,
            may_start=False,
        )

        assert isinstance(asked_too_late, NotStarted)
        assert asked_too_late.verdict is ClaimVerdict.NOT_MARKED
        assert await world.count("effect_attempts") == 0


# --- QUE-08 ----------------------------------------------------------------------------------


async def test_que_08_a_payload_that_kills_is_given_up_and_the_others_are_done(
    store: Database,
) -> None:
    """Claims that end with their process are counted, and so the killing ends (C51, C56)."""
    world = await World.make(store)
    poison = (await toy_item(world, "poison", deadline_ms=1)).work
    others = [
        (await toy_item(world, f"toy-{n}", deadline_ms=1)).work
        for n in range(given("QUE-08")["others"])
    ]
    half = len(others) // 2
    works = [str(work) for work in (*others[:half], poison, *others[half:])]
    told = {"url": world.database.app_url, "org": world.org, "works": works}
    crasher = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.cases.crasher",
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        said, _ = await crasher.communicate(json.dumps(told).encode() + b"\n")

    wanted = expected("QUE-08")
    assert json.loads(said) == [given("QUE-08")["exit_code"]] * wanted["deaths"] + [0]
    row = await world.item(poison)
    assert {name: getattr(row, name) for name in ("state", "failure_class")} == {
        "state": wanted["state"],
        "failure_class": wanted["failure_class"],
    }
    assert (row.claims_lost, row.attempt) == (wanted["claims_lost"], wanted["attempt"])
    assert {(await world.item(work)).state for work in others} == {wanted["others"]}


# --- QUE-10 ----------------------------------------------------------------------------------


async def pair(world: World, subject: str) -> tuple[Accepted, Accepted]:
    first, second = given("QUE-10")["titles"]
    return (
        await world.accept_command(subject, title=first),
        await world.accept_command(subject, title=second),
    )


class TestQUE10:
    async def test_que_10_the_second_of_a_lane_never_goes_first_or_beside(
        self, store: Database
    ) -> None:
        """Two workers want both, again and again, over connections of their own (C222, C514)."""
        world = await World.make(store)
        orders, overlaps = [], 0
        for number in range(given("QUE-10")["repeat"]):
            first, second = await pair(world, f"contact-{number % 10}")
            wanted = [second, first, second] if number % 2 else [first, second]
            marked = [
                each
                for each in await asyncio.gather(*(world.try_to_start(each) for each in wanted))
                if isinstance(each, Started)
            ]
            overlaps += len(marked) - 1
            await world.settle(marked[0], Outcome.ACCEPTED)
            then = await world.start(second)
            await world.settle(then, Outcome.ACCEPTED)
            orders.append((marked[0].command, then.command) == (first.command, second.command))

        assert orders == [True] * given("QUE-10")["repeat"]
        assert overlaps == expected("QUE-10")["overlaps"]

    async def test_que_10_the_provider_sees_one_after_the_other(
        self, store: Database, simulator: Simulated
    ) -> None:
        """However long the first takes: the second is not read before the first is answered."""
        world = await at_a_provider(store, simulator)
        await world.link("contact-501")
        held = HeldRequest(simulator, world.remote_ids["contact-501"])
        titles = given("QUE-10")["titles"]
        first = await world.accept_in(Form.LOCAL, "contact-501", title=titles[0])
        second = await world.accept_in(Form.LOCAL, "contact-501", title=titles[1])
        one, other = Process(world), Process(world)
        sending = asyncio.create_task(one.dispatch(first.work))
        await held.is_there()

        early = await other.dispatch(second.work)
        held.release()
        await sending
        late = await other.dispatch(second.work)

        assert early.verdict == ClaimVerdict.LANE_BLOCKED
        assert late.outcome == Outcome.ACCEPTED
        assert [ref.work for ref in one.woken] == [second.work]
        in_order = [change.command for change in simulator.ledger.changes()][-2:]
        assert in_order == [str(first.command), str(second.command)]
        assert simulator.title(world.remote_ids["contact-501"]) == titles[1]

    async def test_que_10_behind_an_unknown_nobody_is_sent(self, store: Database) -> None:
        """Until it is on record what became of the first (C223, C224)."""
        world = await World.make(store)
        first, second = await pair(world, "contact-501")
        lookup = await world.lose(await world.start(first))
        blocked = await world.try_to_start(second)

        await world.look(lookup, Verdict.APPLIED)

        assert isinstance(blocked, NotStarted)
        assert blocked.verdict is ClaimVerdict.LANE_BLOCKED
        assert isinstance(await world.try_to_start(second), Started)


# --- QUE-11 ----------------------------------------------------------------------------------


class TestQUE11:
    async def test_que_11_each_start_of_a_worker_is_an_owner_of_its_own(
        self, store: Database
    ) -> None:
        """A host's name comes back, and what was drawn does not."""
        world = await World.make(store)

        owners = {Process(world).context.owner for _ in range(2)}

        assert len(owners) == 2

    @pytest.mark.parametrize("family", [HANDLER, Lookup()], ids=lambda each: each.name)
    async def test_que_11_a_living_worker_keeps_no_dead_claim_alive(
        self, store: Database, family: OfAHandler | Lookup
    ) -> None:
        """What it renews is another claim; the dead one ends with its lease (C50, C512)."""
        world = await World.make(store)
        dead, alive = await family.pending(world), await family.pending(world)
        await claim(family, world, dead)
        of_the_new_run = await claim(family, world, alive)
        await world.expire_lease(dead)

        await renew_work(world.engine, of_the_new_run.fence, deadline_ms=9, limits=world.limits)

        again = await claim(family, world, dead)
        assert again.fence.epoch == 2
        assert (await world.item(dead)).claims_lost == 1


# --- QUE-13 ----------------------------------------------------------------------------------


class TestQUE13:
    async def test_que_13_two_versions_at_once_admit_one_command(self, store: Database) -> None:
        """Whoever comes second is given the first one's receipt (C52, C121)."""
        world = await World.make(store)
        offer = await world.offer()

        receipts = await asyncio.gather(
            *(world.accept(offer) for _ in range(given("QUE-13")["callers"]))
        )

        assert len({receipt.command for receipt in receipts}) == 1
        counts = [await world.count(table) for table in ("handoffs", "commands", "work_items")]
        wanted = expected("QUE-13")
        assert counts == [wanted["admissions"], wanted["commands"], wanted["active_items"]]

    async def test_que_13_another_digest_is_quarantined_on_the_row_that_stands(
        self, store: Database
    ) -> None:
        """At once with the first or after it: one command, and the conflict on record (C522)."""
        world = await World.make(store)
        offer = await world.offer()
        payload = b'{"title": "Somebody else"}'
        other = replace(offer, digest=payload_digest(payload))
        await stage_payload(world.engine, world.ring, world.caller, other.digest, payload)

        ends = await asyncio.gather(
            world.accept(offer), world.accept(other), return_exceptions=True
        )

        assert sorted(type(end) for end in ends if isinstance(end, Exception)) == [HandoffConflict]
        assert sum(isinstance(end, Receipt) for end in ends) == 1
        assert await world.count("handoff_conflicts") == 1
        assert await world.count("commands") == 1


# --- QUE-14 ----------------------------------------------------------------------------------


@pytest.mark.parametrize("holder", given("QUE-14")["holder"])
async def test_que_14_no_lease_outlives_a_cancellation(store: Database, holder: str) -> None:
    """The next of the lane runs: at once, or with the end of the lease at the latest (C224)."""
    world = await World.make(store)
    family = Dispatch() if holder == "has sent" else HANDLER
    lane = "lead-1" if holder == "has sent" else "target:x"
    work = await family.pending(world, lane=lane)
    behind = await family.pending(world, lane=lane)
    held = await claim(family, world, work)
    await ask_to_cancel(world, work)

    if holder == "acknowledges":
        await HANDLER.settle(world, held, WorkEnd(end=ClaimEnd.ACKNOWLEDGE_CANCEL))
    elif holder == "is dead":
        await world.expire_lease(work)
        assert isinstance(await family.try_to_claim(world, work), NotStarted)
    else:
        await family.finish(world, held)

    row = await world.item(work)
    assert row.state == ("succeeded" if holder == "has sent" else "cancelled")
    assert (row.lease_owner, row.lease_token, row.lease_until) == (None, None, None)
    assert isinstance(await family.try_to_claim(world, behind), Held)
