"""
Tokens as they rest: each sealed for one generation, version, field and wrapping key (C296).

Writes no table itself; `token_versions` holds what is sealed here.
"""

from enum import StrEnum
from uuid import UUID

from cryptography.exceptions import InvalidTag

from oncefence.domain.ids import OrgId
from oncefence.domain.redaction import Concealed, Secret
from oncefence.storage.sealing import DataKey, KeyRing


class TokenField(StrEnum):
    """Which of a version's two tokens it is."""

    ACCESS = "access_token"
    REFRESH = "refresh_token"


class GenerationKey(Concealed):
    """The open data key of one generation, and the id of the key that wraps it."""

    __slots__ = ("_key", "_place", "key_id")

    def __init__(self, key: DataKey, key_id: str, place: tuple[OrgId, UUID, UUID]) -> None:
        self._key = key
        self._place = place
        self.key_id = key_id

    @classmethod
    def made(
        cls, ring: KeyRing, org: OrgId, binding: UUID, generation: UUID
    ) -> tuple["GenerationKey", bytes]:
        """A new data key of the generation, and its wrapped form."""
        key, wrapped, key_id = ring.new_key("generation", org, binding, generation)
        return cls(key, key_id, (org, binding, generation)), wrapped

    @classmethod
    def opened(  # noqa: PLR0917  # the columns of one row, and whose they are
        cls, ring: KeyRing, wrapped: bytes, key_id: str, org: OrgId, binding: UUID, generation: UUID
    ) -> "GenerationKey":
        """
        The data key in a generation's row.

        Raises:
            ConfigurationRefused: The key ring is not the one that it was wrapped with.
        """
        key = ring.unwrap(wrapped, key_id, "generation", org, binding, generation)
        return cls(key, key_id, (org, binding, generation))

    def seal(self, field: TokenField, version: int, token: Secret) -> bytes:
        """The token, sealed as `field` of this `version` under this wrapping key."""
        place = (field, *self._place, version, self.key_id)
        return self._key.seal(token.reveal().encode(), *place)

    def open(self, field: TokenField, version: int, sealed: bytes) -> Secret:
        """
        The token that was sealed as `field` of this `version`.

        Raises:
            cryptography.exceptions.InvalidTag: It is another row's, field's or key's.
        """
        place = (field, *self._place, version)
        try:
            opened = self._key.open(sealed, *place, self.key_id)
        except InvalidTag:
            # From before a place named the wrapping key there are first versions of access tokens,
            # until a rotation makes them anew.
            if version != 1 or field is not TokenField.ACCESS:
                raise
            opened = self._key.open(sealed, *place)
        return Secret(opened.decode())
