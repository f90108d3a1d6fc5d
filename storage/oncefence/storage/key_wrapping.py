"""
The port behind which the wrapping keys are: a key management service, or keys at hand.

A wrapping key never leaves what holds it; what goes in and out are data keys, each for one place.
"""

import json
import os
from collections.abc import Mapping
from typing import Final, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from oncefence.domain.errors import ConfigurationRefused
from oncefence.domain.redaction import Concealed

KEY_BYTES: Final = 32
SETTING: Final = "ONCEFENCE_KEY_FILE"
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16


class KeyWrapping(Protocol):
    """
    Who holds the wrapping keys.

    All of it is called from the loop of the process and must not wait: an adapter of a service
    that is asked over a network keeps what it was told.
    """

    @property
    def current_id(self) -> str:
        """The id of the key that new data keys are wrapped with."""

    @property
    def key_ids(self) -> tuple[str, ...]:
        """The ids of all keys that it can unwrap with, the current one first."""

    def wrap(self, key: bytes, place: bytes) -> tuple[bytes, str]:
        """A data key wrapped for `place` with the current key, and the id of that."""

    def unwrap(self, wrapped: bytes, key_id: str, place: bytes) -> bytes:
        """
        The data key that was wrapped for `place` with the key `key_id`.

        Raises:
            ConfigurationRefused: It does not hold that key, or holds another under that id.
        """


def place_of(*parts: object) -> bytes:
    """The associated data of a place; JSON keeps its parts apart whatever they contain."""
    return json.dumps([str(part) for part in parts]).encode()


def seal(key: bytes, plaintext: bytes, place: bytes) -> bytes:
    """`plaintext` under `key` with AES-256-GCM, behind a nonce of its own (C296)."""
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, plaintext, place)


def unseal(key: bytes, sealed: bytes, place: bytes) -> bytes:
    """
    What was sealed under `key` in `place`.

    Raises:
        cryptography.exceptions.InvalidTag: Another key, another place, or damage.
    """
    if len(sealed) < _NONCE_BYTES + _TAG_BYTES:
        # Cut short is damage like any other.
        raise InvalidTag
    return AESGCM(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], place)


class LocalKeys(Concealed):
    """Wrapping keys in this process's memory, by id; the first is the current one."""

    __slots__ = ("_keys",)

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        self._keys = dict(keys)

    @property
    def current_id(self) -> str:
        return next(iter(self._keys))

    @property
    def key_ids(self) -> tuple[str, ...]:
        return tuple(self._keys)

    def wrap(self, key: bytes, place: bytes) -> tuple[bytes, str]:
        """A data key wrapped with the first key."""
        key_id, wrapping = next(iter(self._keys.items()))
        return seal(wrapping, key, _with_id(place, key_id)), key_id

    def unwrap(self, wrapped: bytes, key_id: str, place: bytes) -> bytes:
        """
        The data key that was wrapped for `place`.

        Raises:
            ConfigurationRefused: There is no key of that id, or another.
        """
        wrapping = self._keys.get(key_id)
        if wrapping is None:
            raise lacking(key_id)
        try:
            return unseal(wrapping, wrapped, _with_id(place, key_id))
        except InvalidTag:
            raise ConfigurationRefused(
                setting=SETTING,
                reason=f"the ring's key {key_id!r} does not open what is stored under that id",
                remedy="Start with the key file that this database was filled with",
            ) from None


def lacking(*key_ids: str) -> ConfigurationRefused:
    """The refusal of a ring that lacks keys with which something in the database is wrapped."""
    named = ", ".join(repr(key_id) for key_id in key_ids)
    noun = "key" if len(key_ids) == 1 else "keys"
    return ConfigurationRefused(
        setting=SETTING,
        reason=f"the ring has no {noun} {named}, with which stored data is sealed",
        remedy="Put there the key file that this database was filled with, as it is after the last "
        "`oncefence keys rotate`; a process that runs reads it again by itself",
    )


def _with_id(place: bytes, key_id: str) -> bytes:
    # As `place_of` makes it of the parts and the id together.
    return json.dumps([*json.loads(place), key_id]).encode()
