"""The operators' doors: who comes in, what is theirs to ask, and what nobody ever sees."""

import logging
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import structlog

from oncefence.domain.ids import OrgId
from oncefence.domain.operator import Role
from oncefence.domain.redaction import Secret
from oncefence.storage.phases.add_operator import AddedOperator, add_operator
from oncefence.storage.phases.revoke_operator import revoke_operator
from tests.support.doors import OpenDoor, refusal, rows
from tests.support.servers import Database
from tests.support.world import World

AUDIT = "/v1/operator/audit"
CHAIN = "/v1/operator/audit/chain"
OPERATORS = "/v1/operator/operators"
NEW = {"name": "new", "roles": ["viewer"], "orgs": ["acme"], "note": "on call from Monday"}
READS = (f"{AUDIT}?org=acme", CHAIN, OPERATORS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Staff:
    """An open door, and operators who may come in."""

    door: OpenDoor

    async def make(
        self, name: str, *roles: Role, orgs: tuple[str, ...] = ("acme",)
    ) -> AddedOperator:
        return await add_operator(
            self.door.engine,
            name=name,
            roles=frozenset(roles),
            orgs=frozenset(map(OrgId, orgs)),
            actor="tests",
            note="for a test",
        )

    async def client(
        self, *roles: Role, orgs: tuple[str, ...] = ("acme",), name: str = "ada"
    ) -> httpx.AsyncClient:
        added = await self.make(name, *roles, orgs=orgs)
        return self.door.client(added.token.reveal())


@pytest.fixture
def staff(door: OpenDoor, world: World) -> Staff:
    return Staff(door=door)


def told(response: httpx.Response) -> tuple[int, str, str]:
    return (*refusal(response), response.json()["detail"])


class TestWithoutAToken:
    @pytest.mark.parametrize("path", READS)
    async def test_nobody_comes_in(self, staff: Staff, world: World, path: str) -> None:
        """No token, a wrong one, a Runtime's credential and a revoked one: in the same words."""
        added = await staff.make("gone", *Role, orgs=("*",))
        gone = staff.door.client(added.token.reveal())
        before = await gone.get(path)
        await revoke_operator(
            staff.door.engine,
            name="gone",
            expected_version=str(added.operator),
            actor="tests",
            note="left",
        )

        answers = [
            await staff.door.client(None).get(path),
            await staff.door.client("ofo1_wrong").get(path),
            await staff.door.client(world.credential).get(path),
            await gone.get(path),
        ]

        assert before.status_code == 200
        assert {told(answer)[:2] for answer in answers} == {(401, "operator_unknown")}
        assert len({told(answer)[2] for answer in answers}) == 1
        assert {answer.headers["www-authenticate"] for answer in answers} == {
            'Bearer realm="oncefence"'
        }

    @pytest.mark.parametrize("path", [OPERATORS, f"{OPERATORS}/ada/revoke"])
    async def test_nobody_acts(self, staff: Staff, database: Database, path: str) -> None:
        """The token is asked for before the body is read."""
        answer = await staff.door.client(None).post(path, content=b"not even JSON")

        assert refusal(answer) == (401, "operator_unknown")
        assert await rows(database.admin_url, "SELECT FROM oncefence.operators") == []

    async def test_a_token_is_no_runtimes_credential(self, staff: Staff) -> None:
        """An operator hands nothing over (C122)."""
        ada = await staff.client(*Role, orgs=("*",))

        assert refusal(await ada.get("/v1/scope")) == (401, "credential_unknown")


class TestWhatIsNotAllowed:
    async def test_reads_the_same_whether_the_org_exists_or_not(self, staff: Staff) -> None:
        """Orgs cannot be probed by asking for them (C8)."""
        ada = await staff.client(Role.VIEWER, orgs=("mine",))

        there, nowhere, all_of_them = [
            await ada.get(AUDIT, params={"org": org}) for org in ("acme", "nowhere", "*")
        ]

        assert told(there) == told(nowhere) == told(all_of_them)
        assert told(there)[:2] == (403, "act_not_allowed")
        assert "acme" not in there.text

    @pytest.mark.parametrize("role", [each for each in Role if each is not Role.ADMINISTRATOR])
    async def test_only_an_administrator_makes_and_revokes_operators(
        self, staff: Staff, database: Database, role: Role
    ) -> None:
        """Whoever could make operators could be any of them (C401)."""
        ada = await staff.client(role)
        other = await staff.make("other", Role.VIEWER)

        made = await ada.post(OPERATORS, json=NEW)
        revoked = await ada.post(
            f"{OPERATORS}/other/revoke",
            json={"expected_version": str(other.operator), "note": "no reason"},
        )
        nobody = await ada.post(
            f"{OPERATORS}/nobody/revoke", json={"expected_version": "x", "note": "no reason"}
        )

        assert {refusal(each) for each in (made, revoked, nobody)} == {(403, "act_not_allowed")}
        live = "SELECT name FROM oncefence.operators WHERE revoked_at IS NULL ORDER BY name"
        assert [row["name"] for row in await rows(database.admin_url, live)] == ["ada", "other"]

    @pytest.mark.parametrize("orgs", [["acme", "other"], ["*"], ["other"]])
    async def test_nobody_is_let_into_an_org_that_is_not_ones_own(
        self, staff: Staff, orgs: list[str]
    ) -> None:
        """An administrator's scope bounds the scopes that they give away."""
        ada = await staff.client(Role.ADMINISTRATOR)

        assert refusal(await ada.post(OPERATORS, json=NEW | {"orgs": orgs})) == (
            403,
            "act_not_allowed",
        )

    async def test_nobody_is_revoked_whose_scope_is_wider(self, staff: Staff) -> None:
        """And such an operator reads as one that there is not."""
        ada = await staff.client(Role.ADMINISTRATOR)
        wider = await staff.make("wider", Role.VIEWER, orgs=("acme", "other"))
        ask = {"expected_version": str(wider.operator), "note": "too wide"}

        hidden = await ada.post(f"{OPERATORS}/wider/revoke", json=ask)
        absent = await ada.post(f"{OPERATORS}/absent/revoke", json=ask)
        still = await staff.door.client(wider.token.reveal()).get(OPERATORS)

        assert refusal(hidden) == refusal(absent) == (422, "no_such_target")
        assert hidden.json()["detail"].replace("wider", "absent") == absent.json()["detail"]
        assert still.status_code == 200


class TestAnAdministrator:
    async def test_makes_an_operator_who_may_come_in(
        self, staff: Staff, database: Database
    ) -> None:
        """The token is in this answer, and the act in the audit of the org (C406, C407)."""
        ada = await staff.client(Role.ADMINISTRATOR)

        made = await ada.post(OPERATORS, json=NEW)
        document = made.json()
        new = staff.door.client(document["token"])
        seen = (await new.get(AUDIT, params={"org": "acme", "limit": 1})).json()["rows"]

        assert made.status_code == 201
        assert made.headers["cache-control"] == "no-store"
        assert [(row["actor"], row["act"], row["note"]) for row in seen] == [
            ("operator:ada", "operator.add", NEW["note"])
        ]
        assert seen[0]["subject_id"] == f"new/{document['operator_id']}"

    async def test_revokes_one_at_once(self, staff: Staff) -> None:
        """The next request of that token is nobody's."""
        ada = await staff.client(Role.ADMINISTRATOR)
        document = (await ada.post(OPERATORS, json=NEW)).json()
        new = staff.door.client(document["token"])
        listed = {row["name"]: row for row in (await new.get(OPERATORS)).json()["operators"]}
        ask = {"expected_version": listed["new"]["version"], "note": "back to the old team"}

        revoked = await ada.post(f"{OPERATORS}/new/revoke", json=ask)
        again = await ada.post(f"{OPERATORS}/new/revoke", json=ask)

        assert (revoked.status_code, revoked.json()["name"]) == (200, "new")
        assert refusal(await new.get(OPERATORS)) == (401, "operator_unknown")
        assert refusal(again) == (422, "no_such_target")

    async def test_revokes_whom_they_looked_at(self, staff: Staff) -> None:
        """A name that stands for another operator meanwhile is told as moved (C406)."""
        ada = await staff.client(Role.ADMINISTRATOR)
        await staff.make("new", Role.VIEWER)

        moved = await ada.post(
            f"{OPERATORS}/new/revoke", json={"expected_version": "older", "note": "late"}
        )

        assert refusal(moved) == (409, "version_moved")

    async def test_cannot_make_two_of_one_name(self, staff: Staff) -> None:
        """The refusal says what to do instead."""
        ada = await staff.client(Role.ADMINISTRATOR)
        await ada.post(OPERATORS, json=NEW)

        status, code, detail = told(await ada.post(OPERATORS, json=NEW))

        assert (status, code) == (409, "act_refused")
        assert "revoke that operator first" in detail

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            ({"note": ""}, "note must say why"),
            ({"note": "two\nlines"}, "note may hold printable characters alone"),
            ({"note": "x" * 501}, "note may have at most 500"),
            ({"note": None}, "note must be text"),
            ({"name": "Ada"}, "name must be 1 to 63"),
            ({"roles": []}, "roles"),
            ({"roles": ["root"]}, "roles"),
            ({"orgs": []}, "orgs"),
            ({"orgs": ["a b"]}, "orgs"),
            ({"more": 1}, "more is not known here"),
        ],
    )
    async def test_is_told_what_is_wrong_with_the_message(
        self, staff: Staff, change: dict[str, Any], says: str
    ) -> None:
        """One message that names the member; nothing is made."""
        ada = await staff.client(*Role, orgs=("*",))

        status, code, detail = told(await ada.post(OPERATORS, json=NEW | change))

        assert (status, code) == (422, "body_invalid")
        assert detail.startswith(says)
        assert len((await ada.get(OPERATORS)).json()["operators"]) == 1


