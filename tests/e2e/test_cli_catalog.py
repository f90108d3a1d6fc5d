"""`oncefence catalog` as it is typed: publish ahead, compare, activate, and go back."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import Ended, run
from tests.support.doors import rows
from tests.support.servers import Database

ROOT = Path(__file__).parents[2]
BINDING = ROOT / "docs/examples/lead-title.binding.toml"
WHERE = ("--org", "acme", "--installation", "crm")
ACTIVATE = ("activate", "lead-title", 2, *WHERE, "--note", "as agreed")


@pytest.fixture
def settings(database: Database) -> dict[str, object]:
    """The one setting of these verbs."""
    return {"DATABASE_URL": database.app_url}


@pytest.fixture
def sensitive(tmp_path: Path) -> Path:
    """The example with one thing changed."""
    path = tmp_path / "sensitive.binding.toml"
    text = BINDING.read_text(encoding="utf-8").replace("sensitive = false", "sensitive = true")
    path.write_text(text, encoding="utf-8")
    return path


async def catalog(settings: dict[str, object], *words: object) -> Ended:
    return await run("catalog", *words, settings=settings)


async def listed(settings: dict[str, object]) -> list[dict[str, Any]]:
    ended = await catalog(settings, "list", "--org", "acme", "--json")
    assert (ended.code, ended.err) == (0, "")
    views: list[dict[str, Any]] = ended.document["views"]
    return views


async def test_a_revision_is_published_compared_activated_and_rolled_back(
    settings: dict[str, object], sensitive: Path, database: Database
) -> None:
    """The whole of a change, with its way back (C561)."""
    first = await catalog(settings, "publish", BINDING, *WHERE)
    ahead = await catalog(settings, "publish", sensitive, *WHERE)
    compared = await catalog(settings, "diff", "1", "2", *WHERE)
    activated = await catalog(settings, *ACTIVATE, "--expected-version", 1)
    back = await catalog(
        settings,
        *("activate", "lead-title", 1, *WHERE, "--expected-version", 2, "--note", "2 is wrong"),
    )

    assert first.out.startswith("lead-title is published as revision 1, digest ")
    assert first.out.endswith(", and is current\n")
    assert ahead.out.endswith(", and waits: revision 1 is current\n")
    for words in ("revision 1 (current)", "revision 2 (published)", "sensitive", "no", "yes"):
        assert words in compared.out
    assert "0 live commands pin revision 1" in compared.out
    assert activated.out == (
        "lead-title revision 2 is current from now on; it replaced revision 1\n"
    )
    assert back.out == "lead-title revision 1 is current from now on; it replaced revision 2\n"
    assert [each["state"] for each in await listed(settings)] == ["superseded", "current"]
    kept = await rows(
        database.admin_url,
        "SELECT note, expected_version, actor FROM oncefence.audit"
        " WHERE act = 'catalog.activate' ORDER BY sequence",
    )
    assert [(row["note"], row["expected_version"]) for row in kept] == [
        ("the first revision of its name", None),
        ("as agreed", "1"),
        ("2 is wrong", "2"),
    ]
    assert all(row["actor"].startswith("cli:uid=") for row in kept)


class TestTheList:
    async def test_shows_lineage_state_and_what_still_runs(
        self, settings: dict[str, object], sensitive: Path
    ) -> None:
        """For people in a table, for machines with whole digests."""
        await catalog(settings, "publish", BINDING, *WHERE)
        await catalog(settings, "publish", sensitive, *WHERE)

        second, first = await listed(settings)
        table = await catalog(settings, "list", "--org", "acme")

        assert (second["state"], first["state"]) == ("published", "current")
        assert second["follows_digest"] == first["digest"]
        assert (second["pack_digest"], second["live_commands"]) == (first["pack_digest"], 0)
        assert second["activated_at"] is None
        assert first["activated_by"] == first["published_by"]
        for words in ("lead-title", "current", "published", first["digest"][:12]):
            assert words in table.out


class TestADifference:
    async def test_of_a_file_is_held_against_what_is_current(
        self, settings: dict[str, object], sensitive: Path
    ) -> None:
        """What would this file change, before it is published at all."""
        await catalog(settings, "publish", BINDING, *WHERE)

        ended = await catalog(settings, "diff", sensitive, *WHERE, "--json")

        document = ended.document
        assert (document["before"]["revision"], document["after"]["revision"]) == (1, None)
        assert [
            (each["key"], each["kind"], each["before"], each["after"])
            for each in document["changes"]
        ] == [('operations."lead.title.push".sensitive', "changed", False, True)]
        assert "by the revision that it pinned" in document["changes"][0]["meaning"]

    async def test_of_the_same_content_says_so(self, settings: dict[str, object]) -> None:
        """Nothing to read is told in one line."""
        await catalog(settings, "publish", BINDING, *WHERE)

        ended = await catalog(settings, "diff", BINDING, *WHERE)

        assert ended.code == 0
        assert ended.out.splitlines()[0].endswith(": the same")


STALE = "binding lead-title is at version 1 and not at 2: look at it again, then decide"
NO_REVISION = (
    "no revision of lead-title '7': its newest is 2; see them with `oncefence catalog list`"
)
NO_ORG = (
    "no org 'nowhere': nobody registered a Runtime, added an account or published a binding there;"
    " see that --org is spelt as it was then"
)


REFUSED = (
    ((*ACTIVATE, "--expected-version", 2), STALE),
    (("publish", BINDING, *WHERE, "--activate", "--expected-version", 2), STALE),
    (("diff", "1", "7", *WHERE), NO_REVISION),
    (("activate", "lead-title", 7, *WHERE, "--expected-version", 1, "--note", "x"), NO_REVISION),
    (("list", "--org", "nowhere"), NO_ORG),
    (("diff", "1", "2", "--org", "nowhere", "--installation", "crm"), NO_ORG),
    (
        ("diff", "1", "2", "--org", "acme", "--installation", "other"),
        "no published binding 'of other': see what there is with `oncefence catalog list`",
    ),
)


class TestARefusal:
    async def test_is_one_message_with_the_way_out(
        self, settings: dict[str, object], sensitive: Path
    ) -> None:
        """And nothing has changed."""
        await catalog(settings, "publish", BINDING, *WHERE)
        await catalog(settings, "publish", sensitive, *WHERE)
        before = await listed(settings)

        ends = [await catalog(settings, *words) for words, _ in REFUSED]

        assert [(end.code, end.message) for end in ends] == [(1, says) for _, says in REFUSED]
        assert await listed(settings) == before

    async def test_of_what_was_rolled_back_names_the_verb(
        self, settings: dict[str, object], sensitive: Path
    ) -> None:
        """A deployment script must not undo what somebody did by hand."""
        await catalog(settings, "publish", BINDING, *WHERE)
        await catalog(settings, "publish", sensitive, *WHERE, "--activate")
        await catalog(
            settings,
            *("activate", "lead-title", 1, *WHERE, "--expected-version", 2, "--note", "wrong"),
        )

        ended = await catalog(settings, "publish", sensitive, *WHERE, "--activate")

        assert ended.code == 1
        assert "refused (rolled_back)" in ended.message
        assert "`oncefence catalog activate`" in ended.message

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            (("publish", BINDING, *WHERE, "--note", "why"), "together with --activate"),
            ((*ACTIVATE[:-1], " ", "--expected-version", 1), "must say why"),
            (ACTIVATE, "Missing option '--expected-version'"),
        ],
        ids=["note alone", "empty note", "no version"],
    )
    async def test_of_a_wrong_command_line_has_its_own_code(
        self, settings: dict[str, object], words: tuple[object, ...], says: str
    ) -> None:
        """Nobody is asked anything."""
        ended = await catalog(settings, *words)

        assert ended.code == 2
        assert says in ended.message


class TestAFileThatIsWrong:
    @pytest.mark.parametrize(
        "verb",
        [
            lambda path: ("check", path),
            lambda path: ("publish", path, *WHERE),
            lambda path: ("diff", path, *WHERE),
        ],
        ids=["check", "publish", "diff"],
    )
    async def test_is_told_by_file_key_and_reason(
        self,
        settings: dict[str, object],
        tmp_path: Path,
        verb: Callable[[Path], tuple[object, ...]],
    ) -> None:
        """With the exit code of a wrong command line: nothing was asked of anybody (C562)."""
        path = tmp_path / "typo.toml"
        text = BINDING.read_text(encoding="utf-8")
        path.write_text(text.replace("sensitive", "sensitve"), encoding="utf-8")

        ended = await catalog(settings, *verb(path))

        assert ended.code == 2
        assert str(path) in ended.message
        assert "sensitve" in ended.message

    async def test_is_a_document_where_one_is_asked_for(self, tmp_path: Path) -> None:
        """Each problem with its three parts."""
        path = tmp_path / "typo.toml"
        path.write_text(BINDING.read_text(encoding="utf-8").replace("pack =", "pakc ="))

        ended = await run("catalog", "check", path, "--json")

        assert ended.code == 2
        document = json.loads(ended.out)
        assert document["is_sound"] is False
        assert {each["file"] for each in document["errors"]} == {str(path)}
        assert {"pakc", "pack"} <= {each["key"] for each in document["errors"]}


async def test_what_a_publication_did_is_a_document_too(settings: dict[str, object]) -> None:
    """A script reads which revision its file has become."""
    ended = await catalog(settings, "publish", BINDING, *WHERE, "--json")

    assert ended.document | {"digest": None} == {
        "name": "lead-title",
        "revision": 1,
        "digest": None,
        "is_new": True,
        "current_revision": 1,
        "is_current": True,
    }
