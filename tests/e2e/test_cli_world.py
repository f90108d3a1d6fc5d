"""The verbs that make a world: each does it once, and none of them shows a secret."""

import json
import stat
from pathlib import Path

import pytest

from oncefence.storage.engine import SCHEMA_REVISION
from oncefence.storage.sealing import KeyRing
from tests.support.command_line import Ended, run
from tests.support.doors import rows
from tests.support.servers import Database

BINDING = "docs/examples/lead-title.binding.toml"
TOKEN = "pat-very-secret-0815"


@pytest.fixture
async def settings(database: Database, tmp_path: Path) -> dict[str, object]:
    """The settings of the verbs, with a key file of the test's own."""
    keys = tmp_path / "keys.json"
    KeyRing.make_file(keys)
    return {"DATABASE_URL": database.app_url, "KEY_FILE": keys}


async def add_binding(
    settings: dict[str, object], tmp_path: Path, *more: str, token: bytes = TOKEN.encode()
) -> Ended:
    path = tmp_path / "token"
    path.write_bytes(token)
    path.chmod(0o600)
    words = ["--org", "acme", "--name", "hubspot-main", "--provider", "hubspot"]
    return await run("binding", "add", *words, "--token-file", path, *more, settings=settings)


class TestMigrate:
    async def test_brings_the_database_to_the_version(self, database: Database) -> None:
        """The one verb that runs as the migrator; again is the same."""
        ended = await run("migrate", settings={"MIGRATOR_URL": database.migrator_url})

        assert (ended.code, ended.out) == (0, f"the schema is at version {SCHEMA_REVISION}\n")

    async def test_makes_a_key_file_once(self, tmp_path: Path) -> None:
        """A second key would make everything unreadable that the first has sealed."""
        path = tmp_path / "keys.json"

        first = await run("migrate", "--make-key-file", path)
        content = path.read_bytes()
        second = await run("migrate", "--make-key-file", path)

        assert (first.code, second.code) == (0, 1)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert path.read_bytes() == content
        assert "is there already" in second.message

    async def test_prints_the_roles_that_must_be_there(self) -> None:
        """An administrator runs them; the program never is one."""
        ended = await run("migrate", "--print-roles")

        assert ended.code == 0
        assert "CREATE ROLE oncefence_owner NOLOGIN;" in ended.out


class TestRuntimeRegister:
    WORDS = ("runtime", "register", "--org", "acme", "--installation", "crm")

    async def test_prints_the_credential_once(
        self, settings: dict[str, object], database: Database
    ) -> None:
        """Stored as a hash alone, so this is the only time that it can be read (C580)."""
        words = (*self.WORDS, "--capability", "outbox")

        first = await run(*words, settings=settings)
        second = await run(*words, settings=settings)

        assert first.code == 0
        credential = first.out.removesuffix("\n")
        assert credential.startswith("ofc1_")
        (stored,) = await rows(
            database.admin_url, "SELECT b::text FROM oncefence.runtime_work_bindings AS b"
        )
        assert credential not in stored["b"]
        assert second.code == 1
        assert "registered already" in second.message
        assert second.out == ""

    async def test_has_one_default_digest_for_one_scope(self, settings: dict[str, object]) -> None:
        """Whoever knows the three names can compute it, and other names give another."""
        first = await run(*self.WORDS, "--capability", "outbox", "--json", settings=settings)
        other = await run(*self.WORDS, "--capability", "other", "--json", settings=settings)

        assert first.document["work_binding_digest"] == (
            "a237200ea00e135eb333cd35ccb7cfc6f1696f6209d8008fb7ea94ff5bb4f168"
        )
        assert first.document["work_binding_digest"] != other.document["work_binding_digest"]

    async def test_takes_a_digest_of_ones_own(self, settings: dict[str, object]) -> None:
        """It is the Runtime's to say what its work binding is."""
        words = (*self.WORDS, "--capability", "outbox", "--work-binding-digest")

        good = await run(*words, "ab" * 32, "--json", settings=settings)
        bad = await run(*words, "AB" * 32, settings=settings)

        assert good.document["work_binding_digest"] == "ab" * 32
        assert bad.code == 2
        assert "give 64 lower-case hex digits" in bad.message


