"""`oncefence operator` and `oncefence audit chain`: from the shell, and through the doors."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import asyncpg
import pytest

from oncefence.app.local_operator import local_operator
from oncefence.app.operator_client import ActUnanswered, OperatorClient, OperatorRefused
from oncefence.domain.redaction import Secret
from oncefence.storage.phases.authenticate_operator import authenticate_operator
from tests.support.command_line import Ended, run
from tests.support.doors import OpenDoor, rows
from tests.support.servers import Database

NOTE = ("--note", "on call from Monday")
ADA = ("operator", "add", "ada", "--role", "administrator", "--role", "viewer")
IN_DATABASE = "--in-database"
LIVE = "SELECT name, roles, orgs FROM oncefence.operators WHERE revoked_at IS NULL ORDER BY name"
ACTS = "SELECT org_id, actor, act, note FROM oncefence.audit ORDER BY audit_id"


def shell(database: Database) -> dict[str, object]:
    return {"DATABASE_URL": database.app_url}


async def first_administrator(database: Database, *words: str) -> str:
    """The token of an administrator of every org, made as the first one is made."""
    ended = await run(
        *ADA, *(words or ("--all-orgs",)), *NOTE, IN_DATABASE, settings=shell(database)
    )
    assert ended.code == 0, ended.err
    return ended.out.strip()


@pytest.fixture
async def settings(door: OpenDoor, database: Database) -> dict[str, object]:
    """What an administrator's shell has: no database, but the doors and a token."""
    return {"DOORS": door.url, "OPERATOR_TOKEN": await first_administrator(database)}


async def versions(settings: Mapping[str, object], *words: str) -> dict[str, str]:
    listed = await run("operator", "list", "--json", *words, settings=settings)
    assert listed.code == 0, listed.err
    return {row["name"]: row["version"] for row in listed.document["operators"]}


class TestFromTheShell:
    async def test_the_first_administrator_is_made(self, database: Database) -> None:
        """Where nobody may come through the doors yet, the database setting is the right to."""
        made = await run(*ADA, "--all-orgs", *NOTE, IN_DATABASE, settings=shell(database))

        assert made.code == 0
        assert made.out.startswith("ofo1_")
        assert "not shown again" in made.message
        assert await authenticate_operator(database.app_engine, Secret(made.out.strip()))
        (act,) = await rows(database.admin_url, ACTS)
        assert (act["org_id"], act["act"], act["note"]) == ("*", "operator.add", NOTE[1])
        assert act["actor"].startswith("cli:uid=")

    async def test_a_lost_token_is_replaced_under_the_same_name(self, database: Database) -> None:
        """Nobody has to come in to lock the old one out."""
        old = await first_administrator(database, "--org", "acme", "--org", "other")
        version = (await versions(shell(database), IN_DATABASE))["ada"]

        revoked = await run(
            *("operator", "revoke", "ada", "--expected-version", version),
            *(*NOTE, IN_DATABASE, "--json"),
            settings=shell(database),
        )
        new = await first_administrator(database, "--org", "acme")

        assert (revoked.code, revoked.document["operator_id"]) == (0, version)
        assert await authenticate_operator(database.app_engine, Secret(old)) is None
        assert await authenticate_operator(database.app_engine, Secret(new)) is not None

    @pytest.mark.parametrize(
        ("words", "code", "says"),
        [
            ((*ADA, *NOTE), 2, "either --org, once for each org, or --all-orgs"),
            ((*ADA, "--all-orgs", "--org", "acme", *NOTE), 2, "either --org"),
            ((*ADA, "--all-orgs"), 2, "--note"),
            ((*ADA, "--all-orgs", "--note", ""), 2, "must say why"),
            ((*ADA, "--all-orgs", "--note", "a\nb"), 2, "printable"),
            ((*ADA, "--org", "Acme", *NOTE), 2, "1 to 63 of a-z"),
            (("operator", "add", "Ada", "--role", "viewer", "--all-orgs", *NOTE), 2, "1 to 63"),
            (("operator", "add", "ada", "--role", "root", "--all-orgs", *NOTE), 2, "root"),
            (("operator", "add", "ada", "--all-orgs", *NOTE), 2, "--role"),
            (("operator", "revoke", "ada", *NOTE), 2, "--expected-version"),
            (
                ("operator", "revoke", "ada", "--expected-version", "x", *NOTE),
                1,
                "see `oncefence operator list`",
            ),
        ],
    )
    async def test_a_wrong_word_is_one_message(
        self, database: Database, words: tuple[str, ...], code: int, says: str
    ) -> None:
        """Nothing is made, and the message says what to give (C12)."""
        ended = await run(*words, IN_DATABASE, settings=shell(database))

        assert ended.code == code
        assert says in ended.message
        assert await rows(database.admin_url, LIVE) == []

    async def test_without_the_database_setting_it_says_what_to_set(self) -> None:
        """And nothing else is tried instead."""
        ended = await run(*ADA, "--all-orgs", *NOTE, IN_DATABASE, settings={})

        assert ended.code == 1
        assert ended.message.startswith("ONCEFENCE_DATABASE_URL: this is not set")


