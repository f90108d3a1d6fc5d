"""Work and dead letters through the operators' door: who may, what moved, and what comes of it."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio

from oncefence.app.local_postgres import LocalPostgres
from oncefence.app.local_temporal import LocalTemporal
from oncefence.domain.claim import ClaimEnd
from oncefence.domain.ids import OrgId, WorkId
from oncefence.domain.operator import Role
from oncefence.storage.phases.add_operator import add_operator
from oncefence.storage.phases.audit_invariants import audit_invariants
from oncefence.storage.phases.find_work import WorkRef
from tests.providers.simulated import simulator_at
from tests.support import servers
from tests.support.dialect import Form, simulated_provider
from tests.support.doors import OpenDoor, open_door, refusal
from tests.support.repairs import Repairs
from tests.support.servers import Database
from tests.support.station import ProviderWorld, Station, make_station, until, working
from tests.support.world import TOKEN, Accepted, World

pytestmark = pytest.mark.asyncio(loop_scope="module")

WORK = "/v1/operator/work"
LETTERS = "/v1/operator/dead-letters"
NOTE = "the provider mended its form"


async def client_of(door: OpenDoor, *roles: Role, orgs: tuple[str, ...]) -> httpx.AsyncClient:
    """An operator's client; each is somebody else."""
    added = await add_operator(
        door.engine,
        name=f"ada-{uuid4().hex[:8]}",
        roles=frozenset(roles),
        orgs=frozenset(map(OrgId, orgs)),
        actor="tests",
        note="for a test",
    )
    return door.client(added.token.reveal())


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """An operator who may do everything in one org, and that org."""

    door: OpenDoor
    client: httpx.AsyncClient
    repairs: Repairs

    @property
    def org(self) -> str:
        return self.repairs.world.org

    async def act(self, work: WorkId, act: str, **changed: object) -> httpx.Response:
        """An act on an item at its version of now; `changed` replaces members."""
        body = {
            "org": self.org,
            "expected_version": await self.repairs.version(work),
            "note": NOTE,
        } | changed
        return await self.client.post(f"{WORK}/{work}/{act}", json=body)

    async def plan(self, **narrowed: object) -> dict[str, Any]:
        answer = await self.client.post(f"{LETTERS}/plan", json={"org": self.org} | narrowed)
        assert answer.status_code == 200, answer.text
        plan: dict[str, Any] = answer.json()
        return plan

    async def apply(self, digest: str, **narrowed: object) -> httpx.Response:
        body = {"org": self.org, "digest": digest, "note": NOTE} | narrowed
        return await self.client.post(f"{LETTERS}/apply", json=body)