class TestReading:
    async def test_lists_operators_within_ones_own_scope(self, staff: Staff) -> None:
        """Who may act in another org is that org's to know (C8)."""
        ada = await staff.client(Role.VIEWER)
        await staff.make("both", Role.VIEWER, orgs=("acme", "other"))
        await staff.make("all", Role.VIEWER, orgs=("*",))
        bob = await staff.client(Role.VIEWER, orgs=("acme", "other"), name="bob")
        root = await staff.client(Role.VIEWER, orgs=("*",), name="root")

        async def names(client: httpx.AsyncClient) -> list[str]:
            return [row["name"] for row in (await client.get(OPERATORS)).json()["operators"]]

        assert await names(ada) == ["ada"]
        assert await names(bob) == ["ada", "bob", "both"]
        assert await names(root) == ["ada", "all", "bob", "both", "root"]

    async def test_pages_through_the_audit(self, staff: Staff) -> None:
        """Each page says where the next begins, and the last one that there is none."""
        ada = await staff.client(Role.VIEWER)
        first = (await ada.get(AUDIT, params={"org": "acme", "limit": 3})).json()
        rest = (await ada.get(AUDIT, params={"org": "acme", "before": first["next_before"]})).json()

        sequences = [row["sequence"] for row in (*first["rows"], *rest["rows"])]
        assert sequences == list(range(len(sequences), 0, -1))
        assert (len(first["rows"]), rest["next_before"]) == (3, None)

    async def test_verifies_the_chains_of_ones_own_orgs(self, staff: Staff) -> None:
        """Without a name every chain in the scope, and those of others are not even named."""
        ada = await staff.client(Role.VIEWER, orgs=("acme", "empty"))
        await staff.make("elsewhere", Role.VIEWER, orgs=("other",))
        root = await staff.client(Role.VIEWER, orgs=("*",), name="root")

        mine = (await ada.get(CHAIN)).json()
        every = (await root.get(CHAIN)).json()
        one = (await root.get(CHAIN, params={"org": "other"})).json()

        assert (mine["is_whole"], every["is_whole"]) == (True, True)
        assert [each["org"] for each in mine["chains"]] == ["acme", "empty"]
        assert [each["org"] for each in every["chains"]] == ["*", "acme", "empty", "other"]
        assert [each["org"] for each in one["chains"]] == ["other"]
        assert mine["chains"][0]["first_broken"] is None
        assert len(mine["chains"][0]["head"]) == 64

    @pytest.mark.parametrize(
        "query",
        [
            "",
            "?org=A",
            "?org=a%00",
            "?org=acme&limit=0",
            "?org=acme&limit=201",
            "?org=acme&before=x",
        ],
    )
    async def test_of_something_else_is_a_problem_document(self, staff: Staff, query: str) -> None:
        """An address is judged like a body, and its values are not repeated (C12)."""
        ada = await staff.client(Role.VIEWER)

        assert refusal(await ada.get(AUDIT + query)) == (422, "query_invalid")