class TestThroughTheDoors:
    async def test_an_administrator_makes_lists_and_revokes(
        self, settings: dict[str, object], database: Database
    ) -> None:
        """The whole life of an operator, without the database setting (C406, C407)."""
        words = ("operator", "add", "bob", "--role", "repairer", "--org", "acme", *NOTE)

        made = await run(*words, settings=settings)
        found = await versions(settings)
        revoked = await run(
            *("operator", "revoke", "bob", "--expected-version", found["bob"], *NOTE),
            settings=settings,
        )

        assert (made.code, revoked.code, revoked.out) == (0, 0, "bob is revoked\n")
        assert set(found) == {"ada", "bob"}
        assert set(await versions(settings)) == {"ada"}
        assert set(await versions(settings, "--revoked")) == {"ada", "bob"}
        assert await authenticate_operator(database.app_engine, Secret(made.out.strip())) is None
        acts = await rows(database.admin_url, ACTS)
        assert [(row["org_id"], row["actor"], row["act"]) for row in acts[1:]] == [
            ("acme", "operator:ada", "operator.add"),
            ("acme", "operator:ada", "operator.revoke"),
        ]

    async def test_a_token_is_printed_where_it_is_made_and_nowhere_else(
        self, settings: dict[str, object]
    ) -> None:
        """Twice the same command gives no second look at it (C407)."""
        words = ("operator", "add", "bob", "--role", "viewer", "--org", "acme", *NOTE, "--json")

        made = await run(*words, settings=settings)
        token = made.document["token"]
        after = [
            await run(*words, settings=settings),
            await run("operator", "list", "--revoked", settings=settings),
            await run("operator", "list", "--revoked", "--json", settings=settings),
            await run("audit", "list", "--org", "acme", settings=settings),
            await run(
                "audit", "list", "--org", "acme", settings={**settings, "OPERATOR_TOKEN": token}
            ),
        ]

        assert [each.code for each in after] == [1, 0, 0, 0, 0]
        assert made.out.count(token) == 1
        assert made.err == ""
        for each in after:
            assert token not in each.out + each.err
            assert str(settings["OPERATOR_TOKEN"]) not in each.out + each.err

    async def test_a_refusal_is_the_doors_own_sentence(self, settings: dict[str, object]) -> None:
        """With its stable code, exit 1, and no trace of the token."""
        made = await run(
            *("operator", "add", "bob", "--role", "viewer", "--org", "acme", *NOTE),
            settings=settings,
        )
        bob = {**settings, "OPERATOR_TOKEN": made.out.strip()}

        refused = await run(
            *("operator", "add", "eve", "--role", "viewer", "--org", "acme", *NOTE), settings=bob
        )
        elsewhere = await run("audit", "list", "--org", "other", settings=bob)
        nobody = await run("operator", "list", settings={**settings, "OPERATOR_TOKEN": "ofo1_x"})

        assert (refused.code, elsewhere.code, nobody.code) == (1, 1, 1)
        assert refused.message.endswith("(act_not_allowed)")
        assert "do not allow operator.add there" in refused.message
        assert elsewhere.message.endswith("(act_not_allowed)")
        assert nobody.message.endswith("(operator_unknown)")

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            ({"DOORS": ""}, "ONCEFENCE_DOORS: this is not set"),
            ({"OPERATOR_TOKEN": ""}, "ONCEFENCE_OPERATOR_TOKEN: this is not set"),
            ({"DOORS": "http://user@host"}, "ONCEFENCE_DOORS: a user, a query or a fragment"),
            ({"OPERATOR_TOKEN": "two words"}, "ONCEFENCE_OPERATOR_TOKEN: it is empty, or has"),
        ],
    )
    async def test_a_wrong_setting_is_named(self, change: dict[str, str], says: str) -> None:
        """And the value of a token is not repeated."""
        given = {"DOORS": "http://127.0.0.1:1", "OPERATOR_TOKEN": "ofo1_x"} | change

        ended = await run("operator", "list", settings=given)

        assert ended.code == 1
        assert ended.message.startswith(says)
        assert "two words" not in ended.err


