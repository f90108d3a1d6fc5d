"""What the HTTP door refuses: in which words, and with nothing written."""

import json
from collections.abc import AsyncIterator

import httpx
import pytest

from oncefence.domain.handoff import payload_digest
from oncefence.storage.phases.publish_view import publish_view
from tests.support.doors import (
    OTHER_PAYLOAD,
    PAYLOAD,
    OpenDoor,
    handoff,
    put,
    refusal,
    rejection,
    rows,
)
from tests.support.servers import Database
from tests.support.world import INSTALLATION, World, example_view, scope_of

AUDIT = (
    "SELECT org_id, actor, act, subject_id FROM oncefence.audit"
    " WHERE act LIKE '%scope_refused' ORDER BY act"
)
ASKED = [
    ("GET", "/v1/scope"),
    ("GET", "/v1/handoffs/x"),
    ("GET", "/v1/executions/x"),
    ("PUT", f"/v1/payloads/{payload_digest(PAYLOAD)}"),
    ("POST", "/v1/handoffs"),
    ("POST", "/v1/handoffs/reject"),
]
KIB = 1024
BROKEN_HANDOFFS: list[tuple[dict[str, object], str, str]] = [
    ({"operation": "lead.title.pull"}, "no_such_target", "catalog publish"),
    ({"subject": "lead-without-link"}, "no_such_target", "link adopt"),
    ({"payload_digest": payload_digest(OTHER_PAYLOAD)}, "no_such_target", "PUT /v1/pay"),
    ({"subject": "a lead"}, "payload_refused", "pattern"),
    ({"handoff_key": "ehk1.acme"}, "handoff_key_malformed", "six parts"),
    ({"payload_digest": "AB" * 32}, "payload_digest_malformed", "lower-case hex"),
    ({"payload_digest": ""}, "payload_digest_malformed", "lower-case hex"),
    ({"outbox_id": "x" * 257}, "body_invalid", "outbox_id may have at most 256"),
    ({"subject": "x" * 257}, "body_invalid", "subject may have at most 256"),
    ({"operation": "x" * 101}, "body_invalid", "operation may have at most 100"),
    ({"subject": ""}, "body_invalid", "subject must not be empty"),
    ({"subject": 7}, "body_invalid", "subject must be text"),
    ({"org": "umbrella"}, "body_invalid", "org is not known here; there are handoff_key"),
    ({"handoff_key": None}, "body_invalid", "handoff_key is missing"),
    ({"payload_digest": None}, "body_invalid", "payload_digest is missing"),
    ({"outbox_id": None}, "body_invalid", "outbox_id is missing"),
    ({"operation": None}, "body_invalid", "operation is missing"),
    ({"subject": None}, "body_invalid", "subject is missing"),
]
INEXACT_PAYLOADS = [
    (b"title=x", "not JSON"),
    (b"\xff\xfe", "not UTF-8"),
    (b"[]", "must be a JSON object"),
    (b"{}", "title"),
    (b'{"title": "a\\u0000b"}', "U+0000"),
    (b'{"title": "\\ud800"}', "surrogate"),
    (b'{"title": NaN}', "NaN"),
    (b'{"title": "a", "title": "b"}', "twice"),
    (b'{"title": 9007199254740993}', "2^53"),
    (b'{"title": "a", "more": 1e400}', "out of range"),
    (b'{"title": "a", "unbound": 1}', "unbound"),
    (b'{"title": 7}', "title"),
]
LOOSE_JSON = [
    (b"", "not JSON"),
    (b"outbox_id=1", "not JSON"),
    (b"\xff", "not UTF-8"),
    (b'\xef\xbb\xbf{"outbox_id": "a"}', "byte order mark"),
    (b'{"outbox_id": "a", "outbox_id": "b"}', "outbox_id: is given twice"),
    (b'{"outbox_id": "a\\u0000"}', "outbox_id: the text holds U+0000"),
    (b'{"outbox_id": "\\udc00"}', "half of a surrogate pair"),
    (b'{"outbox_id": NaN}', "outbox_id: NaN is not JSON"),
    (b'{"outbox_id": 9007199254740993}', "outbox_id: is a number beyond 2^53"),
    (b"[" * 50_000, "nested"),
]
NO_ADDRESSES = [
    ("GET", "/", 404, "not_found"),
    ("GET", "/docs", 404, "not_found"),
    ("POST", "/v1/handoffs/", 404, "not_found"),
    ("GET", "/v1/handoffs/a%2Fb", 404, "not_found"),
    ("DELETE", "/v1/scope", 405, "method_not_allowed"),
    ("GET", "/v1/payloads/x", 405, "method_not_allowed"),
]


