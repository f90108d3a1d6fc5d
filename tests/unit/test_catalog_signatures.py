"""The one verifier reads every dialect from its data, and is fooled in none of them (C321)."""

import base64
import hmac
import json
import tomllib
from collections import Counter
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncefence.catalog.signature_checks import signature_errors, signature_warnings
from oncefence.catalog.signatures import SignatureDialect, SignatureVerdict
from oncefence.domain.redaction import Secret

DATA = Path(__file__).parents[1] / "data/signatures"
VECTORS: list[dict[str, Any]] = [
    json.loads(line) for line in (DATA / "vectors.jsonl").read_text("utf-8").splitlines()
]


def dialect_of(table: object) -> SignatureDialect:
    """A dialect from what TOML gives, by the way that a pack takes."""
    return SignatureDialect.model_validate_json(json.dumps(table))


DIALECTS = {
    name: dialect_of(table)
    for name, table in tomllib.loads((DATA / "dialects.toml").read_text("utf-8")).items()
}
PLAIN = DIALECTS["outreach"]
LISTED = DIALECTS["stripe"]
TIMED = DIALECTS["hubspot_v3"]
NOW = datetime(2026, 1, 1, 0, 0, 30, tzinfo=UTC)
KEY = "test-secret-1"
BODY = b'{"data":{"id":"501"}}'
HEX = hmac.new(KEY.encode(), BODY, sha256).hexdigest()
HEADER = "Outreach-Webhook-Signature"


def read(
    dialect: SignatureDialect,
    headers: list[tuple[str, str]],
    *,
    body: bytes = BODY,
    secrets: tuple[str, ...] = (KEY,),
    now: datetime = NOW,
    url: str = "https://hooks.example/in",
) -> SignatureVerdict:
    """What the verifier says of one delivery."""
    return dialect.verify(
        method="POST",
        url=url,
        headers=headers,
        body=body,
        secrets=[Secret(secret) for secret in secrets],
        now=now,
    )


class TestVectors:
    @pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: str(vector["id"]))
    def test_are_told_apart_by_the_data_alone(self, vector: dict[str, Any]) -> None:
        """What the vendors publish is taken; what is wrong with it in any one way is not."""
        verdict = DIALECTS[vector["dialect"]].verify(
            method=vector["method"],
            url=vector.get("url", ""),
            headers=vector["headers"].items(),
            body=base64.b64decode(vector["body_base64"]),
            secrets=[Secret(vector["secret"])],
            now=datetime.fromtimestamp(vector["now_unix_s"], UTC),
        )

        assert (verdict is SignatureVerdict.VALID) == vector["valid"], verdict

    def test_cover_each_dialect_with_right_and_wrong_ones(self) -> None:
        """A dialect without a wrong vector is not tested, and lost vectors prove nothing."""
        counts = Counter((vector["dialect"], vector["valid"]) for vector in VECTORS)

        assert len(VECTORS) == 86
        assert {name for name, _ in counts} == set(DIALECTS)
        assert [name for name in DIALECTS if not counts[name, True]] == []
        assert [name for name in DIALECTS if not counts[name, False]] == []
        assert sum(vector["origin"] == "published" for vector in VECTORS) == 6


