"""The handoff key: one text for each key, one key for each text, and no other text at all."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncefence.domain.errors import HandoffKeyMalformed
from oncefence.domain.handoff import (
    LENGTH_MAX,
    EffectHandoffKey,
    TrustedRuntimeWorkScope,
    is_payload_digest,
    payload_digest,
)
from oncefence.domain.ids import CapabilityId, InstallationId, OrgId, OutboxId, WorkBindingDigest

NAMES = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,62}", fullmatch=True)
DIGESTS = st.text("0123456789abcdef", min_size=64, max_size=64)
LOCALS = st.from_regex(r"[A-Za-z0-9_-]{1,128}", fullmatch=True)
DIGEST = "0123456789abcdef" * 4
CANONICAL = f"ehk1.acme.crm.outbox.{DIGEST}.42"


def scope(
    org: str = "acme",
    installation: str = "crm",
    capability: str = "outbox",
    digest: str = DIGEST,
) -> TrustedRuntimeWorkScope:
    return TrustedRuntimeWorkScope(
        org=OrgId(org),
        installation=InstallationId(installation),
        capability=CapabilityId(capability),
        work_binding_digest=WorkBindingDigest(digest),
    )


KEYS = st.builds(
    lambda org, installation, capability, digest, local: EffectHandoffKey(
        scope=scope(org, installation, capability, digest), local=local
    ),
    NAMES,
    NAMES,
    NAMES,
    DIGESTS,
    LOCALS,
)


class TestParseAndPrint:
    @given(KEYS)
    def test_are_inverse_for_every_key(self, key: EffectHandoffKey) -> None:
        """A key that read back as another would admit one effect twice (C121)."""
        assert EffectHandoffKey.parse(str(key)) == key

    @given(KEYS)
    def test_give_short_ascii(self, key: EffectHandoffKey) -> None:
        """The longest key fits where keys are kept."""
        text = str(key)

        assert text.isascii()
        assert len(text) <= LENGTH_MAX

    @given(st.one_of(st.text(), st.text(f"{string.ascii_lowercase}0123456789._-", max_size=600)))
    def test_are_total_for_every_text(self, text: str) -> None:
        """A text is the print of exactly one key, or it is refused; nothing is mended."""
        try:
            key = EffectHandoffKey.parse(text)
        except HandoffKeyMalformed:
            return

        assert str(key) == text

    @given(KEYS, st.data())
    def test_refuse_what_one_foreign_character_makes_of_a_key(
        self, key: EffectHandoffKey, data: st.DataObject
    ) -> None:
        """A key that is almost canonical is not canonical."""
        text = str(key)
        at = data.draw(st.integers(0, len(text)))
        foreign = data.draw(st.sampled_from(" \n\t\x00.:/é\u0660\uff21"))

        with pytest.raises(HandoffKeyMalformed):
            EffectHandoffKey.parse(text[:at] + foreign + text[at:])

    @pytest.mark.parametrize(
        "text",
        [
            "",
            CANONICAL + "\n",
            " " + CANONICAL,
            CANONICAL.replace("ehk1", "ehk2"),
            CANONICAL.replace("ehk1", "EHK1"),
            CANONICAL.replace("acme", "Acme"),
            CANONICAL.replace("acme", "-acme"),
            CANONICAL.replace("acme", "_acme"),
            CANONICAL.replace("acme", ""),
            CANONICAL.replace("acme", "a" * 64),
            CANONICAL.replace("acme", "\u0430cme"),
            CANONICAL.replace(DIGEST, DIGEST.upper()),
            CANONICAL.replace(DIGEST, DIGEST[:-1]),
            CANONICAL.replace(DIGEST, DIGEST + "0"),
            CANONICAL.replace(".42", "."),
            CANONICAL.replace(".42", ""),
            CANONICAL + ".",
            CANONICAL + ".x",
            CANONICAL.replace(".42", "." + "4" * 129),
            CANONICAL.replace(".42", ".4 2"),
            CANONICAL.replace(".42", ".\u0664"),
            "ehk1" + "." * 600,
        ],
    )
    def test_refuse_every_other_spelling(self, text: str) -> None:
        """Two spellings of one key would be two admissions of one effect (C121)."""
        with pytest.raises(HandoffKeyMalformed) as refused:
            EffectHandoffKey.parse(text)

        assert str(refused.value).startswith("handoff key: ")
        assert text == "" or text not in str(refused.value)


class TestTheLocalPart:
    @given(LOCALS)
    def test_is_the_outbox_id_where_that_is_canonical(self, local: str) -> None:
        """A person who knows the outbox id can spell the key."""
        assert EffectHandoffKey.for_outbox(scope(), OutboxId(local)).local == local

    @given(st.text(min_size=1))
    def test_is_the_same_for_the_same_outbox_id(self, outbox: str) -> None:
        """A repeat of a handover must find its first admission, whatever ids look like."""
        first = EffectHandoffKey.for_outbox(scope(), OutboxId(outbox))
        again = EffectHandoffKey.for_outbox(scope(), OutboxId(outbox))

        assert first == again == EffectHandoffKey.parse(str(first))

    @given(st.lists(st.text(min_size=1, max_size=5), min_size=2, max_size=8, unique=True))
    def test_differs_for_different_outbox_ids(self, outboxes: list[str]) -> None:
        """Two entries of an outbox are two effects."""
        keys = {EffectHandoffKey.for_outbox(scope(), OutboxId(outbox)) for outbox in outboxes}

        assert len(keys) == len(outboxes)


class TestPayloadDigests:
    @given(st.binary())
    def test_are_lower_case_hex_of_the_exact_bytes(self, payload: bytes) -> None:
        """Equal bytes, equal digest, in the one form that is stored."""
        assert is_payload_digest(payload_digest(payload))

    @pytest.mark.parametrize("text", ["", DIGEST.upper(), DIGEST + "\n", DIGEST[1:], "g" * 64])
    def test_have_no_other_form(self, text: str) -> None:
        """A digest in another spelling would miss the staged bytes."""
        assert not is_payload_digest(text)
