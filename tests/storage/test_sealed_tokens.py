"""A token opens for its generation, version, field and wrapping key, and for no other (C296)."""

from uuid import UUID

import pytest
from cryptography.exceptions import InvalidTag

from oncefence.domain.ids import OrgId
from oncefence.domain.redaction import Secret
from oncefence.storage.sealed_tokens import GenerationKey, TokenField
from oncefence.storage.sealing import DataKey, KeyRing

PLACE = (OrgId("acme"), UUID(int=1), UUID(int=2))
TOKEN = Secret("token")
ACCESS, REFRESH = TokenField.ACCESS, TokenField.REFRESH


def key(
    key_id: str = "one", place: tuple[OrgId, UUID, UUID] = PLACE, byte: bytes = b"k"
) -> GenerationKey:
    return GenerationKey(DataKey(byte * 32), key_id, place)


class TestAToken:
    @pytest.mark.parametrize(
        "other",
        [
            key("two"),
            key(place=(OrgId("other"), *PLACE[1:])),
            key(place=(PLACE[0], UUID(int=9), PLACE[2])),
            key(place=(*PLACE[:2], UUID(int=9))),
            key(byte=b"o"),
        ],
        ids=["wrapping key", "org", "binding", "generation", "data key"],
    )
    def test_opens_in_its_own_row_alone(self, other: GenerationKey) -> None:
        """The same data key under another wrapping key opens nothing that was sealed before."""
        for field in TokenField:
            sealed = key().seal(field, 2, TOKEN)

            assert key().open(field, 2, sealed) == TOKEN
            with pytest.raises(InvalidTag):
                other.open(field, 2, sealed)

    @pytest.mark.parametrize(("field", "version"), [(ACCESS, 3), (ACCESS, 1), (REFRESH, 2)])
    def test_opens_as_its_own_version_and_field_alone(
        self, field: TokenField, version: int
    ) -> None:
        """A spent refresh token must not come back as a new one, or as an access token."""
        sealed = key().seal(ACCESS, 2, TOKEN)

        with pytest.raises(InvalidTag):
            key().open(field, version, sealed)


class TestATokenOfBefore:
    """Up to schema version 0003 a token's place did not name the wrapping key."""

    def sealed(self, field: TokenField, version: int) -> bytes:
        return DataKey(b"k" * 32).seal(TOKEN.reveal().encode(), field, *PLACE, version)

    def test_is_opened_until_it_is_wrapped_anew(self) -> None:
        """What was connected before an upgrade goes on to work after it."""
        assert key().open(ACCESS, 1, self.sealed(ACCESS, 1)) == TOKEN

    @pytest.mark.parametrize(("field", "version"), [(ACCESS, 2), (REFRESH, 1), (REFRESH, 2)])
    def test_is_a_first_access_token_and_nothing_else(
        self, field: TokenField, version: int
    ) -> None:
        """There were no others, so anything else in that form is not ours."""
        with pytest.raises(InvalidTag):
            key().open(field, version, self.sealed(field, version))


def test_a_new_key_of_a_generation_is_its_own() -> None:
    """Made by the ring, and opened from the row by the same ring alone."""
    ring = KeyRing({"one": b"1" * 32})
    made, wrapped = GenerationKey.made(ring, *PLACE)
    sealed = made.seal(REFRESH, 7, TOKEN)

    opened = GenerationKey.opened(ring, wrapped, made.key_id, *PLACE)

    assert opened.open(REFRESH, 7, sealed) == TOKEN
    assert GenerationKey.made(ring, *PLACE)[1] != wrapped