class TestBindingAdd:
    async def test_seals_the_token(
        self, settings: dict[str, object], database: Database, tmp_path: Path
    ) -> None:
        """The token is nowhere in clear: not in the output, not in any table (C9)."""
        ended = await add_binding(settings, tmp_path, token=TOKEN.encode() + b"\r\n")

        assert ended.code == 0
        assert ended.out.startswith("hubspot-main is principal binding ")
        assert ended.out.endswith(" at https://api.hubapi.com\n")
        assert TOKEN not in ended.out + ended.err
        (kept,) = await rows(database.admin_url, "SELECT ciphertext FROM oncefence.token_versions")
        assert TOKEN.encode() not in kept["ciphertext"]
        # Nonce and tag around exactly the token: the line end is no part of it.
        assert len(kept["ciphertext"]) == 12 + len(TOKEN) + 16

    async def test_of_a_name_that_is_taken_is_refused(
        self, settings: dict[str, object], tmp_path: Path
    ) -> None:
        """Nothing is replaced: work is queued for the account that is there (C6)."""
        assert (await add_binding(settings, tmp_path)).code == 0

        again = await add_binding(settings, tmp_path, token=b"another")

        assert again.code == 1
        assert "choose another name" in again.message

    async def test_refuses_a_file_that_others_can_read(
        self, settings: dict[str, object], tmp_path: Path
    ) -> None:
        """A token that everybody on the machine has read is no secret any more."""
        path = tmp_path / "open-token"
        path.write_text(TOKEN)
        path.chmod(0o644)

        words = ["--org", "acme", "--name", "main", "--provider", "hubspot", "--token-file"]
        ended = await run("binding", "add", *words, path, settings=settings)
        missing = await run("binding", "add", *words, tmp_path / "none", settings=settings)

        assert (ended.code, missing.code) == (1, 1)
        assert ended.message.endswith(f"can be read by others than its owner. chmod 600 {path}")
        assert "cannot be read (No such file or directory)" in missing.message

    async def test_takes_plain_http_only_when_local(
        self, settings: dict[str, object], tmp_path: Path
    ) -> None:
        """For a simulator on this machine."""
        words = ("--base-url", "http://127.0.0.1:8081")

        refused = await add_binding(settings, tmp_path, *words)
        ended = await add_binding(settings, tmp_path, *words, "--local")

        assert (refused.code, ended.code) == (1, 0)
        assert refused.message.endswith("Give an https:// URL, or say --local")
        assert ended.out.endswith(" at http://127.0.0.1:8081\n")

    async def test_of_an_unknown_pack_names_those_that_there_are(
        self, settings: dict[str, object], tmp_path: Path
    ) -> None:
        """A pack is data: a missing one is a wrong name or a missing folder."""
        path = tmp_path / "token"
        path.write_text(TOKEN)
        path.chmod(0o600)
        words = ["--org", "acme", "--name", "main", "--provider", "nope", "--token-file", path]

        ended = await run("binding", "add", *words, settings=settings)

        assert ended.code == 2
        assert "no pack 'nope' in the shipped ones (hubspot" in ended.message


class TestLinkAdopt:
    WORDS = ("link", "adopt", "--org", "acme", "--binding", "hubspot-main")

    async def test_links_one_and_again_changes_nothing(
        self, settings: dict[str, object], database: Database, tmp_path: Path
    ) -> None:
        """Adopting is idempotent; another record for the same subject is refused."""
        await add_binding(settings, tmp_path)
        words = (
            *self.WORDS,
            "--object",
            "lead",
            "--subject",
            "lead:1",
            "--remote-object",
            "contact",
        )

        first = await run(*words, "--remote-id", "101", settings=settings)
        again = await run(*words, "--remote-id", "101", settings=settings)
        other = await run(*words, "--remote-id", "102", settings=settings)

        assert (first.code, again.code, other.code) == (0, 0, 1)
        assert first.out == again.out == "1 linked, 0 refused\n"
        assert other.message == "the local subject has a link already; retire that one first"
        assert len(await rows(database.admin_url, "SELECT FROM oncefence.remote_links")) == 1

    async def test_links_many_and_judges_each_line_alone(
        self, settings: dict[str, object], tmp_path: Path
    ) -> None:
        """A bad line hurts only itself."""
        await add_binding(settings, tmp_path)
        path = tmp_path / "links.jsonl"
        good = {"object": "lead", "remote_object": "contact"}
        lines = [
            json.dumps(good | {"subject": "lead:1", "remote_id": "101"}),
            "bad",
            "",
            json.dumps(good | {"subject": "lead:2", "remote_id": "101"}),
            json.dumps(good | {"subject": "lead:3", "remote_id": 103}),
            json.dumps(good | {"subject": "lead:4\x1b[2J", "remote_id": "104"}),
            json.dumps(good | {"subject": "lead:5"}),
            json.dumps(good | {"subject": "lead:6", "remote_id": "106"}),
        ]
        path.write_text("\n".join(lines))

        ended = await run(*self.WORDS, "--file", path, settings=settings)

        assert (ended.code, ended.out) == (3, "2 linked, 5 refused\n")
        assert [line.split(": ", 2)[1:] for line in ended.err.splitlines()] == [
            ["line 2", "the line is not JSON (Expecting value at line 1, column 1)"],
            ["line 4", "the remote record has a link already; retire that one first"],
            ["line 5", "remote_id must be text"],
            ["line 6", "subject holds a control character or half of a surrogate pair"],
            ["line 7", "remote_id is missing"],
        ]

    async def test_to_an_unknown_account_says_how_to_make_it(
        self, settings: dict[str, object]
    ) -> None:
        """The world is made in an order, and the message leads to the step before."""
        ended = await run(
            *(*self.WORDS, "--object", "lead", "--subject", "lead:1"),
            *("--remote-object", "contact", "--remote-id", "1"),
            settings=settings,
        )

        assert ended.code == 1
        assert ended.message.endswith(
            "make it with `oncefence binding connect` or `oncefence binding add`"
        )

    async def test_needs_all_four_names_or_a_file(self, settings: dict[str, object]) -> None:
        """Half a link is no link."""
        half = await run(*self.WORDS, "--object", "lead", settings=settings)
        both = await run(*self.WORDS, "--object", "lead", "--file", "x", settings=settings)

        assert (half.code, half.message) == (1, "--subject is missing")
        assert both.code == 2


