"""Sealed rows: they open in their own place with their own key, and show nothing otherwise."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from cryptography.exceptions import InvalidTag
from hypothesis import given
from hypothesis import strategies as st

from oncefence.domain.errors import ConfigurationRefused
from oncefence.storage.phases.start_attempt import unseal
from oncefence.storage.sealing import DataKey, KeyRing
from tests.support.servers import Database
from tests.support.world import TOKEN, World

KEYS = st.binary(min_size=32, max_size=32)
on_the_store = pytest.mark.asyncio(loop_scope="module")


def a_ring(byte: int = 1, name: str = "one") -> KeyRing:
    return KeyRing({name: bytes([byte]) * 32})


class TestADataKey:
    @given(st.binary(), st.lists(st.one_of(st.text(), st.integers()), max_size=4))
    def test_opens_what_it_sealed_in_the_same_place(self, text: bytes, place: list[object]) -> None:
        """Whatever the bytes are, they come back exactly."""
        key = DataKey(b"k" * 32)

        assert key.open(key.seal(text, *place), *place) == text

    @pytest.mark.parametrize(
        "place",
        [
            ("payload", "org-b", "execution", 1),
            ("request", "org-a", "execution", 1),
            ("payload", "org-a", "other", 1),
            ("payload", "org-a", "execution", 2),
            ("payload", "org-a", "execution"),
            ("payload", "org-a,execution", 1),
            (),
        ],
    )
    def test_opens_in_no_other_place(self, place: tuple[object, ...]) -> None:
        """Ciphertext moved to another row, org, kind or version is worth nothing."""
        key = DataKey(b"k" * 32)
        sealed = key.seal(b"secret", "payload", "org-a", "execution", 1)

        with pytest.raises(InvalidTag):
            key.open(sealed, *place)

    @given(st.integers(0, 200))
    def test_opens_nothing_that_was_touched(self, at: int) -> None:
        """A flipped bit is damage and not another title."""
        key = DataKey(b"k" * 32)
        sealed = bytearray(key.seal(b"secret", "place"))
        sealed[at % len(sealed)] ^= 1

        with pytest.raises(InvalidTag):
            key.open(bytes(sealed), "place")

    @given(st.integers(0, 40))
    def test_opens_nothing_that_was_cut_short(self, length: int) -> None:
        """Even to nothing at all: damage, whatever is left."""
        key = DataKey(b"k" * 32)
        sealed = key.seal(b"a longer secret", "place")

        with pytest.raises(InvalidTag):
            key.open(sealed[:length], "place")

    def test_seals_the_same_bytes_differently_each_time(self) -> None:
        """Equal titles must not look equal in the table."""
        key = DataKey(b"k" * 32)

        assert key.seal(b"secret", "place") != key.seal(b"secret", "place")

    @given(KEYS, KEYS)
    def test_addresses_a_digest_only_its_org_can_know(self, one: bytes, other: bytes) -> None:
        """A plain digest of a short title could be guessed from the table."""
        same = DataKey(one).address("ab") == DataKey(other).address("ab")

        assert same == (one == other)
        assert DataKey(one).address("ab") == DataKey(one).address("ab")

    def test_shows_nothing_of_itself(self) -> None:
        """A key in a log is a key for everybody (C9)."""
        key = DataKey(b"k" * 32)
        ring = KeyRing({"one": b"r" * 32})

        assert "kkk" not in f"{key!r}{key}"
        assert "rrr" not in f"{ring!r}{ring}"


class TestAKeyRing:
    def test_unwraps_for_the_same_place_alone(self) -> None:
        """A wrapped key that is moved to another row opens nothing there."""
        ring = a_ring()
        key, wrapped, key_id = ring.new_key("execution", "org-a", "1")
        sealed = key.seal(b"secret")

        assert ring.unwrap(wrapped, key_id, "execution", "org-a", "1").open(sealed) == b"secret"
        with pytest.raises(ConfigurationRefused):
            ring.unwrap(wrapped, key_id, "execution", "org-b", "1")

    def test_of_another_file_says_which_file_is_needed(self) -> None:
        """Started with a wrong key file, one message says what to do (C12)."""
        _, wrapped, key_id = a_ring(1).new_key("org", "a")
        refusals = []

        for ring in (a_ring(2), a_ring(1, "other")):
            with pytest.raises(ConfigurationRefused) as refused:
                ring.unwrap(wrapped, key_id, "org", "a")
            refusals.append(str(refused.value))

        assert all("ONCEFENCE_KEY_FILE" in said and "'one'" in said for said in refusals)
        assert all("the key file that this database was filled with" in said for said in refusals)

    def test_is_made_once_and_for_its_owner_alone(self, tmp_path: Path) -> None:
        """A second one would make everything that was sealed unreadable."""
        path = tmp_path / "keys" / "ring.json"
        KeyRing.make_file(path)

        assert path.stat().st_mode & 0o777 == 0o600
        with pytest.raises(FileExistsError):
            KeyRing.make_file(path)
        ring = KeyRing.load(path)
        key, wrapped, key_id = ring.new_key("x")
        assert KeyRing.load(path).unwrap(wrapped, key_id, "x").open(key.seal(b"y")) == b"y"

    @pytest.mark.parametrize(
        "content",
        [
            None,
            "",
            "[]",
            "{}",
            '{"keys": {}}',
            '{"keys": []}',
            '{"keys": {"a": "zz"}}',
            '{"keys": {"a": 1}}',
            '{"keys": {"a": "%s"}}' % ("ab" * 31),
        ],
    )
    def test_that_cannot_be_used_is_refused_with_its_path(
        self, tmp_path: Path, content: str | None
    ) -> None:
        """No traceback, and no byte of the file (C12)."""
        path = tmp_path / "ring.json"
        if content is not None:
            path.write_text(content, encoding="utf-8")

        with pytest.raises(ConfigurationRefused) as refused:
            KeyRing.load(path)

        assert str(path) in str(refused.value)
        assert "migrate --make-key-file" in str(refused.value)
        assert refused.value.__cause__ is None
        assert "ab" * 31 not in str(refused.value)

    def test_keeps_opening_what_an_older_key_wrapped(self) -> None:
        """The first key wraps; the others still open."""
        _, wrapped, key_id = a_ring(1, "old").new_key("x")
        ring = KeyRing({"new": b"n" * 32, "old": bytes([1]) * 32})

        assert ring.unwrap(wrapped, key_id, "x")
        assert ring.new_key("x")[2] == "new"


SECRETS = ("title-nobody-may-see", TOKEN)


@on_the_store
class TestTheDatabase:
    async def test_holds_no_secret_in_the_clear(self, world: World) -> None:
        """Payload, request and token rest sealed; the credential rests as a hash (C9)."""
        await world.start(await world.accept_command(title=SECRETS[0]))
        tables = await world.sql(
            "SELECT table_name FROM information_schema.tables"
            " WHERE table_schema = 'oncefence' AND :org <> ''"
        )
        stored = [
            bytes(value) if isinstance(value, bytes | memoryview) else str(value).encode()
            for table in tables
            for row in await world.sql(f"SELECT * FROM oncefence.{table[0]} WHERE :org <> ''")
            for value in row
        ]

        assert len(stored) > 100
        for secret in (*SECRETS, world.credential):
            assert not any(secret.encode() in value for value in stored)
            assert not any(secret.encode().hex().encode() in value for value in stored)

    @pytest.mark.parametrize("moved", ["request_ciphertext", "token_ciphertext", "token_version"])
    async def test_opens_nothing_that_was_moved(self, store: Database, moved: str) -> None:
        """Whoever can write rows can still not make one tenant's work use another's secrets."""
        ring = KeyRing({"shared": b"s" * 32})
        worlds = [await World.make(store, ring=ring) for _ in range(2)]
        mine, theirs = [(await each.a_running_command())[1] for each in worlds]
        other = 2 if moved == "token_version" else theirs.sealed[moved]
        row = SimpleNamespace(**{**dict(mine.sealed), moved: other})

        with pytest.raises(InvalidTag):
            unseal(ring, replace(mine, sealed=cast(Any, row)))

    async def test_is_not_readable_with_another_ring(self, world: World) -> None:
        """A worker with a wrong key file says so; its attempt is marked and nothing was sent."""
        _, started = await world.a_running_command()

        with pytest.raises(ConfigurationRefused) as refused:
            unseal(KeyRing({"other": b"o" * 32}), started)

        assert "ONCEFENCE_KEY_FILE" in str(refused.value)
