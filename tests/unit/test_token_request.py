"""Calls for a token: what is sent, and what is read in the reply."""

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from hypothesis import given
from hypothesis import strategies as st

from oncefence.activities.app_assertion import signed_assertion
from oncefence.activities.phase_journal import PhaseJournal
from oncefence.activities.token_request import (
    classify_reply,
    mint_request,
    read_reply,
    refresh_request,
)
from oncefence.activities.wire_message import WireAnswer
from oncefence.catalog.grants import Assertion
from oncefence.catalog.loader import load_pack
from oncefence.domain.classification import SendFault, WirePhase
from oncefence.domain.effect import Outcome
from oncefence.domain.errors import ConfigurationRefused
from oncefence.domain.redaction import Secret
from tests.support.oauth_server import CLUBS

PACK = load_pack(CLUBS)
ROTATING, STATIC, MINT = (PACK.grants[name] for name in ("app", "steady", "install"))
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
AT = datetime(2026, 1, 1, tzinfo=UTC)
NO_PASSPHRASE = NoEncryption()


def pem(
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey,
    encryption: KeySerializationEncryption = NO_PASSPHRASE,
) -> Secret:
    return Secret(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode())


def parts_of(word: Secret) -> tuple[Mapping[str, object], Mapping[str, object], str, bytes]:
    header, claims, signature = word.reveal().split(".")
    read = [json.loads(_decoded(part)) for part in (header, claims)]
    return read[0], read[1], f"{header}.{claims}", _decoded(signature)


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def an_answer(
    status: int,
    body: bytes = b"{}",
    *,
    fault: SendFault | None = None,
    phase: WirePhase = WirePhase.COMPLETE,
) -> WireAnswer:
    return WireAnswer(
        phase=phase,
        journal=PhaseJournal(),
        status=status,
        headers={},
        body=body,
        complete=fault is None and phase is WirePhase.COMPLETE,
        fault=fault,
    )