class TestATokenIsNeverSeen:
    @pytest.fixture
    def logged(self) -> Any:
        with structlog.testing.capture_logs() as entries:
            yield entries

    async def test_in_logs_errors_or_answers(
        self,
        staff: Staff,
        database: Database,
        logged: list[Any],
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """Refused, failing and succeeding requests alike: only the answer to its making has it."""
        caplog.set_level(logging.DEBUG)
        ada = await staff.client(Role.ADMINISTRATOR)
        document = (await ada.post(OPERATORS, json=NEW)).json()
        new = staff.door.client(document["token"])
        secrets = [document["token"], str(ada.headers["authorization"]).removeprefix("Bearer ")]
        answers = [
            await new.get(OPERATORS),
            await new.get(AUDIT, params={"org": "acme"}),
            await new.get(AUDIT, params={"org": "other"}),
            await new.post(OPERATORS, json=NEW | {"note": ""}),
            await ada.post(OPERATORS, json=NEW),
            await staff.door.client(document["token"] + "x").get(OPERATORS),
        ]
        await rows(database.admin_url, "ALTER TABLE oncefence.operators RENAME TO away")
        answers.append(await new.get(OPERATORS))

        assert refusal(answers[-1]) == (500, "internal_error")
        assert logged != []
        seen = [*(answer.text for answer in answers), *map(str, logged), caplog.text]
        for secret in secrets:
            assert not any(secret in text for text in seen)
            assert secret not in repr(Secret(secret))

    async def test_in_the_description_of_the_door(self, staff: Staff) -> None:
        """The scheme has a name of its own beside the Runtimes' credential."""
        description = (await staff.door.client(None).get("/openapi.json")).json()

        assert set(description["components"]["securitySchemes"]) == {
            "OperatorToken",
            "RuntimeCredential",
        }
        operator_routes = [path for path in description["paths"] if "/v1/operator/" in path]
        assert operator_routes != []
        for path in operator_routes:
            for route in description["paths"][path].values():
                assert route["security"] == [{"OperatorToken": []}], path