class TestACredential:
    async def test_is_needed_everywhere(self, door: OpenDoor, world: World) -> None:
        """Without one there is no scope; and no answer says whether one was close (C580)."""
        wrong = world.credential[:-1] + ("A" if world.credential[-1] != "A" else "B")
        shown = [
            None,
            world.credential.encode(),
            b"Bearer",
            b"Basic " + world.credential.encode(),
            b"Bearer " + wrong.encode(),
            b"Bearer \xff",
        ]
        bare = door.client(None)

        answers = [
            await bare.request(
                method,
                path,
                headers={} if each is None else {"Authorization": each},
                content=PAYLOAD,
            )
            for method, path in ASKED
            for each in shown
        ]

        assert {refusal(answer) for answer in answers} == {(401, "credential_unknown")}
        assert len({answer.text for answer in answers}) == 1
        assert {answer.headers["www-authenticate"] for answer in answers} == {
            'Bearer realm="oncefence"'
        }
        assert await world.count("staged_payloads") == 0

    async def test_gives_the_scope(self, client: httpx.AsyncClient) -> None:
        """What handoff keys are made of comes from the credential alone (C122)."""
        response = await client.get("/v1/scope")

        assert response.json() == {
            "org": "acme",
            "installation": "crm",
            "capability": "outbox",
            "work_binding_digest": "ab" * 32,
        }


class TestAnotherScope:
    @pytest.mark.parametrize(("org", "capability"), [("acme", "other"), ("umbrella", "outbox")])
    async def test_is_refused_alike_whether_its_key_exists_or_not(
        self,
        door: OpenDoor,
        client: httpx.AsyncClient,
        world: World,
        database: Database,
        *,
        org: str,
        capability: str,
    ) -> None:
        """A key of another scope cannot be probed, and the try is on record (C125)."""
        mine, theirs = world.caller.scope, scope_of(org, capability=capability)
        stranger = door.client(await door.register(theirs))
        await client.post("/v1/handoffs", json=handoff(mine, "known"))
        await put(stranger)

        answers = []
        for outbox in ("known", "unknown"):
            body = handoff(mine, outbox)
            answers += [
                await stranger.post("/v1/handoffs", json=body),
                await stranger.post("/v1/handoffs/reject", json=rejection(mine, outbox)),
                await stranger.get(f"/v1/handoffs/{body['handoff_key']}"),
            ]

        assert [refusal(answer) for answer in answers] == [(403, "scope_refused")] * 6
        assert len({answer.text for answer in answers}) == 1
        assert await rows(database.admin_url, AUDIT) == [
            {
                "org_id": org,
                "actor": f"runtime:{capability}",
                "act": f"handoff.{verb}.scope_refused",
                "subject_id": "ab" * 32,
            }
            for verb in ("accept", "read", "reject")
            for _ in range(2)
        ]
        assert [await world.count(each) for each in ("handoffs", "handoff_conflicts")] == [1, 0]


