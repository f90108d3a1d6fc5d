"""
The local key file: `{"keys": {"<id>": "<64 hex digits>", ...}}`, the first key being the current.

Only ever replaced as a whole and with all its keys: a key that is lost is data that is lost.
"""

import fcntl
import json
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from oncefence.domain.errors import ConfigurationRefused
from oncefence.storage.key_wrapping import KEY_BYTES, SETTING, LocalKeys, lacking

_MAKE_ONE = "Make one with `oncefence migrate --make-key-file`, or set ONCEFENCE_KEY_FILE"


class LocalKeyFile:
    """
    The keys of a file, in memory.

    A process that meets an id which it lacks looks whether the file has it by now, so that a
    rotation needs no restart.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._keys = LocalKeys({})
        self._seen: tuple[int, int, int] | None = None
        self._read()

    @property
    def current_id(self) -> str:
        return self._keys.current_id

    @property
    def key_ids(self) -> tuple[str, ...]:
        return self._keys.key_ids

    def wrap(self, key: bytes, place: bytes) -> tuple[bytes, str]:
        """A data key wrapped with the first key of the file, as it was last read."""
        return self._keys.wrap(key, place)

    def unwrap(self, wrapped: bytes, key_id: str, place: bytes) -> bytes:
        """
        The data key that was wrapped for `place`.

        Raises:
            ConfigurationRefused: The file has no `key_id` by now either, or another key under it.
        """
        if key_id not in self._keys.key_ids and not self._has_by_now(key_id):
            raise lacking(key_id)
        return self._keys.unwrap(wrapped, key_id, place)

    def _has_by_now(self, key_id: str) -> bool:
        # Asked of the file's status first: a key that is nowhere must not cost a read each time.
        if _identity(self._path) == self._seen:
            return False
        self._read()
        return key_id in self._keys.key_ids

    def _read(self) -> None:
        # The status first: a file replaced in between is read once more than needed, never less.
        self._seen = _identity(self._path)
        self._keys = LocalKeys(read_keys(self._path))


def read_keys(path: Path) -> dict[str, bytes]:
    """
    The keys in a key file by id, in the order of the file.

    Raises:
        ConfigurationRefused: No such file, or not of this form; nothing of it is in the message.
    """
    try:
        content = json.loads(path.read_text())
        keys = {str(name): bytes.fromhex(value) for name, value in content["keys"].items()}
    except FileNotFoundError:
        raise _refused(f"no key file at {path}") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise _refused(f"{path} is not a readable key file") from None
    if not keys or any(len(key) != KEY_BYTES for key in keys.values()):
        raise _refused(f"{path} holds no key, or one that is not 32 bytes long")
    return keys


def make_key_file(path: Path) -> None:
    """
    A new file with one key at `path`, readable by its owner alone.

    Raises:
        FileExistsError: There is one; a new one would make everything sealed unreadable.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(_text(dict([_new_key()])))


def add_key(path: Path) -> str:
    """
    A new key behind the others of the file, which opens and wraps nothing yet; returns its id.

    Raises:
        ConfigurationRefused: The file cannot be read or replaced; it is as it was.
    """
    key_id, key = _new_key()
    _replace(path, lambda keys: keys | {key_id: key})
    return key_id


def make_current(path: Path, key_id: str) -> None:
    """
    Put one of the file's keys before the others: from here on it wraps.

    Raises:
        ConfigurationRefused: It has no such key, or cannot be read or replaced.
    """

    def first(keys: dict[str, bytes]) -> dict[str, bytes]:
        if key_id not in keys:
            raise ConfigurationRefused(
                setting="--to",
                reason=f"{path} has no key {key_id!r}",
                remedy=f"Name one that it has: {', '.join(keys)}",
            )
        return {key_id: keys[key_id], **keys}

    _replace(path, first)


def _replace(path: Path, change: Callable[[dict[str, bytes]], dict[str, bytes]]) -> None:
    """Replace the file in one step by its keys as `change` makes them; durable on return."""
    # A link is followed and stays one.
    target = path.resolve()
    beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with _alone(target.parent) as folder:
            before = read_keys(target)
            _refuse_other_owner(target)
            after = change(before)
            assert before.items() <= after.items(), "a rotation loses no key"
            _write_new(beside, _text(after))
            os.replace(beside, target)  # noqa: PTH105  # one name for what is one system call
            os.fsync(folder)
    except OSError as error:
        raise ConfigurationRefused(
            setting=SETTING,
            reason=f"{path} cannot be replaced ({error.strerror})",
            remedy="Run this where its owner may write the folder, and put the new file in its "
            "place on every host",
        ) from None
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def _alone(folder: Path) -> Iterator[int]:
    """Of two that replace the file, the second reads what the first wrote."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)


def _write_new(path: Path, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _refuse_other_owner(path: Path) -> None:
    if path.stat().st_uid != os.geteuid():
        raise ConfigurationRefused(
            setting=SETTING,
            reason=f"{path} belongs to another user, who could not read what replaced it",
            remedy="Run this as the owner of the key file",
        )


def _identity(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _new_key() -> tuple[str, bytes]:
    return f"local-{secrets.token_hex(4)}", secrets.token_bytes(KEY_BYTES)


def _text(keys: dict[str, bytes]) -> str:
    return json.dumps({"keys": {name: key.hex() for name, key in keys.items()}})


def _refused(reason: str) -> ConfigurationRefused:
    return ConfigurationRefused(setting=SETTING, reason=reason, remedy=_MAKE_ONE)
