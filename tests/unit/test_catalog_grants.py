"""What a token's reply is believed, and what may be asked of a token endpoint twice (C288)."""

from pathlib import Path

import pytest

from oncefence.catalog.grants import LIFETIME_MAX_S, Grant, Rotation
from oncefence.catalog.hosts import BaseUrlRule
from oncefence.catalog.loader import load_pack

FULL = Path(__file__).parents[1] / "data/tables/full.toml"


class TestBaseUrl:
    RULE = BaseUrlRule(value="org.api", hosts=("*.full.example", "api.full.test"), path="/v1")

    @pytest.mark.parametrize(
        ("named", "base"),
        [
            ("https://eu.full.example/v1", "https://eu.full.example"),
            ("https://a.b.full.example/v1/", "https://a.b.full.example"),
            ("https://EU.Full.example/v1", "https://eu.full.example"),
            ("https://api.full.test/v1", "https://api.full.test"),
            ("http://eu.full.example/v1", None),
            ("https://full.example/v1", None),
            ("https://eu.full.example", None),
            ("https://eu.full.example/v2", None),
            ("https://eu.full.example/v1/../admin", None),
            ("https://eu.full.example:8443/v1", None),
            ("https://eu.full.example@evil.test/v1", None),
            ("https://u:p@eu.full.example/v1", None),
            ("https://evil.test/v1?x=.full.example", None),
            ("https://eu.full.example/v1?x=1", None),
            ("https://eu.full.example/v1#x", None),
            ("https://evilfull.example/v1", None),
            ("https://eu.full.example.evil.test/v1", None),
            ("https://evil.test\\.full.example/v1", None),
            ("https://ev il.full.example/v1", None),
            ("https://eu.full.example./v1", None),
            ("https://*.full.example/v1", None),
            ("https://[::1]/v1", None),
            ("https://[::1/v1", None),
            ("//eu.full.example/v1", None),
            ("\uff28TTPS://eu.full.example/v1", None),
            ("", None),
            (None, None),
            (7, None),
        ],
    )
    def test_of_a_reply_is_believed_on_the_list_alone(
        self, named: object, base: str | None
    ) -> None:
        """A reply that could name any host could have tokens sent anywhere (C242)."""
        assert self.RULE.read({"org": {"api": named}}) == base


class TestLifetime:
    @pytest.mark.parametrize(
        ("told", "seconds"),
        [
            (3600, 3600),
            ("3600", 3600),
            ("3600.0", 3600),
            (3599.9, 3599),
            (0, 0),
            (-5, 0),
            ("-5", 0),
            (None, 7200),
            ("abc", 7200),
            ("", 7200),
            ("1e3", 7200),
            (True, 7200),
            ([3600], 7200),
            (float("nan"), 7200),
            (1e308, LIFETIME_MAX_S),
            (float("inf"), LIFETIME_MAX_S),
            (10**30, LIFETIME_MAX_S),
        ],
    )
    def test_is_a_number_of_seconds_or_the_pack_s_own(self, told: object, seconds: int) -> None:
        """What a provider writes there makes no token permanent and no process fall."""
        assert load_pack(FULL).grants["person"].lifetime_s({"expires_in": told}) == seconds

    def test_is_the_pack_s_own_where_the_reply_is_of_another_shape(self) -> None:
        """A reply without the key is an ordinary one."""
        grants = load_pack(FULL).grants

        assert grants["person"].lifetime_s("no object") == 7200
        assert grants["app"].lifetime_s({"token": "x"}) == 3600


class TestRotation:
    def test_says_whether_a_lost_answer_may_be_asked_for_again(self) -> None:
        """A rotating refresh is used up by the first call; the others are not (C288)."""
        grants = load_pack(FULL).grants

        assert grants["person"].rotation is Rotation.GRACE
        assert grants["app"].rotation is Rotation.MINT
        assert Grant.model_validate_json('{"principal": ["user"], "bearer": {}}').rotation is (
            Rotation.STATIC
        )
        assert [one for one in Rotation if not one.may_be_repeated] == [Rotation.ROTATING]