class TestAHandoff:
    async def test_that_breaks_a_rule_says_which_and_writes_nothing(
        self, client: httpx.AsyncClient, world: World
    ) -> None:
        """One message that names the rule or the field and what to do (C12)."""
        wrong = []
        for changes, code, says in BROKEN_HANDOFFS:
            response = await client.post(
                "/v1/handoffs", json=handoff(world.caller.scope, "outbox-1", **changes)
            )
            if refusal(response) != (422, code) or says not in response.json()["detail"]:
                wrong.append((changes, response.text))

        assert wrong == []
        assert [await world.count(each) for each in ("handoffs", "commands")] == [0, 0]

    async def test_without_a_principal_binding_names_it(
        self, door: OpenDoor, client: httpx.AsyncClient, world: World
    ) -> None:
        """A published view whose account was never added says which account to add."""
        scope = scope_of("globex")
        await publish_view(world.engine, scope.org, INSTALLATION, example_view(), actor="tests")
        theirs = door.client(await door.register(scope))
        await put(theirs)

        response = await theirs.post("/v1/handoffs", json=handoff(scope, "outbox-1"))

        assert refusal(response) == (422, "no_such_target")
        assert "oncefence binding add" in response.json()["detail"]

    async def test_whose_payload_cannot_be_sent_exactly_is_refused(
        self, client: httpx.AsyncClient, world: World
    ) -> None:
        """Putting takes any bytes, accepting none that could change on their way (C155)."""
        wrong = []
        for payload, says in INEXACT_PAYLOADS:
            await put(client, payload)
            response = await client.post(
                "/v1/handoffs", json=handoff(world.caller.scope, "outbox-1", payload)
            )
            if refusal(response) != (422, "payload_refused") or says not in response.text:
                wrong.append((payload, response.text))

        assert wrong == []
        assert await world.count("handoffs") == 0


class TestABody:
    async def test_that_is_not_strict_json_is_refused(self, client: httpx.AsyncClient) -> None:
        """What two parsers read differently is read by neither (C155)."""
        wrong = []
        for body, says in LOOSE_JSON:
            for path in ("/v1/handoffs", "/v1/handoffs/reject"):
                response = await client.post(
                    path, content=body, headers={"Content-Type": "application/json; charset=utf-8"}
                )
                if refusal(response) != (400, "json_refused") or says not in response.text:
                    wrong.append((body, response.text))

        assert wrong == []

    async def test_that_is_no_object_is_refused(self, client: httpx.AsyncClient) -> None:
        """JSON of another shape is named as such."""
        for body in (b"[]", b'"text"', b"null", b"7"):
            response = await client.post(
                "/v1/handoffs", content=body, headers={"Content-Type": "application/json"}
            )
            assert refusal(response) == (422, "body_invalid")
            assert response.json()["detail"] == "the body must be a JSON object"

    async def test_of_another_media_type_is_refused(
        self, client: httpx.AsyncClient, world: World
    ) -> None:
        """A form that a browser can send across sites is never taken for a handoff."""
        body = json.dumps(handoff(world.caller.scope, "outbox-1")).encode()

        for media_type in ("text/plain", "application/x-www-form-urlencoded", ""):
            response = await client.post(
                "/v1/handoffs", content=body, headers={"Content-Type": media_type}
            )
            assert refusal(response) == (415, "media_type_unsupported")

    async def test_names_only_the_members_that_it_knows(
        self, client: httpx.AsyncClient, world: World
    ) -> None:
        """A misspelt member is never passed over (C12)."""
        response = await client.post(
            "/v1/handoffs/reject",
            json=rejection(world.caller.scope, "outbox-1", because="withdrawn"),
        )

        assert refusal(response) == (422, "body_invalid")
        assert "because is not known here" in response.json()["detail"]
        assert await world.count("handoffs") == 0

    @pytest.mark.parametrize("chunked", [False, True])
    async def test_has_a_limit_that_is_kept_while_it_arrives(
        self, client: httpx.AsyncClient, chunked: bool
    ) -> None:
        """A body without end cannot fill the memory, announced or not."""
        long = b" " * (65 * KIB)
        sent = _in_chunks(long) if chunked else long

        response = await client.post(
            "/v1/handoffs", content=sent, headers={"Content-Type": "application/json"}
        )

        assert refusal(response) == (413, "body_too_large")
        assert "65536" in response.json()["detail"]