class TestSignature:
    @pytest.mark.parametrize(
        ("value", "verdict"),
        [
            (HEX, SignatureVerdict.VALID),
            (HEX.upper(), SignatureVerdict.VALID),
            (f"  {HEX} ", SignatureVerdict.VALID),
            (f"sha256={HEX}", SignatureVerdict.MALFORMED),
            (base64.b64encode(bytes.fromhex(HEX)).decode(), SignatureVerdict.MALFORMED),
            (f"{HEX}00", SignatureVerdict.MALFORMED),
            (f"{HEX[:32]} {HEX[32:]}", SignatureVerdict.MALFORMED),
            (f"{'0' * 64}, {HEX}", SignatureVerdict.MALFORMED),
            (HEX[:-2] + "zz", SignatureVerdict.MALFORMED),
            ("\u0661" * 64, SignatureVerdict.MALFORMED),
            ("0" * 64, SignatureVerdict.MISMATCH),
            (" ", SignatureVerdict.MISSING),
        ],
    )
    def test_is_taken_in_the_declared_form_alone(
        self, value: str, verdict: SignatureVerdict
    ) -> None:
        """Upper-case hex is the same number; another form is another dialect (C322)."""
        assert read(PLAIN, [(HEADER, value)]) is verdict

    def test_in_base64_has_one_spelling(self) -> None:
        """Bits that the padding drops must not make a second signature of the same bytes."""
        dialect = DIALECTS["shopify"]
        good = base64.b64encode(bytes.fromhex(HEX)).decode()
        twin = good[:-2] + chr(ord(good[-2]) + 1) + "="

        assert base64.b64decode(twin) == bytes.fromhex(HEX)
        assert read(dialect, [("x-shopify-hmac-sha256", good)]) is SignatureVerdict.VALID
        assert read(dialect, [("x-shopify-hmac-sha256", twin)]) is SignatureVerdict.MALFORMED

    @pytest.mark.parametrize("name", [HEADER, HEADER.lower(), HEADER.upper()])
    def test_is_found_in_any_case_of_the_header(self, name: str) -> None:
        """Names of headers have no case, and a proxy may change it."""
        assert read(PLAIN, [("Host", "x"), (name, HEX)]) is SignatureVerdict.VALID

    @pytest.mark.parametrize("second", [HEX, "0" * 64])
    @pytest.mark.parametrize("swapped", [False, True])
    def test_given_twice_is_refused_equal_or_not(self, second: str, swapped: bool) -> None:
        """A proxy may check the first and we the last (C322)."""
        headers = [(HEADER, HEX), (HEADER.lower(), second)]

        verdict = read(PLAIN, headers[::-1] if swapped else headers)

        assert verdict is SignatureVerdict.AMBIGUOUS

    def test_covers_the_bytes_and_not_what_they_mean(self) -> None:
        """Whoever parses and writes the body anew signs another text."""
        spaced = json.dumps(json.loads(BODY)).encode()

        assert json.loads(spaced) == json.loads(BODY)
        assert read(PLAIN, [(HEADER, HEX)], body=spaced) is SignatureVerdict.MISMATCH

    def test_of_any_listed_item_counts_if_its_label_does(self) -> None:
        """While a secret is exchanged the provider signs with both; old labels never count."""
        stamp = str(int(NOW.timestamp()))
        good = hmac.new(KEY.encode(), f"{stamp}.".encode() + BODY, sha256).hexdigest()

        for header, verdict in [
            (f"t={stamp}, v1={'0' * 64}, v1={good}", SignatureVerdict.VALID),
            (f"t={stamp},v0={good}", SignatureVerdict.MALFORMED),
            (f"t={stamp},v1={'0' * 64},v0={good}", SignatureVerdict.MISMATCH),
            (f"v1={good}", SignatureVerdict.MALFORMED),
            (f"t={stamp},t={stamp},v1={good}", SignatureVerdict.MALFORMED),
        ]:
            assert read(LISTED, [("Stripe-Signature", header)]) is verdict, header

    @given(st.sampled_from([PLAIN, LISTED, TIMED]), st.binary(max_size=64), st.data())
    def test_fails_by_one_bit_of_what_it_covers(
        self, dialect: SignatureDialect, body: bytes, data: st.DataObject
    ) -> None:
        """Whatever the bytes are, they are these bytes or others."""
        seconds = int(NOW.timestamp())
        stamp, text, header = {
            id(PLAIN): ("", body, "{}"),
            id(LISTED): (str(seconds), f"{seconds}.".encode() + body, f"t={seconds},v1={{}}"),
            id(TIMED): (
                f"{seconds}000",
                b"POSThttps://hooks.example/in" + body + f"{seconds}000".encode(),
                "{}",
            ),
        }[id(dialect)]
        made = hmac.new(KEY.encode(), text, sha256).digest()
        bit = data.draw(st.integers(0, 255))
        other = (int.from_bytes(made) ^ (1 << bit)).to_bytes(32)
        written = [
            base64.b64encode(one).decode() if dialect is TIMED else one.hex()
            for one in (made, other)
        ]

        verdicts = [
            read(
                dialect,
                [
                    (dialect.signature.header, header.format(one)),
                    ("X-HubSpot-Request-Timestamp", stamp),
                ],
                body=body,
            )
            for one in written
        ]

        assert verdicts == [SignatureVerdict.VALID, SignatureVerdict.MISMATCH]
        assert read(
            dialect,
            [
                (dialect.signature.header, header.format(written[0])),
                ("X-HubSpot-Request-Timestamp", stamp),
            ],
            body=body + b"\0",
        ) is (SignatureVerdict.MISMATCH)


