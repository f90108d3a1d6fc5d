"""Doors when something behind them fails: honest answers, and logs that tell no secret."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from structlog.testing import capture_logs

from oncefence.app import api
from oncefence.app.client import RuntimeClient
from oncefence.app.local_postgres import LocalPostgres
from oncefence.domain.errors import ConfigurationRefused, StoreUnavailable
from oncefence.domain.handoff import payload_digest
from oncefence.storage.engine import make_engine
from oncefence.storage.phases.find_work import WorkRef
from oncefence.storage.phases.stage_payload import stage_payload
from tests.support import servers
from tests.support.doors import (
    PAYLOAD,
    SUBJECT,
    OpenDoor,
    handoff,
    open_door,
    put,
    refusal,
    rejection,
    until,
)
from tests.support.servers import Database
from tests.support.world import OPERATION, World

CANARY = "canary-of-a-payload"


@pytest.fixture
def own_postgres() -> Iterator[LocalPostgres]:
    with servers.own_folder() as folder, LocalPostgres(folder) as server:
        yield server


async def world_on(server: LocalPostgres, door: OpenDoor) -> World:
    database = Database(
        name="oncefence",
        app_url=server.app_url,
        migrator_url=server.migrator_url,
        admin_url=server.admin_url,
        app_engine=door.engine,
        migrator_engine=door.engine,
    )
    world = await World.make(database, org="acme", ring=door.ring)
    await world.link(SUBJECT)
    return world


class TestADatabaseThatStopped:
    async def test_is_an_unknown_outcome_and_the_repeat_succeeds(
        self, own_postgres: LocalPostgres, tmp_path: Path
    ) -> None:
        """No answer is never told as a refusal, and the same request is safe to repeat."""
        await servers.migrate_once(own_postgres)
        engine = make_engine(own_postgres.app_url)
        async with open_door(engine, tmp_path) as door:
            world = await world_on(own_postgres, door)
            client = door.client(world.credential)
            await put(client)
            body = handoff(world.caller.scope, "outbox-1")
            own_postgres.stop()

            asked = {
                "ready": await client.get("/readyz"),
                "accept": await client.post("/v1/handoffs", json=body),
                "put": await client.put(f"/v1/payloads/{payload_digest(PAYLOAD)}", content=PAYLOAD),
                "key": await client.get(f"/v1/handoffs/{body['handoff_key']}"),
                "scope": await client.get("/v1/scope"),
            }
            alive = await client.get("/healthz")

            assert {name: refusal(answer) for name, answer in asked.items()} == dict.fromkeys(
                asked, (503, "store_unavailable")
            )
            for answer in asked.values():
                assert answer.headers["retry-after"] == "1"
                assert "unknown" in answer.json()["detail"]
                assert "safe to repeat" in answer.json()["detail"]
            assert alive.json() == {"status": "alive"}

            pauses: list[float] = []

            async def mend(seconds: float) -> None:
                if not pauses:
                    own_postgres.start()
                pauses.append(seconds)

            async with RuntimeClient(door.url, world.credential, pause=mend) as runtime:
                receipt = await runtime.hand_over("outbox-1", OPERATION, SUBJECT, PAYLOAD)

            assert receipt.is_new
            assert pauses
            assert (await client.get("/readyz")).json() == {"status": "ready"}
        await engine.dispose()


class TestAnAnnouncementThatFails:
    async def test_spoils_no_receipt(self, database: Database, tmp_path: Path) -> None:
        """The facts are committed; the sweep finds what a hint missed (C5)."""
        told: list[WorkRef] = []

        async def fail(ref: WorkRef) -> None:
            told.append(ref)
            raise RuntimeError(CANARY)

        async with open_door(database.app_engine, tmp_path, announce=fail) as door:
            world = await World.make(database, org="acme", ring=door.ring)
            await world.link(SUBJECT)
            client = door.client(world.credential)
            await put(client)
            with capture_logs() as logged:
                answer = await client.post(
                    "/v1/handoffs", json=handoff(world.caller.scope, "outbox-1")
                )
                await until(lambda: bool(logged))

        assert answer.status_code == 201
        assert [(line["event"], line["error"]) for line in logged] == [
            ("announce_failed", "RuntimeError")
        ]
        assert logged[0]["work_id"] == str(told[0].work)
        assert CANARY not in str(logged)

    async def test_to_return_holds_up_no_receipt(self, database: Database, tmp_path: Path) -> None:
        """A Temporal that hangs costs the Runtime nothing (C5)."""
        is_told, may_return = asyncio.Event(), asyncio.Event()

        async def hang(_: WorkRef) -> None:
            is_told.set()
            await may_return.wait()

        async with open_door(database.app_engine, tmp_path, announce=hang) as door:
            world = await World.make(database, org="acme", ring=door.ring)
            await world.link(SUBJECT)
            client = door.client(world.credential)
            await put(client)

            first = await client.post("/v1/handoffs", json=handoff(world.caller.scope, "a"))
            await asyncio.wait_for(is_told.wait(), 10)
            second = await client.post("/v1/handoffs", json=handoff(world.caller.scope, "b"))
            may_return.set()

        assert (first.status_code, second.status_code) == (201, 201)


class TestWhatNobodyForesaw:
    @pytest.mark.parametrize(
        "error",
        [
            RuntimeError(CANARY),
            AssertionError(CANARY),
            ConfigurationRefused(setting=CANARY, reason=CANARY, remedy=CANARY),
        ],
    )
    async def test_is_answered_without_its_internals(
        self,
        client: httpx.AsyncClient,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
        error: Exception,
    ) -> None:
        """The caller gets an incident, and the log the place under it; neither the words (C445)."""

        async def fail(*_: object) -> None:
            raise error

        monkeypatch.setattr(api, "stage_payload", fail)
        with capture_logs() as logged, caplog.at_level(logging.DEBUG):
            answer = await client.put(f"/v1/payloads/{payload_digest(PAYLOAD)}", content=PAYLOAD)

        assert refusal(answer) == (500, "internal_error")
        assert "safe to repeat" in answer.json()["detail"]
        (line,) = logged
        assert line["incident"] == answer.json()["incident"]
        assert (line["error"], line["route"]) == (type(error).__name__, "/v1/payloads/{digest}")
        assert any("test_doors_outages" in place for place in line["at"])
        for told in (answer.text, str(logged), caplog.text):
            assert CANARY not in told

    async def test_leaves_the_door_open(
        self, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One failure is one answer, and the next request is served."""

        async def fail(*_: object) -> None:
            raise StoreUnavailable(verb="stage_payload", reason="OSError")

        monkeypatch.setattr(api, "stage_payload", fail)
        failed = await client.put(f"/v1/payloads/{payload_digest(PAYLOAD)}", content=PAYLOAD)
        monkeypatch.setattr(api, "stage_payload", stage_payload)

        assert refusal(failed) == (503, "store_unavailable")
        await put(client)


