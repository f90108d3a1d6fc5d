"""
Sealing: how secrets and payloads rest in the database.

Each execution, staged payload and binding generation has a data key of its own, wrapped by a key
of the ring. What is sealed names its place (the associated data), so that ciphertext moved to
another row, org or version never opens.
"""

import hashlib
import hmac
import os
from collections.abc import Mapping
from pathlib import Path

from oncefence.domain.redaction import Concealed
from oncefence.storage.key_file import LocalKeyFile, make_key_file
from oncefence.storage.key_wrapping import (
    KEY_BYTES,
    KeyWrapping,
    LocalKeys,
    place_of,
    seal,
    unseal,
)


class DataKey(Concealed):
    """A data key in the open; lives in memory only."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    def seal(self, plaintext: bytes, *place: object) -> bytes:
        """`plaintext` sealed so that it opens in `place` alone."""
        return seal(self._key, plaintext, place_of(*place))

    def open(self, sealed: bytes, *place: object) -> bytes:
        """
        What was sealed in `place`.

        Raises:
            cryptography.exceptions.InvalidTag: Another key, another place, or damage.
        """
        return unseal(self._key, sealed, place_of(*place))

    def address(self, digest: str) -> bytes:
        """
        The stored form of a payload digest: an HMAC under this (an org's) key.

        A plain digest of a short title could be guessed from the table.
        """
        return hmac.new(self._key, digest.encode(), hashlib.sha256).digest()


class KeyRing:
    """
    Data keys, made and opened by the wrapping keys behind the port.

    Of a mapping, the first key is the one that new data keys are wrapped with.
    """

    def __init__(self, keys: KeyWrapping | Mapping[str, bytes]) -> None:
        self._wrapping: KeyWrapping = LocalKeys(keys) if isinstance(keys, Mapping) else keys

    @classmethod
    def load(cls, path: Path) -> "KeyRing":
        """
        The ring in the key file at `path`, which is read again when it meets an id that it lacks.

        Raises:
            ConfigurationRefused: No such file, or none that holds a ring.
        """
        return cls(LocalKeyFile(path))

    @staticmethod
    def make_file(path: Path) -> None:
        """
        A new ring with one key at `path`, readable by its owner alone.

        Raises:
            FileExistsError: There is one; a new one would make everything sealed unreadable.
        """
        make_key_file(path)

    @property
    def current_id(self) -> str:
        return self._wrapping.current_id

    @property
    def key_ids(self) -> tuple[str, ...]:
        """The ids of the keys that it has, the current one first."""
        return self._wrapping.key_ids

    def new_key(self, *place: object) -> tuple[DataKey, bytes, str]:
        """A fresh data key, its wrapped form for `place`, and the id of the wrapping key."""
        key = os.urandom(KEY_BYTES)
        wrapped, key_id = self._wrapping.wrap(key, place_of(*place))
        return DataKey(key), wrapped, key_id

    def unwrap(self, wrapped: bytes, key_id: str, *place: object) -> DataKey:
        """
        The data key that was wrapped for `place`.

        Raises:
            ConfigurationRefused: The ring lacks `key_id`, or holds another key under that id.
        """
        return DataKey(self._wrapping.unwrap(wrapped, key_id, place_of(*place)))

    def rewrap(self, wrapped: bytes, key_id: str, *place: object) -> tuple[bytes, str]:
        """
        The same data key, wrapped for the same `place` with the current key, and the id of that.

        Raises:
            ConfigurationRefused: As of `unwrap`.
        """
        at = place_of(*place)
        return self._wrapping.wrap(self._wrapping.unwrap(wrapped, key_id, at), at)