class TestSecret:
    def test_of_either_side_of_an_exchange_is_taken(self) -> None:
        """Two are live while the provider changes over; a third is none of ours (C321)."""
        assert read(PLAIN, [(HEADER, HEX)], secrets=("new", KEY)) is SignatureVerdict.VALID
        assert read(PLAIN, [(HEADER, HEX)], secrets=(KEY, "new")) is SignatureVerdict.VALID
        assert read(PLAIN, [(HEADER, HEX)], secrets=("new",)) is SignatureVerdict.MISMATCH

    @pytest.mark.parametrize("blank", [" ", "   ", "\n", "\t\r\n"])
    def test_that_is_blank_verifies_nothing(self, blank: str) -> None:
        """Its key would be known to everybody, so anybody could sign."""
        made = hmac.new(blank.encode(), BODY, sha256).hexdigest()

        assert read(PLAIN, [(HEADER, made)], secrets=(blank,)) is SignatureVerdict.UNKEYED
        assert PLAIN.usable_key(Secret(blank)) is None

    def test_that_is_missing_verifies_nothing(self) -> None:
        """No secret is no reason to believe a delivery."""
        assert read(PLAIN, [(HEADER, HEX)], secrets=()) is SignatureVerdict.UNKEYED

    @pytest.mark.parametrize("text", ["whsec_", "whsec_!!", "d2hzZWM=", "whsec_abc"])
    def test_that_spells_no_key_is_told_before_it_is_needed(self, text: str) -> None:
        """A subscription with such a secret would refuse every delivery."""
        assert DIALECTS["standard_webhooks"].usable_key(Secret(text)) is None

    def test_is_in_no_verdict_and_in_no_message(self) -> None:
        """What a verifier says goes into logs."""
        verdicts = [read(PLAIN, [(HEADER, value)]) for value in (HEX, "0" * 64, "")]

        assert KEY not in repr(verdicts) + repr(PLAIN)


class TestTime:
    URL = "https://hooks.example.com/in?x=1"
    BODY = b'[{"eventId":1,"objectId":501}]'
    STAMP = "1767225600000"

    def at(self, now: datetime, stamp: str = STAMP, signed: str | None = None) -> SignatureVerdict:
        """The verdict on a delivery that was signed with the text `signed`."""
        text = f"POST{self.URL}".encode() + self.BODY + (signed or stamp).encode()
        made = base64.b64encode(hmac.new(KEY.encode(), text, sha256).digest()).decode()
        headers = [("X-HubSpot-Signature-v3", made), ("X-HubSpot-Request-Timestamp", stamp)]
        return read(TIMED, headers, body=self.BODY, now=now, url=self.URL)

    @pytest.mark.parametrize(
        ("ahead", "verdict"),
        [
            (timedelta(seconds=300), SignatureVerdict.VALID),
            (timedelta(seconds=300, microseconds=1), SignatureVerdict.STALE),
            (timedelta(seconds=-300), SignatureVerdict.VALID),
            (timedelta(seconds=-300, microseconds=-1), SignatureVerdict.FUTURE),
            (timedelta(days=-365 * 40), SignatureVerdict.FUTURE),
        ],
    )
    def test_is_near_to_ours_on_either_side(
        self, ahead: timedelta, verdict: SignatureVerdict
    ) -> None:
        """A recorded delivery grows old; one from the future would stay fresh for long."""
        assert self.at(datetime(2026, 1, 1, tzinfo=UTC) + ahead) is verdict

    @pytest.mark.parametrize(
        "stamp", ["1767225600000.0", "1767225600000x", "+1767225600000", "١٧٦٧٢٢٥٦٠٠", "NaN"]
    )
    def test_that_is_no_whole_number_is_refused_though_signed(self, stamp: str) -> None:
        """A verifier that skips the age of what it cannot read takes any replay."""
        assert self.at(NOW, stamp) is SignatureVerdict.MALFORMED

    def test_in_another_unit_is_far_away(self) -> None:
        """Seconds read as milliseconds are a day in 1970."""
        assert self.at(NOW, "1767225600") is SignatureVerdict.STALE
        assert self.at(NOW, "9" * 16) is SignatureVerdict.FUTURE

    def test_is_part_of_what_is_signed(self) -> None:
        """Otherwise a fresh time could be put on an old delivery."""
        verdict = self.at(NOW, self.STAMP, signed="1767225500000")

        assert verdict is SignatureVerdict.MISMATCH

    def test_of_ours_needs_its_zone(self) -> None:
        """A clock without a zone is off by hours, which no tolerance covers."""
        with pytest.raises(ValueError, match="time zone"):
            self.at(datetime(2026, 1, 1))  # noqa: DTZ001