class TestTheAppsWord:
    ASSERTION = Assertion(
        algorithm="RS256", issuer="{app}", claims={"sub": "of-{installation}"}, lifetime_s=3600
    )

    def test_is_signed_by_the_apps_own_key(self) -> None:
        """The provider checks it with the public half, and believes nobody else."""
        word = signed_assertion(self.ASSERTION, pem(KEY), app="app-1", installation="i7", at=AT)
        header, _, signed, signature = parts_of(word)

        KEY.public_key().verify(signature, signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        with pytest.raises(InvalidSignature):
            KEY.public_key().verify(signature, b"other", padding.PKCS1v15(), hashes.SHA256())
        assert header == {"alg": "RS256", "typ": "JWT"}

    def test_says_who_it_is_and_from_when_to_when(self) -> None:
        """Backdated by half a minute, since clocks differ; no longer than the pack allows."""
        word = signed_assertion(self.ASSERTION, pem(KEY), app="app-1", installation="i7", at=AT)
        _, claims, _, _ = parts_of(word)

        issued = int(AT.timestamp()) - 30
        assert claims == {"iss": "app-1", "iat": issued, "exp": issued + 3600, "sub": "of-i7"}

    def test_of_a_short_life_is_not_backdated_to_its_end(self) -> None:
        """Half a minute of half a minute would leave nothing."""
        short = Assertion(algorithm="RS256", lifetime_s=30)
        _, claims, _, _ = parts_of(
            signed_assertion(short, pem(KEY), app="a", installation="i", at=AT)
        )

        assert claims["iat"] == int(AT.timestamp()) - 3

    @pytest.mark.parametrize(
        "key",
        [
            Secret("not a key"),
            pem(ec.generate_private_key(ec.SECP256R1())),
            pem(rsa.generate_private_key(public_exponent=65537, key_size=1024)),
            pem(KEY, BestAvailableEncryption(b"passphrase")),
        ],
        ids=["text", "another kind", "too short", "with a passphrase"],
    )
    def test_needs_a_key_that_can_sign_it(self, key: Secret) -> None:
        """The message says what to do, and shows nothing of what was given."""
        with pytest.raises(ConfigurationRefused) as refused:
            signed_assertion(self.ASSERTION, key, app="a", installation="i", at=AT)

        assert "openssl genrsa" in str(refused.value)
        assert key.reveal()[:20] not in str(refused.value)


class TestWhatIsSent:
    def test_is_a_form_with_the_client_in_it(self) -> None:
        """As RFC 6749 has it, with every sign of a secret escaped."""
        assert ROTATING.oauth2 is not None
        request = refresh_request(
            ROTATING.oauth2,
            Secret("R0+/="),
            base_url="https://account.example",
            is_local=False,
            client_id="client",
            client_secret=Secret("s&s"),
        )

        assert (request.base_url, request.target) == ("https://api.clubs.example", "/oauth/token")
        assert request.body == (
            b"grant_type=refresh_token&refresh_token=R0%2B%2F%3D&client_id=client"
            b"&client_secret=s%26s"
        )
        assert request.authorization is None
        assert "s&s" not in repr(request)

    def test_has_the_client_in_a_header_where_the_pack_says_so(self) -> None:
        """And then not in the body, where some endpoints refuse it."""
        assert STATIC.oauth2 is not None
        request = refresh_request(
            STATIC.oauth2,
            Secret("R0"),
            base_url="https://account.example",
            is_local=False,
            client_id="cli:ent",
            client_secret=Secret("secret"),
        )

        assert request.authorization is not None
        encoded = request.authorization.reveal().removeprefix("Basic ")
        assert base64.b64decode(encoded) == b"cli%3Aent:secret"
        assert request.body == b"grant_type=refresh_token&refresh_token=R0"

    def test_goes_to_a_local_bindings_own_host(self) -> None:
        """A stand-in must never leak a secret to the provider that a pack names."""
        assert MINT.mint is not None
        request = mint_request(
            MINT.mint,
            pem(KEY),
            base_url="http://127.0.0.1:1",
            is_local=True,
            app="app-1",
            installation="a/b?c",
            at=AT,
        )

        assert request.base_url == "http://127.0.0.1:1"
        assert request.target == "/api/installs/a%2Fb%3Fc/token"
        assert request.body is None


class TestWhatIsRead:
    @pytest.mark.parametrize(
        ("status", "fault", "outcome"),
        [
            (400, None, Outcome.REJECTED),
            (401, None, Outcome.REJECTED),
            (418, None, Outcome.REJECTED),
            (429, None, Outcome.REPLAY_SAFE_RETRY),
            (503, None, Outcome.REPLAY_SAFE_RETRY),
            (500, None, Outcome.OUTCOME_UNKNOWN),
            (502, None, Outcome.OUTCOME_UNKNOWN),
            (204, None, Outcome.OUTCOME_UNKNOWN),
            (200, None, Outcome.OUTCOME_UNKNOWN),
            (302, None, Outcome.OUTCOME_UNKNOWN),
            (308, None, Outcome.REJECTED),
            (400, SendFault.LOST, Outcome.OUTCOME_UNKNOWN),
        ],
    )
    def test_is_an_answer_only_where_nothing_can_have_changed(
        self, status: int, fault: SendFault | None, outcome: Outcome
    ) -> None:
        """A complete 4xx, a 429, and the 5xx that the pack declares; nothing else (C289)."""
        assert ROTATING.oauth2 is not None
        phase = WirePhase.COMPLETE if fault is None else WirePhase.FIRST_BYTE_IN
        answer = an_answer(status, fault=fault, phase=phase)

        found = classify_reply(ROTATING.oauth2, answer, read_reply(ROTATING, answer))

        assert found.outcome is outcome

    @given(st.binary(max_size=200), st.integers(100, 599))
    def test_never_breaks_the_reader(self, body: bytes, status: int) -> None:
        """Whatever comes, it is read as something, and no text of it is a token by accident."""
        for grant in (ROTATING, STATIC, MINT):
            flow = grant.oauth2 or grant.mint
            assert flow is not None
            answer = an_answer(status, body)
            reading = read_reply(grant, answer)
            assert reading.access is None or reading.access.reveal().isascii()
            classify_reply(flow, answer, reading)

    @pytest.mark.parametrize(
        "access", ['"with a blank"', '"line\\nbreak"', '"\\u00e4"', '""', "7", "null", '["A1"]']
    )
    def test_holds_no_token_that_could_not_go_into_a_header(self, access: str) -> None:
        """It would be refused at each send, or do worse there."""
        reading = read_reply(ROTATING, an_answer(200, f'{{"access_token": {access}}}'.encode()))

        assert reading.access is None

    def test_of_one_name_twice_is_no_reply(self) -> None:
        """Which of the two is meant is nobody's to guess."""
        reading = read_reply(ROTATING, an_answer(200, b'{"access_token":"A","access_token":"B"}'))

        assert reading.access is None

    @pytest.mark.parametrize(
        ("named", "base_url", "is_refused"),
        [
            ('"https://eu.clubs.example/v1"', "https://eu.clubs.example", False),
            ('"https://evil.example/v1"', None, True),
            ('"http://eu.clubs.example/v1"', None, True),
            ('"https://eu.clubs.example:8443/v1"', None, True),
            ('"https://eu.clubs.example/other"', None, True),
            ("7", None, True),
            ("null", None, False),
        ],
    )
    def test_names_a_host_only_of_the_packs_list(
        self, named: str, base_url: str | None, is_refused: bool
    ) -> None:
        """A reply that could send a token anywhere would be a way to steal it."""
        body = f'{{"data": {{"token": "A1", "club": "c", "api": {named}}}}}'.encode()

        reading = read_reply(MINT, an_answer(200, body))

        assert (reading.base_url, reading.is_host_refused) == (base_url, is_refused)

    def test_hides_its_tokens(self) -> None:
        """Whoever prints a reading must print no token."""
        body = b'{"access_token": "A-secret", "refresh_token": "R-secret"}'
        reading = read_reply(ROTATING, an_answer(200, body))

        assert "secret" not in repr(reading)
        assert (reading.lifetime_s, reading.account) == (1800, None)
