"""The key file: replaced whole, with all its keys, and read again by whoever meets a new id."""

import json
import os
import threading
from pathlib import Path

import pytest

from oncefence.domain.errors import ConfigurationRefused
from oncefence.storage import key_file
from oncefence.storage.key_file import add_key, make_current, read_keys
from oncefence.storage.sealing import KeyRing


@pytest.fixture
def path(tmp_path: Path) -> Path:
    KeyRing.make_file(tmp_path / "keys.json")
    return tmp_path / "keys.json"


class TestANewKey:
    def test_opens_and_wraps_nothing_before_it_is_put_first(self, path: Path) -> None:
        """Every host must have it before anything is under it (C297)."""
        before = read_keys(path)
        added = add_key(path)

        assert list(read_keys(path)) == [*before, added]
        assert KeyRing.load(path).new_key("x")[2] == next(iter(before))

        make_current(path, added)

        assert list(read_keys(path)) == [added, *before]
        assert read_keys(path).items() >= before.items()
        assert KeyRing.load(path).new_key("x")[2] == added

    def test_leaves_a_file_for_its_owner_alone_and_nothing_beside_it(self, path: Path) -> None:
        """A forgotten copy of the keys is the keys."""
        path.chmod(0o644)

        make_current(path, add_key(path))

        assert path.stat().st_mode & 0o777 == 0o600
        assert [each.name for each in path.parent.iterdir()] == ["keys.json"]

    def test_follows_a_link_that_stays_one(self, path: Path, tmp_path: Path) -> None:
        """Where a file is mounted, its name leads elsewhere."""
        link = tmp_path / "elsewhere" / "keys.json"
        link.parent.mkdir()
        link.symlink_to(path)

        added = add_key(link)

        assert link.is_symlink()
        assert added in read_keys(path)

    def test_is_one_of_many_where_many_are_made_at_once(self, path: Path) -> None:
        """A key that another's replacement loses would be data that is lost."""
        begin = threading.Barrier(8)
        made: list[str] = []

        def make() -> None:
            begin.wait()
            made.append(add_key(path))

        threads = [threading.Thread(target=make) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert set(made) < set(read_keys(path))
        assert len(read_keys(path)) == 9

    def test_that_cannot_be_written_leaves_the_file_as_it_was(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A full disk in the middle must not cost a key (C12)."""
        before = path.read_bytes()

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(key_file.os, "replace", full)

        with pytest.raises(ConfigurationRefused) as refused:
            add_key(path)

        assert path.read_bytes() == before
        assert [each.name for each in path.parent.iterdir()] == ["keys.json"]
        assert "cannot be replaced (No space left on device)" in str(refused.value)

    def test_is_not_put_into_a_file_of_somebody_else(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What replaced it would be ours, and its owner's workers could not read it."""
        monkeypatch.setattr(key_file.os, "geteuid", lambda: os.getuid() + 1)

        with pytest.raises(ConfigurationRefused, match="belongs to another user"):
            add_key(path)

        assert len(read_keys(path)) == 1

    def test_that_is_not_there_cannot_be_put_first(self, path: Path) -> None:
        """A slip of the pen must not end in a ring without a current key."""
        (only,) = read_keys(path)

        with pytest.raises(ConfigurationRefused, match=f"Name one that it has: {only}"):
            make_current(path, "nobody")

        assert list(read_keys(path)) == [only]


class TestAProcessThatRuns:
    def test_reads_the_file_again_when_it_meets_a_new_id(self, path: Path) -> None:
        """A rotation needs no restart (C297)."""
        running = KeyRing.load(path)
        make_current(path, add_key(path))
        key, wrapped, key_id = KeyRing.load(path).new_key("x")

        assert key_id not in running.key_ids
        assert running.unwrap(wrapped, key_id, "x").open(key.seal(b"y")) == b"y"
        assert running.current_id == key_id

    def test_says_which_key_it_lacks_and_what_to_do(self, path: Path, tmp_path: Path) -> None:
        """On a host whose file was forgotten, one message is enough (C12)."""
        forgotten = tmp_path / "forgotten.json"
        forgotten.write_bytes(path.read_bytes())
        running = KeyRing.load(forgotten)
        make_current(path, add_key(path))
        key, wrapped, key_id = KeyRing.load(path).new_key("x")

        for _ in range(2):
            with pytest.raises(ConfigurationRefused) as refused:
                running.unwrap(wrapped, key_id, "x")
            assert f"the ring has no key '{key_id}'" in str(refused.value)
            assert "a process that runs reads it again by itself" in str(refused.value)

        forgotten.write_bytes(path.read_bytes())

        assert running.unwrap(wrapped, key_id, "x").open(key.seal(b"y")) == b"y"

    def test_keeps_its_keys_while_the_file_is_damaged(self, path: Path) -> None:
        """A hand that edits the file must not stop what has what it needs."""
        running = KeyRing.load(path)
        key, wrapped, key_id = running.new_key("x")
        path.write_text("{", encoding="utf-8")

        with pytest.raises(ConfigurationRefused, match="not a readable key file"):
            running.unwrap(wrapped, "another", "x")

        assert running.unwrap(wrapped, key_id, "x").open(key.seal(b"y")) == b"y"


def test_a_key_file_is_plain_json(path: Path) -> None:
    """An operator can read its ids, move it and keep it safe."""
    keys = json.loads(path.read_text(encoding="utf-8"))["keys"]

    assert [len(bytes.fromhex(key)) for key in keys.values()] == [32]