class TestUrl:
    def test_has_the_listed_escapes_decoded_once(self) -> None:
        """A second decoding would make two URLs one."""
        escaped = "https://hooks.example/in?u=https%3A%2F%2fa.example%2Fx&y=a%20b&z=%253A"
        signed = "https://hooks.example/in?u=https://a.example/x&y=a%20b&z=%253A"
        stamp = str(int(NOW.timestamp() * 1000))
        text = f"POST{signed}".encode() + BODY + stamp.encode()
        made = base64.b64encode(hmac.new(KEY.encode(), text, sha256).digest()).decode()
        headers = [("X-HubSpot-Signature-v3", made), ("X-HubSpot-Request-Timestamp", stamp)]

        assert read(TIMED, headers, url=escaped) is SignatureVerdict.VALID
        assert read(TIMED, headers, url=escaped.replace("https", "http", 1)) is (
            SignatureVerdict.MISMATCH
        )


SOUND: dict[str, Any] = {
    "mac": "hmac-sha256",
    "text": "{timestamp}.{body}",
    "signature": {"header": "X-Sig", "encoding": "hex"},
    "timestamp": {"header": "X-Time", "unit": "s"},
}
MISTAKES: list[tuple[dict[str, Any], str, str]] = [
    ({"mac": "sha256"}, "text", "must use {secret} with mac sha256"),
    ({"text": "{secret}{timestamp}{body}"}, "text", "must use {secret} with mac sha256"),
    ({"text": "{body}"}, "text", "must use {timestamp} exactly where"),
    ({"timestamp": None}, "text", "must use {timestamp} exactly where"),
    ({"url_decoded": ":/"}, "url_decoded", "{url} is not in the text"),
    ({"key_prefix": "whsec_"}, "key_prefix", "base64 keys only"),
    ({"requires": {"x-sig": "v1"}}, "requires", "the signature's own header"),
    ({"text": "{header:X-Sig}{timestamp}{body}"}, "text", "the signature's own header"),
    ({"text": "{header:}{timestamp}{body}"}, "text", "names no header"),
    (
        {"signature": {"header": "X-Sig", "encoding": "hex", "item_prefix": "v1="}},
        "signature.item_prefix",
        "has no effect without separator",
    ),
    (
        {"signature": {"header": "X-Sig", "encoding": "hex", "separator": ",", "prefix": "a"}},
        "signature.prefix",
        "use item_prefix",
    ),
    (
        {"timestamp": {"header": "X-Time", "unit": "s", "separator": ","}},
        "timestamp.item_prefix",
        "is missing",
    ),
]


class TestCheck:
    @pytest.mark.parametrize(("change", "at", "reason"), MISTAKES)
    def test_names_what_does_not_fit_together(
        self, change: dict[str, Any], at: str, reason: str
    ) -> None:
        """A dialect that no delivery can satisfy, or that any can, must not be published."""
        found = list(signature_errors({"one": dialect_of({**SOUND, **change})}, {"one"}))

        assert [(key, reason in why) for key, why in found] == [(f"signatures.one.{at}", True)]

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"text": "{timestamp}"}, "must use {body} exactly once"),
            ({"text": "{body}{bodi}"}, "unknown variable {bodi}; known here: {body}, {method}"),
            ({"url_decoded": "::"}, "each once"),
            ({"url_decoded": "%"}, "never %"),
        ],
    )
    def test_refuses_a_text_that_cannot_be_meant(self, change: dict[str, str], reason: str) -> None:
        """A signature that does not cover the body is a signature of nothing."""
        with pytest.raises(ValueError, match=r"validation error") as refused:
            dialect_of({**SOUND, **change})

        assert reason in str(refused.value)

    def test_finds_nothing_in_the_nine(self) -> None:
        """What is sound must pass, or the checks would be switched off."""
        assert list(signature_errors(DIALECTS, set(DIALECTS))) == []

    def test_names_a_dialect_that_nobody_uses(self) -> None:
        """A dead table is a misspelt reference somewhere else."""
        assert list(signature_errors({"one": dialect_of(SOUND)}, set())) == [
            ("signatures.one", "no webhook uses it")
        ]

    def test_warns_of_a_plain_hash(self) -> None:
        """Whoever sees one delivery can make a longer one with a right hash."""
        weak = [key for key, _ in signature_warnings(DIALECTS)]

        assert weak == ["signatures.hubspot_v1.mac", "signatures.hubspot_v2.mac"]