# One door for all tests, and an org for each.
@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def open_database(postgres: LocalPostgres) -> AsyncIterator[Database]:
    async with servers.fresh_database(postgres) as fresh:
        yield fresh


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def one_door(
    open_database: Database, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[OpenDoor]:
    async with open_door(open_database.app_engine, tmp_path_factory.mktemp("door")) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def desk(open_database: Database, one_door: OpenDoor) -> Desk:
    world = await World.make(open_database, ring=one_door.ring)
    client = await client_of(one_door, *Role, orgs=(world.org,))
    return Desk(door=one_door, client=client, repairs=Repairs(world=world))


class TestWhoMay:
    """Authority is checked when it is asked for (C401)."""

    @pytest.mark.parametrize(
        ("act", "allowed"),
        [("replay", Role.REPAIRER), ("cancel", Role.OPERATOR), ("reclaim", Role.OPERATOR)],
    )
    async def test_acts_by_the_role_for_that_act_alone(
        self, desk: Desk, act: str, allowed: Role
    ) -> None:
        """A role that reads does not act, and one that stops work does not make any."""
        work = (await desk.repairs.a_refused_command()).work
        body = {"org": desk.org, "expected_version": "0" * 16, "note": NOTE}

        for role in Role:
            asking = await client_of(desk.door, role, orgs=(desk.org,))
            answer = await asking.post(f"{WORK}/{work}/{act}", json=body)
            # Whoever may is only then told that the version is another.
            expected = (409, "version_moved") if role is allowed else (403, "act_not_allowed")
            assert refusal(answer) == expected, role

    @pytest.mark.parametrize("path", ["plan", "apply"])
    async def test_applies_a_plan_only_where_it_may_replay(self, desk: Desk, path: str) -> None:
        """Planning reads; applying is a replay of each."""
        plan = await desk.plan()
        viewer = await client_of(desk.door, Role.VIEWER, orgs=(desk.org,))
        body = {"org": desk.org}
        if path == "apply":
            body |= {"digest": plan["digest"], "note": NOTE}

        answer = await viewer.post(f"{LETTERS}/{path}", json=body)

        assert answer.status_code == (200 if path == "plan" else 403)

    async def test_sees_nothing_beyond_its_orgs(self, desk: Desk) -> None:
        """In a list it is not there, and by its name it is refused, whether it exists or not."""
        accepted = await desk.repairs.a_refused_command()
        other = await client_of(desk.door, *Role, orgs=("elsewhere",))

        for path in (WORK, LETTERS):
            assert (await other.get(path)).json()["rows"] == []
            for org in (desk.org, "nowhere", "*"):
                answer = await other.get(path, params={"org": org})
                assert refusal(answer) == (403, "act_not_allowed")
            answer = await other.get(f"{path}/{accepted.work}", params={"org": desk.org})
            assert refusal(answer) == (403, "act_not_allowed")
            answer = await other.get(f"{path}/{accepted.work}", params={"org": "elsewhere"})
            assert refusal(answer) == (404, "not_found")
        version = await desk.repairs.version(accepted.work)
        for act in ("replay", "cancel", "reclaim"):
            answer = await other.post(
                f"{WORK}/{accepted.work}/{act}",
                json={"org": "elsewhere", "expected_version": version, "note": NOTE},
            )
            assert refusal(answer) == (404, "not_found")

    async def test_of_every_org_lists_them_all(self, desk: Desk) -> None:
        """The scope of all is asked for as all, or by leaving the org out."""
        accepted = await desk.repairs.a_refused_command()
        boss = await client_of(desk.door, Role.VIEWER, orgs=("*",))

        for params in ({}, {"org": "*"}, {"org": desk.org}):
            rows = (await boss.get(LETTERS, params=params)).json()["rows"]
            # What ended last comes first, whoever else has dead letters.
            assert rows[0]["work_id"] == str(accepted.work)


class TestReading:
    """Lists and pages."""

    async def test_pages_follow_one_another(self, desk: Desk) -> None:
        """A cursor is given back as it was shown."""
        works = {
            str((await desk.repairs.a_refused_command(f"lead-{each}")).work) for each in range(3)
        }
        for path, params in ((LETTERS, {}), (WORK, {"states": "dead,cancelled"})):
            first = (await desk.client.get(path, params={**params, "limit": 2})).json()
            second = (
                await desk.client.get(
                    path, params={**params, "limit": 2, "after": first["next_after"]}
                )
            ).json()

            assert {row["work_id"] for row in first["rows"] + second["rows"]} == works
            assert second["next_after"] is None

    @pytest.mark.parametrize(
        ("params", "code"),
        [
            ({"after": "yesterday"}, "query_invalid"),
            ({"after": "1" * 90}, "query_invalid"),
            ({"after": "12.no-id"}, "query_invalid"),
            ({"states": "pending,asleep"}, "query_invalid"),
            ({"limit": "0"}, "query_invalid"),
            ({"org": "not an org"}, "query_invalid"),
        ],
    )
    async def test_of_a_wrong_word_is_told_what_to_give(
        self, desk: Desk, params: dict[str, str], code: str
    ) -> None:
        """A slip is one clear message (C12)."""
        answer = await desk.client.get(WORK, params=params)

        assert refusal(answer) == (422, code)

    async def test_shows_a_dead_letter_with_all_that_it_stands_on(self, desk: Desk) -> None:
        """Item, command, attempts and verdict in one answer, and no secret in it (C400)."""
        accepted = await desk.repairs.a_refused_command()

        answer = await desk.client.get(f"{LETTERS}/{accepted.work}", params={"org": desk.org})

        letter = answer.json()
        assert letter["is_listed"]
        assert letter["replay"]["verdict"] == "safe_to_replay"
        assert letter["item"]["version"] == await desk.repairs.version(accepted.work)
        assert [each["outcome"] for each in letter["sections"]["attempts"]] == ["REJECTED"]
        assert TOKEN not in answer.text


class TestActing:
    """One item, its version and a note."""

    async def test_replays_and_announces_the_new_item(self, desk: Desk) -> None:
        """Nobody has to wait for the sweep."""
        accepted = await desk.repairs.a_refused_command()

        answer = await desk.act(accepted.work, "replay")

        assert answer.status_code == 201, answer.text
        new = answer.json()["new_work_id"]
        await until(announced(desk.door, new), what="the announcement")
        page = (await desk.client.get(f"{WORK}/{new}", params={"org": desk.org})).json()
        assert [each["work_id"] for each in page["lineage"]] == [str(accepted.work), new]
        (act,) = page["acts"]
        assert act["actor"].startswith("operator:ada-")
        assert (act["act"], act["note"]) == ("work.replay", NOTE)

    async def test_cancels_and_wakes_who_waited_behind(self, desk: Desk) -> None:
        """The lane is free, and the next one is told (C224, C228)."""
        first = await desk.repairs.world.accept_command()
        second = await desk.repairs.world.accept_command()

        answer = await desk.act(first.work, "cancel")

        assert answer.json() | {"work_id": None} == {
            "work_id": None,
            "item_state": "cancelled",
            "execution_status": "cancelled",
            "is_cancelled": True,
            "lease_until": None,
        }
        await until(announced(desk.door, str(second.work)), what="the announcement")

    async def test_asks_the_holder_of_a_claimed_item(self, desk: Desk) -> None:
        """It is not cancelled yet, and the answer says so."""
        claimed = await desk.repairs.a_held_item()

        report = (await desk.act(claimed.fence.work, "cancel")).json()

        assert (report["is_cancelled"], report["item_state"]) == (False, "processing")
        assert report["lease_until"] is not None
        await desk.repairs.end(claimed, ClaimEnd.ACKNOWLEDGE_CANCEL)

    async def test_reclaims_a_lost_attempt_and_announces_its_lookup(self, desk: Desk) -> None:
        """What the sweep would do, at once (C45)."""
        accepted, _ = await desk.repairs.world.a_running_command()
        live = await desk.act(accepted.work, "reclaim")
        await desk.repairs.world.expire_lease(accepted.work)

        report = (await desk.act(accepted.work, "reclaim")).json()

        assert refusal(live) == (409, "act_refused")
        assert "may be alive until" in live.json()["detail"]
        assert report["is_lost"]
        await until(announced(desk.door, report["lookup_work_id"]), what="the announcement")

    async def test_hands_back_and_announces_what_has_nothing_in_the_open(self, desk: Desk) -> None:
        """It has its place in the window already, so it is told at once (C50)."""
        claimed = await desk.repairs.a_held_item()
        work = claimed.fence.work
        await desk.repairs.world.expire_lease(work)

        report = (await desk.act(work, "reclaim")).json()

        assert (report["is_lost"], report["lookup_work_id"]) == (False, None)
        await until(announced(desk.door, str(work)), what="the announcement")

    async def test_is_answered_though_nobody_hears_of_it(
        self, desk: Desk, tmp_path: Path, open_database: Database
    ) -> None:
        """The fact is committed; telling Temporal is a hint that the sweep repairs (C394)."""
        accepted = await desk.repairs.a_refused_command()

        async def fails(ref: WorkRef) -> None:
            raise RuntimeError(str(ref.work))

        async with open_door(open_database.app_engine, tmp_path, fails) as deaf:
            client = await client_of(deaf, *Role, orgs=(desk.org,))
            answer = await replace(desk, client=client).act(accepted.work, "replay")

        assert answer.status_code == 201, answer.text
        assert (await desk.repairs.world.execution(accepted)).status == "retrying"

    @pytest.mark.parametrize("act", ["replay", "cancel", "reclaim"])
    async def test_on_another_version_is_refused(self, desk: Desk, act: str) -> None:
        """An operator acts on what he saw (C406)."""
        accepted = await desk.repairs.world.accept_command()

        answer = await desk.act(accepted.work, act, expected_version="0" * 16)

        assert refusal(answer) == (409, "version_moved")

    async def test_names_the_verdict_of_what_it_refuses(self, desk: Desk) -> None:
        """An unknown outcome is no second call, and the answer says what to do (C404)."""
        accepted, _, _ = await desk.repairs.world.an_unknown_command()

        answer = await desk.act(accepted.work, "replay")

        assert refusal(answer) == (409, "act_refused")
        assert "(needs_lookup): wait for its lookups" in answer.json()["detail"]

    @pytest.mark.parametrize("changed", [{"note": ""}, {"note": None}, {"org": "*"}, {"why": "x"}])
    async def test_of_another_form_is_refused(self, desk: Desk, changed: dict[str, object]) -> None:
        """No act without a note, and none on every org at once."""
        accepted = await desk.repairs.a_refused_command()

        answer = await desk.act(accepted.work, "replay", **changed)

        assert refusal(answer) == (422, "body_invalid")


class TestAPlan:
    """Many at once."""

    async def test_is_applied_item_by_item(self, desk: Desk) -> None:
        """Each one says what came of it, and all new ones are announced (C405)."""
        repairs = desk.repairs
        refused = [(await repairs.a_refused_command(f"lead-{each}")).work for each in range(2)]
        unknown, _, _ = await repairs.world.an_unknown_command("lead-9")
        plan = await desk.plan()
        assert plan["provider_calls"] == 2

        applied = (await desk.apply(plan["digest"])).json()

        ends = {line["work_id"]: line["end"] for line in applied["lines"]}
        assert ends == {str(work): "replayed" for work in refused} | {str(unknown.work): "left"}
        for line in applied["lines"]:
            if line["end"] == "replayed":
                await until(announced(desk.door, line["new_work_id"]), what="the announcement")
        acts = await repairs.world.sql(
            "SELECT subject_kind, note FROM oncefence.audit"
            " WHERE org_id = :org AND act = 'work.replay'"
        )
        assert sorted(act.subject_kind for act in acts) == ["replay_plan", "work_item", "work_item"]
        assert {act.note for act in acts} == {NOTE}

    async def test_is_refused_when_anything_moved(self, desk: Desk) -> None:
        """Nothing of it is done then (C405)."""
        accepted = await desk.repairs.a_refused_command()
        plan = await desk.plan()
        await desk.repairs.world.change_link("lead-1")

        answer = await desk.apply(plan["digest"])

        assert refusal(answer) == (409, "version_moved")
        assert (await desk.repairs.world.execution(accepted)).status == "failed"

    async def test_is_refused_with_another_filter(self, desk: Desk) -> None:
        """The digest is of these very items."""
        await desk.repairs.a_refused_command()
        await desk.repairs.an_ended_item()
        plan = await desk.plan(failure_class="rejected")

        answer = await desk.apply(plan["digest"])

        assert refusal(answer) == (409, "version_moved")

    async def test_applied_again_replays_nothing_twice(self, desk: Desk) -> None:
        """Whoever got no answer asks again with the same digest (C405)."""
        accepted = await desk.repairs.a_refused_command()
        plan = await desk.plan()
        first = (await desk.apply(plan["digest"])).json()

        second = (await desk.apply(plan["digest"])).json()

        assert [line["end"] for line in first["lines"]] == ["replayed"]
        assert [line["end"] for line in second["lines"]] == ["replayed_before"]
        assert second["lines"][0]["new_work_id"] == first["lines"][0]["new_work_id"]
        assert len(await desk.repairs.world.of_command("work_items", accepted)) == 2


class TestAtTheProvider:
    """The whole way, over a worker and a simulated provider."""

    async def test_a_replayed_dispatch_is_sent_once_more(
        self,
        open_database: Database,
        tmp_path: Path,
        temporal_server: LocalTemporal,
        task_queue: str,
    ) -> None:
        """Refused, mended, planned, applied: one request more, one change, and it settles."""
        database, stations = open_database, list[Station]()
        temporal_client = await servers.connect(temporal_server)

        async def announce(ref: WorkRef) -> None:
            await stations[0].announcer.announce(ref)

        with simulator_at(tmp_path / "ledger.jsonl") as simulator:
            async with open_door(database.app_engine, tmp_path, announce) as door:
                world = await ProviderWorld.on(
                    database, simulated_provider(simulator), ring=door.ring
                )
                station = make_station(world, temporal_client, task_queue)
                stations.append(station)
                desk = Desk(
                    door=door,
                    client=await client_of(door, *Role, orgs=(world.org,)),
                    repairs=Repairs(world=world),
                )
                async with working(station):
                    accepted = await world.accept_in(Form.LOCAL, title="Director")
                    contact = world.remote_ids["lead-1"]
                    await asyncio.to_thread(
                        lambda: simulator.script(contact=contact, fault="reject_400", times=1)
                    )
                    await station.announce(accepted)
                    assert await world.settled(accepted) == ["failed"]
                    plan = await desk.plan()

                    applied = await desk.apply(plan["digest"])

                    assert applied.json()["lines"][0]["end"] == "replayed", applied.text
                    await world.in_status(accepted, "succeeded")
            attempts = [row.outcome for row in await world.attempts(accepted)]
            assert attempts == ["REJECTED", "ACCEPTED"]
            assert await asyncio.to_thread(simulator.title, contact) == "Director"
            assert len(changes_of(simulator.ledger, accepted)) == 1
        assert (await audit_invariants(database.app_engine)).violations == 0


def changes_of(ledger: Any, accepted: Accepted) -> list[Any]:
    """What the provider's ledger says was changed; Any, as its rows are of the simulator."""
    changes: list[Any] = ledger.changes_by_command().get(str(accepted.command), [])
    return changes


def announced(door: OpenDoor, work: str) -> Any:
    """A claim that this item was announced at the door."""

    async def is_announced() -> bool:
        return any(str(ref.work) == work for ref in door.announced)

    return is_announced