async def test_no_answer_and_no_log_line_holds_a_secret(
    door: OpenDoor,
    client: httpx.AsyncClient,
    world: World,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Credentials, payloads and handoff keys are for their owners (C445)."""
    scope = world.caller.scope
    payload = f'{{"title": "{CANARY}", "unbound": 1}}'.encode()
    wrong = "ofc1_" + "x" * 43
    stranger = door.client(wrong)
    with capture_logs() as logged, caplog.at_level(logging.DEBUG, logger="oncefence"):
        answers = [
            await client.put(f"/v1/payloads/{payload_digest(payload)}", content=payload),
            await client.post("/v1/handoffs", json=handoff(scope, "outbox-1", payload)),
            await client.post("/v1/handoffs", json=handoff(scope, "outbox-1")),
            await client.post("/v1/handoffs", json=handoff(scope, "outbox-1", outbox_id="two")),
            await client.post("/v1/handoffs/reject", json=rejection(scope, "outbox-1")),
            await client.post("/v1/handoffs", json={"credential": world.credential}),
            await client.get("/v1/scope"),
            await stranger.get("/v1/scope"),
            await client.get("/v1/handoffs/ehk1.no.key"),
            await client.get(f"/v1/handoffs/{handoff(scope, 'outbox-1')['handoff_key']}"),
        ]

    told = "".join(f"{answer.headers} {answer.text}" for answer in answers)
    assert [answer.status_code for answer in answers] == [
        200, 422, 201, 409, 200, 422, 200, 401, 422, 200,
    ]  # fmt: skip
    assert len(logged) == 5
    for secret in (world.credential, wrong, CANARY):
        assert secret not in told
        assert secret not in str(logged)
        assert secret not in caplog.text
    assert "ehk1." not in str(logged)


async def test_the_description_tells_of_every_address_and_body(client: httpx.AsyncClient) -> None:
    """What the door takes and answers can be read by programs, although parsing is by hand."""
    described = (await client.get("/openapi.json")).json()

    paths = {(path, verb) for path, verbs in described["paths"].items() for verb in verbs}
    # Those of operators have tests of their own.
    assert {(path, verb) for path, verb in paths if not path.startswith("/v1/operator/")} == {
        ("/v1/payloads/{digest}", "put"),
        ("/v1/handoffs", "post"),
        ("/v1/handoffs/reject", "post"),
        ("/v1/handoffs/{key}", "get"),
        ("/v1/executions/{execution}", "get"),
        ("/v1/scope", "get"),
        ("/healthz", "get"),
        ("/readyz", "get"),
        ("/metrics", "get"),
    }
    handing = described["paths"]["/v1/handoffs"]["post"]
    body = handing["requestBody"]["content"]["application/json"]["schema"]
    assert (
        sorted(body["required"])
        == sorted(body["properties"])
        == sorted(["handoff_key", "payload_digest", "outbox_id", "operation", "subject"])
    )
    assert body["additionalProperties"] is False
    assert body["properties"]["handoff_key"]["maxLength"] == 512
    assert list(handing["responses"]["409"]["content"]) == ["application/problem+json"]
    assert handing["security"] == [{"RuntimeCredential": []}]
    assert "422" not in described["paths"]["/v1/executions/{execution}"]["get"]["responses"]