class TestAPayload:
    async def test_of_any_bytes_is_kept_once(self, client: httpx.AsyncClient, world: World) -> None:
        """Staging judges nothing but size and digest; again is the same (C135, C441)."""
        before = await world.count("staged_payloads")

        for payload in (b"", b"\x00\xff", b"\x00\xff"):
            response = await client.put(f"/v1/payloads/{payload_digest(payload)}", content=payload)
            assert (response.status_code, response.json()) == (
                200,
                {"payload_digest": payload_digest(payload), "size_bytes": len(payload)},
            )

        assert await world.count("staged_payloads") == before + 2

    async def test_is_named_by_a_digest_in_canonical_form(self, client: httpx.AsyncClient) -> None:
        """One payload has one name (C135)."""
        digest = payload_digest(PAYLOAD)
        for named in (digest.upper(), digest[:-1], "x", "%00", "é" * 64):
            response = await client.put(f"/v1/payloads/{named}", content=PAYLOAD)
            assert refusal(response) == (422, "payload_digest_malformed")

    async def test_of_another_digest_is_not_kept(
        self, client: httpx.AsyncClient, world: World
    ) -> None:
        """Bytes that changed on the way are found out on arrival (C135)."""
        before = await world.count("staged_payloads")

        response = await client.put(
            f"/v1/payloads/{payload_digest(OTHER_PAYLOAD)}", content=PAYLOAD
        )

        assert refusal(response) == (422, "payload_digest_mismatch")
        assert await world.count("staged_payloads") == before

    @pytest.mark.parametrize("chunked", [False, True])
    async def test_may_fill_the_limit_and_no_more(
        self, client: httpx.AsyncClient, world: World, chunked: bool
    ) -> None:
        """At the limit it is kept and one byte more is refused, before all of it came (C480)."""
        before = await world.count("staged_payloads")
        answers = []
        for size in (256 * KIB, 256 * KIB + 1, 4096 * KIB):
            payload = b"x" * size
            sent = _in_chunks(payload) if chunked else payload
            answers.append(
                await client.put(f"/v1/payloads/{payload_digest(payload)}", content=sent)
            )

        assert answers[0].status_code == 200
        assert [refusal(each) for each in answers[1:]] == [(413, "body_too_large")] * 2
        assert await world.count("staged_payloads") == before + 1

    async def test_of_another_org_is_not_there(
        self, door: OpenDoor, client: httpx.AsyncClient, world: World
    ) -> None:
        """The bytes of one tenant cannot be named by another that knows their digest (C8)."""
        theirs = await World.make(world.database, org="umbrella", ring=door.ring)
        await theirs.link("lead-1")
        stranger = door.client(theirs.credential)

        response = await stranger.post(
            "/v1/handoffs", json=handoff(theirs.caller.scope, "outbox-1")
        )

        assert refusal(response) == (422, "no_such_target")
        assert "payload" in response.json()["detail"]


class TestAnAddress:
    async def test_that_is_none_is_answered_by_a_problem(self, client: httpx.AsyncClient) -> None:
        """A program reads one form of error, whatever it did wrong."""
        answers = [await client.request(method, path) for method, path, _, _ in NO_ADDRESSES]

        assert [refusal(answer) for answer in answers] == [case[2:] for case in NO_ADDRESSES]
        assert ["allow" in answer.headers for answer in answers] == [
            case[2] == 405 for case in NO_ADDRESSES
        ]

    async def test_with_a_key_that_is_none_says_so(self, client: httpx.AsyncClient) -> None:
        """A misspelt key is not undecided; it is no key (C121)."""
        for key in ("x", "ehk2.a.b.c.d.e", "%00", "ehk1.acme.crm.outbox." + "ab" * 32 + ".a%0A"):
            response = await client.get(f"/v1/handoffs/{key}")
            assert refusal(response) == (422, "handoff_key_malformed")


async def _in_chunks(data: bytes) -> AsyncIterator[bytes]:
    """A body of unannounced length."""
    for start in range(0, len(data), 16 * KIB):
        yield data[start : start + 16 * KIB]