class TestTheClient:
    async def test_asks_for_an_act_once(self) -> None:
        """An act whose answer is lost may be done; whoever asked should look first (C406)."""
        asked = 0

        async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal asked
            await reader.readuntil(b"\r\n\r\n")
            asked += 1
            writer.close()

        server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server, OperatorClient(url, Secret("ofo1_secret")) as client:
            with pytest.raises(ActUnanswered, match="may be done or not") as unanswered:
                await client.post("operators", {"name": "bob"})

        assert asked == 1
        assert "ofo1_secret" not in f"{unanswered.value}{unanswered.value!r}{client!r}"

    @pytest.mark.parametrize(
        ("status", "body", "says"),
        [
            (500, b'{"incident": "x"}', "status 500"),
            (200, b"<html>", "status 200"),
            (404, b"<html>", "status 404"),
            (302, b"", "status 302"),
        ],
    )
    async def test_takes_nothing_for_an_answer_that_no_door_gave(
        self, status: int, body: bytes, says: str
    ) -> None:
        """A proxy's page is not a refusal, and least of all a success."""
        url, server = await _answering(status, body)
        async with server, OperatorClient(url, Secret("ofo1_x")) as client:
            with pytest.raises(ActUnanswered, match=says):
                await client.post("operators", {})

    async def test_tells_the_incident_of_a_failure(self) -> None:
        """By which the log line is found."""
        body = {"type": "t", "title": "t", "status": 500, "detail": "d", "code": "internal_error"}
        url, server = await _answering(500, json.dumps(body | {"incident": "f00d"}).encode())
        async with server, OperatorClient(url, Secret("ofo1_x")) as client:
            with pytest.raises(ActUnanswered, match="f00d"):
                await client.post("operators", {})

    async def test_sends_what_json_can_hold_and_lets_the_door_judge(
        self, settings: dict[str, object]
    ) -> None:
        """Half of a surrogate pair is refused there, and is no fault of the program."""
        url, token = str(settings["DOORS"]), Secret(str(settings["OPERATOR_TOKEN"]))
        async with OperatorClient(url, token) as client:
            with pytest.raises(OperatorRefused):
                await client.post("operators", {"note": "\ud800"})


async def _answering(status: int, body: bytes) -> tuple[str, asyncio.Server]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 {status} Some\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", server


