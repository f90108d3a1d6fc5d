"""What a Runtime signs for the Temporal door, and what is refused before Temporal sees it."""

from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from oncefence.domain.errors import HandoffKeyMalformed
from oncefence.domain.handoff import EffectHandoffKey
from oncefence.domain.ids import OutboxId, PayloadDigest
from oncefence.domain.signature import (
    HandoffClaim,
    HandoffMessageMalformed,
    HandoffVerb,
    read_claim,
    read_signature,
)
from tests.support.world import scope_of

DIGEST = PayloadDigest("0a" * 32)
KEY = EffectHandoffKey.for_outbox(scope_of("acme"), OutboxId("outbox-17"))
ACCEPT = HandoffClaim(
    verb=HandoffVerb.ACCEPT,
    key=KEY,
    digest=DIGEST,
    outbox=OutboxId("outbox-17"),
    operation="lead.title.push",
    subject="lead-1",
)
REJECT = replace(ACCEPT, verb=HandoffVerb.REJECT_IF_UNACCEPTED, operation=None, subject=None)
MEMBERS = {
    "handoff_key": str(KEY),
    "payload_digest": DIGEST,
    "outbox_id": "outbox-17",
    "operation": "lead.title.push",
    "subject": "lead-1",
}

VECTOR = (
    "2def2c9fc6238fe9dc655296f2378dfbbd934cd31a378176e7a4e13c43ba0d32"
    "49ff34aa872bf83553d2e4a01282d83e2d74c67ae119ba4fe1c6e680e30b3b0f"
)

# Parts that are full of what separates parts.
parts = st.text(alphabet="0123456789:,a", min_size=1, max_size=6)


def test_the_signed_text_is_spelt_as_documented() -> None:
    """A Runtime in another language writes these very bytes, so they can never change (C137)."""
    assert ACCEPT.signed_text() == (
        b"20:oncefence.handoff.v1,6:accept,"
        b"95:ehk1.acme.crm.outbox." + b"ab" * 32 + b".outbox-17,"
        b"64:" + b"ab" * 32 + b",64:" + b"0a" * 32 + b","
        b"9:outbox-17,15:lead.title.push,6:lead-1,"
    )
    assert REJECT.signed_text() == (
        b"20:oncefence.handoff.v1,20:reject_if_unaccepted,"
        b"95:ehk1.acme.crm.outbox." + b"ab" * 32 + b".outbox-17,"
        b"64:" + b"ab" * 32 + b",64:" + b"0a" * 32 + b",9:outbox-17,"
    )


def test_a_signature_of_a_known_key_is_known() -> None:
    """A vector to hold another implementation against: Ed25519 draws nothing at random."""
    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))

    assert key.sign(ACCEPT.signed_text()).hex() == VECTOR


@pytest.mark.parametrize(
    "other",
    [
        replace(ACCEPT, key=EffectHandoffKey.for_outbox(scope_of("acme"), OutboxId("outbox-18"))),
        replace(ACCEPT, key=EffectHandoffKey.for_outbox(scope_of("other"), OutboxId("outbox-17"))),
        replace(ACCEPT, digest=PayloadDigest("0b" * 32)),
        replace(ACCEPT, outbox=OutboxId("outbox-18")),
        replace(ACCEPT, operation="lead.title.push.long"),
        replace(ACCEPT, subject="lead-2"),
        replace(ACCEPT, verb=HandoffVerb.REJECT_IF_UNACCEPTED),
        REJECT,
    ],
)
def test_the_signature_covers_every_part(other: HandoffClaim) -> None:
    """A part outside the signature is a part that anybody on the way may change (C137)."""
    assert other.signed_text() != ACCEPT.signed_text()


@given(parts, parts, parts, parts)
def test_no_two_claims_share_a_text(
    outbox: str, subject: str, other_outbox: str, other_subject: str
) -> None:
    """Parts that could run into each other would let one signature stand for two handoffs."""
    one = replace(ACCEPT, outbox=OutboxId(outbox), subject=subject)
    other = replace(ACCEPT, outbox=OutboxId(other_outbox), subject=other_subject)

    assert (one.signed_text() == other.signed_text()) == (one == other)


def test_a_message_is_read_as_the_claim_that_was_signed() -> None:
    """What is verified is what is then accepted."""
    assert read_claim(HandoffVerb.ACCEPT, **MEMBERS) == ACCEPT


@pytest.mark.parametrize("member", ["outbox_id", "subject"])
@pytest.mark.parametrize(
    "value",
    [
        "jane@example.com",
        "Jane Doe",
        "Jäne",
        "lead-1\n",
        "jane%40example.com",
        "\ud800",
        "",
        "x" * 257,
    ],
)
def test_what_may_be_about_a_person_is_refused_unrepeated(member: str, value: str) -> None:
    """Temporal keeps and shows what it carries, so only identifiers get there (C380, C12)."""
    with pytest.raises(HandoffMessageMalformed) as caught:
        read_claim(HandoffVerb.ACCEPT, **MEMBERS | {member: value})

    assert caught.value.member == member
    assert "through HTTP" in str(caught.value)
    assert not value or value not in str(caught.value)


@pytest.mark.parametrize("value", ["outbox-17", "urn:lead:17", "crm/leads/17", "a=1~2+3", "0"])
def test_identifiers_of_many_forms_may_travel(value: str) -> None:
    """URNs, paths and numbers are what outboxes hold."""
    claim = read_claim(HandoffVerb.ACCEPT, **MEMBERS | {"outbox_id": value, "subject": value})

    assert (claim.outbox, claim.subject) == (value, value)


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("payload_digest", "0A" * 32),
        ("payload_digest", '{"title": "Director"}'),
        ("operation", "Lead Title"),
        ("operation", None),
        ("subject", None),
    ],
)
def test_a_member_of_another_form_is_named(member: str, value: str | None) -> None:
    """One message names the member and what it must be (C12)."""
    with pytest.raises(HandoffMessageMalformed) as caught:
        read_claim(HandoffVerb.ACCEPT, **MEMBERS | {member: value})

    assert str(caught.value).startswith(member)


def test_a_key_of_another_form_is_refused_as_at_every_door() -> None:
    """Any other spelling of a key is none (C121)."""
    with pytest.raises(HandoffKeyMalformed):
        read_claim(HandoffVerb.ACCEPT, **MEMBERS | {"handoff_key": f"{KEY} "})


@pytest.mark.parametrize("text", ["", "ab" * 63, "AB" * 64, "ab" * 65, "zz" * 64, "ab" * 64 + "\n"])
def test_a_signature_has_one_spelling(text: str) -> None:
    """A second spelling of one signature would be a second message."""
    with pytest.raises(HandoffMessageMalformed, match="128 lower-case hex digits"):
        read_signature(text)
    assert read_signature("ab" * 64) == b"\xab" * 64