class TestCatalog:
    async def test_check_finds_the_example_sound(self) -> None:
        """What ships must pass."""
        ended = await run("catalog", "check", BINDING)

        assert (ended.code, ended.out, ended.err) == (0, "1 checked, 0 errors, 0 warnings\n", "")

    async def test_check_names_file_key_and_reason(self, tmp_path: Path) -> None:
        """Every problem in one run (C562)."""
        path = tmp_path / "bad.toml"
        text = Path(__file__).parents[2].joinpath(BINDING).read_text()
        path.write_text(text.replace("sensitive = false", "colour = 1\nsensitive = false"))

        ended = await run("catalog", "check", path)

        assert ended.code == 2
        assert f"error: {path}: " in ended.message
        assert "colour" in ended.message

    async def test_publish_makes_a_revision_and_again_none(
        self, settings: dict[str, object]
    ) -> None:
        """A published view is immutable; the same content is the same revision (C561)."""
        words = ("catalog", "publish", BINDING, "--org", "acme", "--installation", "crm")

        first = await run(*words, settings=settings)
        again = await run(*words, settings=settings)

        assert (first.code, again.code) == (0, 0)
        assert first.out.startswith("lead-title is published as revision 1, digest ")
        assert again.out.startswith("lead-title was published before and stays revision 1, ")

    async def test_publish_takes_packs_from_a_folder(
        self, settings: dict[str, object], tmp_path: Path
    ) -> None:
        """A provider that does not ship is a file of the user's and no Python."""
        source = "src/oncefence/catalog/packs/hubspot.toml"
        pack = Path(__file__).parents[2].joinpath(source).read_text()
        (tmp_path / "mine.toml").write_text(pack.replace('name = "hubspot"', 'name = "mine"'))
        binding = tmp_path / "mine.binding.toml"
        example = Path(__file__).parents[2].joinpath(BINDING).read_text()
        binding.write_text(example.replace('pack = "hubspot"', 'pack = "mine"'))
        words = ("catalog", "publish", binding, "--org", "acme", "--installation", "crm")

        without = await run(*words, settings=settings)
        found = await run(*words, "--pack-folder", tmp_path, settings=settings)

        assert (without.code, found.code) == (2, 0)
        assert "no pack 'mine'" in without.message


async def test_each_verb_leaves_its_audit_row(
    settings: dict[str, object], database: Database, tmp_path: Path
) -> None:
    """Who made the world is on record (C583)."""
    await run(
        *("runtime", "register", "--org", "acme", "--installation", "crm"),
        *("--capability", "outbox"),
        settings=settings,
    )
    await add_binding(settings, tmp_path)
    await run(
        *TestLinkAdopt.WORDS,
        *("--object", "lead", "--subject", "lead:1"),
        *("--remote-object", "contact", "--remote-id", "1"),
        settings=settings,
    )
    await run(
        *("catalog", "publish", BINDING, "--org", "acme", "--installation", "crm"),
        settings=settings,
    )

    kept = await rows(database.admin_url, "SELECT act, actor FROM oncefence.audit ORDER BY at")

    acts = ["runtime.register", "binding.add", "link.adopt", "catalog.publish", "catalog.activate"]
    assert [row["act"] for row in kept] == acts
    assert all(row["actor"].startswith("cli:uid=") for row in kept)
