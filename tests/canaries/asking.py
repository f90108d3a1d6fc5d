"""What is asked of the deployment: other keys, nonsense at its doors, and every screen."""

import json
from pathlib import Path

from fastapi.routing import APIRoute

from oncefence.app.api import OPERATOR_ROUTERS, health, v1
from oncefence.domain.handoff import payload_digest
from oncefence.storage.key_file import read_keys
from tests.canaries.connecting import CLUBS
from tests.canaries.nest import Nest


async def exchange_keys(nest: Nest, credential: str, *, accepted: int) -> None:
    """A rotation under a running worker, and a command after it."""
    ended = await nest.verb("keys", "rotate", "--new-key", "--json")
    assert ended.code in (0, 1), ended.err
    nest.watch_bytes("wrapping key", next(iter(read_keys(nest.stack.key_file).values())))
    await nest.hand_over(
        credential, "lead.title.push", "lead:0", {"title": nest.plant("payload value")}
    )
    await nest.settled("acme", accepted + 1)


async def doors_asked_amiss(nest: Nest, credential: str) -> None:
    """Every address of every door, with a token that is none, and payloads that are none."""
    stranger = nest.plant("access token")
    for router in (v1, health, *OPERATOR_ROUTERS):
        for route in router.routes:
            assert isinstance(route, APIRoute), route
            path = route.path
            for name in route.param_convertors:
                path = path.replace("{" + name + "}", "00000000-0000-8000-8000-000000000000")
            for method in sorted(route.methods):
                body = json.dumps({"title": nest.secrets[-1][1]}).encode()
                for token in (stranger, credential, nest.operator_token):
                    await nest.answer(
                        method,
                        path,
                        token=token,
                        content=b"" if method == "GET" else body,
                        headers={"Content-Type": "application/json"},
                    )
    for payload in (
        json.dumps({"title": 7, "other": nest.plant("payload value")}).encode(),
        f'{{"title": "{nest.plant("payload value")}'.encode(),
        nest.plant("payload value").encode() + b"\xff",
    ):
        digest = payload_digest(payload)
        await nest.answer("PUT", f"/v1/payloads/{digest}", token=credential, content=payload)
        await nest.answer("PUT", f"/v1/payloads/{'ab' * 32}", token=credential, content=payload)
        ended = await nest.verb("submit", _lines(nest, payload), more={"CREDENTIAL": credential})
        assert ended.code != 0
    for words in (("show", "nobody"), ("work", "list", "--org", "acme")):
        await nest.verb(*words, more={"OPERATOR_TOKEN": stranger, "CREDENTIAL": stranger})
    await nest.verb("doctor", more={"DATABASE_URL": _wrong_password(nest)})


def _wrong_password(nest: Nest) -> str:
    front, _, address = nest.stack.database_url.rpartition("@")
    return f"{front.rpartition(':')[0]}:{nest.plant('database password')}@{address}"


def _lines(nest: Nest, payload: bytes) -> Path:
    path = nest.stack.folder / "given" / "lines.jsonl"
    line = {"outbox_id": "x", "operation": "lead.title.push", "subject": "lead:0"}
    text = json.dumps(line)[:-1].encode() + b', "payload": ' + payload + b"}\n"
    path.write_bytes(text)
    return path


async def screens(nest: Nest) -> None:
    """All that an operator can be shown, as a screen and as a document."""
    commands = await nest.rows("SELECT command_id FROM oncefence.commands ORDER BY accepted_at")
    items = await nest.rows("SELECT org_id, work_id FROM oncefence.work_items ORDER BY made_at")
    shown: list[tuple[object, ...]] = [
        *(("show", each["command_id"]) for each in commands[:: max(1, len(commands) // 4)]),
        *(
            ("work", "show", each["work_id"], "--org", each["org_id"])
            for each in items[:: max(1, len(items) // 3)]
        ),
        ("work", "list", "--org", "acme"),
        ("dlq", "list", "--org", "acme"),
        ("operator", "list"),
        ("audit",),
        ("audit", "list", "--org", "*"),
        ("audit", "list", "--org", "acme", "--json"),
        ("audit", "list", "--org", "clubs-2", "--json"),
        ("binding", "list", "--org", "clubs-1", "--json"),
        ("binding", "show", CLUBS, "--org", "clubs-2"),
        ("app", "list", "--json"),
        ("views", "pressure"),
        ("keys", "status", "--json"),
        ("breaker", "list"),
        ("quota", "list"),
        ("doctor",),
    ]
    ends = {words[:2]: await nest.verb(*words) for words in shown}
    blank = {words: ended.err for words, ended in ends.items() if ended.code or not ended.out}
    assert blank == {}, "a screen that shows nothing proves nothing"
    metrics = await nest.answer("GET", "/metrics", token=nest.operator_token)
    assert metrics.status_code == 200, metrics.text
    await nest.answer("GET", "/openapi.json", token=None)
