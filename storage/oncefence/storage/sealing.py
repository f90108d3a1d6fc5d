"""
Sealing: how secrets and payloads rest in the database.

Each execution, staged payload and binding generation has a data key of its own, wrapped by a key
of the ring. What is sealed names its place (the associated data), so that ciphertext moved to
another row, org or version never opens.
"""

import hashlib
import hmac
import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from oncefence.domain.errors import ConfigurationRefused

_NONCE_BYTES = 12
_KEY_BYTES = 32


def _place(*parts: object) -> bytes:
    # JSON keeps the parts apart whatever they contain.
    return json.dumps([str(part) for part in parts]).encode()


def _seal(key: bytes, plaintext: bytes, place: bytes) -> bytes:
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, plaintext, place)


def _open(key: bytes, sealed: bytes, place: bytes) -> bytes:
    return AESGCM(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], place)


@dataclass(frozen=True, slots=True, repr=False)
class DataKey:
    """A data key in the open; lives in memory only."""

    _key: bytes

    def seal(self, plaintext: bytes, *place: object) -> bytes:
        """`plaintext` sealed so that it opens in `place` alone."""
        return _seal(self._key, plaintext, _place(*place))

    def open(self, sealed: bytes, *place: object) -> bytes:
        """
        What was sealed in `place`.

        Raises:
            cryptography.exceptions.InvalidTag: Another key, another place, or damage.
        """
        return _open(self._key, sealed, _place(*place))

    def address(self, digest: str) -> bytes:
        """
        The stored form of a payload digest: an HMAC under this (an org's) key.

        A plain digest of a short title could be guessed from the table.
        """
        return hmac.new(self._key, digest.encode(), hashlib.sha256).digest()


class KeyRing:
    """The wrapping keys by id; the first is the one that new data keys are wrapped with."""

    def __init__(self, keys: dict[str, bytes]) -> None:
        self._keys = keys
        self.current_id = next(iter(keys))

    @classmethod
    def load(cls, path: Path) -> "KeyRing":
        """
        The ring in a JSON file `{"keys": {"<id>": "<64 hex digits>"}}`.

        Raises:
            ConfigurationRefused: No such file, open to others, or not of this form.
        """
        remedy = "Make one with `oncefence migrate --make-key-file`, or set ONCEFENCE_KEY_FILE"
        try:
            content = json.loads(path.read_text())
            keys = {str(name): bytes.fromhex(value) for name, value in content["keys"].items()}
        except FileNotFoundError:
            raise ConfigurationRefused(
                setting="ONCEFENCE_KEY_FILE", reason=f"no key file at {path}", remedy=remedy
            ) from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise ConfigurationRefused(
                setting="ONCEFENCE_KEY_FILE",
                reason=f"{path} is not a readable key file",
                remedy=remedy,
            ) from None
        if not keys or any(len(key) != _KEY_BYTES for key in keys.values()):
            raise ConfigurationRefused(
                setting="ONCEFENCE_KEY_FILE",
                reason=f"{path} holds no key, or one that is not 32 bytes long",
                remedy=remedy,
            )
        return cls(keys)

    @staticmethod
    def make_file(path: Path) -> None:
        """
        A new ring with one key at `path`, readable by its owner alone.

        Raises:
            FileExistsError: There is one; a new one would make everything sealed unreadable.
        """
        content = {"keys": {f"local-{secrets.token_hex(4)}": secrets.token_hex(_KEY_BYTES)}}
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            json.dump(content, file)

    def new_key(self, *place: object) -> tuple[DataKey, bytes, str]:
        """A fresh data key, its wrapped form for `place`, and the id of the wrapping key."""
        key = os.urandom(_KEY_BYTES)
        wrapped = _seal(self._keys[self.current_id], key, _place(*place, self.current_id))
        return DataKey(key), wrapped, self.current_id

    def unwrap(self, wrapped: bytes, key_id: str, *place: object) -> DataKey:
        """
        The data key that was wrapped for `place`.

        Raises:
            ConfigurationRefused: The ring lacks `key_id`, or holds another key under that id.
        """
        ring_key = self._keys.get(key_id)
        if ring_key is None:
            raise ConfigurationRefused(
                setting="ONCEFENCE_KEY_FILE",
                reason=f"the ring has no key {key_id!r}, with which stored data is sealed",
                remedy="Start with the key file that this database was filled with",
            )
        try:
            return DataKey(_open(ring_key, wrapped, _place(*place, key_id)))
        except InvalidTag:
            raise ConfigurationRefused(
                setting="ONCEFENCE_KEY_FILE",
                reason=f"the ring's key {key_id!r} does not open what is stored under that id",
                remedy="Start with the key file that this database was filled with",
            ) from None