class TestTheAuditChain:
    async def chain(self, database: Database, *words: object) -> Ended:
        return await run("audit", "chain", *words, settings=shell(database))

    async def test_that_holds_is_told_with_its_heads(self, database: Database) -> None:
        """Exit 0, and the digest to be written down elsewhere (C406)."""
        await first_administrator(database, "--org", "acme", "--org", "other")

        told = await self.chain(database)
        one = await self.chain(database, "--org", "acme", "--json")
        none = await self.chain(database, "--org", "nowhere", "--json")

        assert (told.code, one.code, none.code) == (0, 0, 0)
        assert told.out.endswith("every chain holds\n")
        (acme,) = one.document["chains"]
        assert (acme["org"], acme["rows"], acme["head_sequence"]) == ("acme", 1, 1)
        assert acme["head"] in told.out
        assert none.document == {"is_whole": True, "chains": []}

    async def test_that_is_broken_names_the_rows(self, database: Database) -> None:
        """Exit 4, as for any broken invariant; and `oncefence audit` finds the same."""
        await first_administrator(database, "--org", "acme", "--org", "other")
        connection = await asyncpg.connect(database.admin_url)
        try:
            await connection.execute("SET session_replication_role = replica")
            await connection.execute(
                "UPDATE oncefence.audit SET actor = 'somebody' WHERE org_id = 'acme'"
            )
        finally:
            await connection.close()

        told = await self.chain(database)
        document = (await self.chain(database, "--json")).document
        other = await self.chain(database, "--org", "other")
        whole = await run("audit", settings=shell(database))

        assert (told.code, other.code, whole.code) == (4, 0, 4)
        assert "broken chain of acme: sequence 1, changed\n" in told.out
        assert "every chain holds" not in told.out
        assert document["is_whole"] is False
        assert {each["org"]: each["first_broken"] for each in document["chains"]} == {
            "acme": 1,
            "other": None,
        }
        assert "violation of audit_rows_follow_one_another: org_id acme, sequence 1" in whole.out

    async def test_takes_its_own_options_alone(self, database: Database, tmp_path: Path) -> None:
        """An option of `audit` before the word `chain` would be passed over in silence."""
        ended = await run("audit", "--json", tmp_path / "a.json", "chain", settings=shell(database))

        assert ended.code == 2
        assert "write the options of `chain` after it" in ended.message


def kept_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


class TestTheLocalOperator:
    async def test_is_made_once_for_a_folder(self, database: Database, tmp_path: Path) -> None:
        """Each start of `oncefence up` goes on with the same token."""
        first = await local_operator(tmp_path, database.app_url, "local-1")
        again = await local_operator(tmp_path, database.app_url, "local-1")

        assert first is not None
        assert first == again
        assert len(await rows(database.admin_url, LIVE)) == 1

    @pytest.mark.parametrize("damage", ["", "{}", "[]", '{"token": ""}', '{"token": "ofo1_x"}'])
    async def test_of_a_lost_token_is_made_anew(
        self, database: Database, tmp_path: Path, damage: str
    ) -> None:
        """And the operator of the lost one is revoked, so that there is one of that name."""
        old = await local_operator(tmp_path, database.app_url, "local-1")
        (tmp_path / "operator.json").write_text(damage)

        new = await local_operator(tmp_path, database.app_url, "local-1")

        assert old is not None
        assert new is not None
        assert await authenticate_operator(database.app_engine, old) is None
        assert await authenticate_operator(database.app_engine, new) is not None
        assert len(await rows(database.admin_url, LIVE)) == 1

    async def test_is_never_made_on_a_database_that_is_not_for_development(
        self, database: Database, tmp_path: Path
    ) -> None:
        """Nobody is given every right on a production database without having asked (C407)."""
        connection = await asyncpg.connect(database.admin_url)
        try:
            await connection.execute("SET session_replication_role = replica")
            await connection.execute("UPDATE oncefence.deployment SET is_development = false")
        finally:
            await connection.close()

        made = await local_operator(tmp_path, database.app_url, "local-1")

        assert made is None
        assert await rows(database.admin_url, LIVE) == []
        assert kept_in(tmp_path) == []
