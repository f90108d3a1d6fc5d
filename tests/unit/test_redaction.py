"""Secrets can be used and not be seen."""

import copy
import json
import logging
import pickle
from dataclasses import asdict, dataclass

import pytest

from oncefence.domain.redaction import Secret

CANARY = "canary-7f3a"


@dataclass(frozen=True)
class Holder:
    token: Secret


class TestSecret:
    def test_is_revealed_only_on_request(self) -> None:
        """The one way to the value is the word that a search finds (C444)."""
        assert Secret(CANARY).reveal() == CANARY

    @pytest.mark.parametrize(
        "shown",
        [
            repr(Secret(CANARY)),
            str(Secret(CANARY)),
            f"{Secret(CANARY)}",
            f"{Secret(CANARY)!r:>40}",
            f"{Secret(CANARY)!s} {Secret(CANARY)!r}",
            repr(Holder(Secret(CANARY))),
            repr(asdict(Holder(Secret(CANARY)))),
            repr([copy.deepcopy(Secret(CANARY)), copy.copy(Secret(CANARY))]),
            str(ValueError(Secret(CANARY))),
            json.dumps(Secret(CANARY), default=str),
        ],
    )
    def test_shows_a_placeholder_in_every_form_of_text(self, shown: str) -> None:
        """No format, container, copy or error prints the value (C444)."""
        assert CANARY not in shown
        assert "Secret(***)" in shown

    def test_shows_a_placeholder_in_a_log(self, caplog: pytest.LogCaptureFixture) -> None:
        """A secret that is logged by mistake is still hidden."""
        logging.getLogger("test").warning("token %s", Secret(CANARY))

        assert CANARY not in caplog.text
        assert "Secret(***)" in caplog.text

    def test_cannot_be_pickled(self) -> None:
        """Pickling would carry the value out of the process in clear (C9)."""
        with pytest.raises(TypeError, match="not pickled"):
            pickle.dumps(Secret(CANARY))

    def test_cannot_become_json(self) -> None:
        """Neither would JSON."""
        with pytest.raises(TypeError):
            json.dumps(Secret(CANARY))

    def test_cannot_be_hashed_or_changed(self) -> None:
        """A hash of a short secret is a way to guess it; a changed one is another's."""
        secret = Secret(CANARY)

        with pytest.raises(TypeError):
            hash(secret)
        with pytest.raises(AttributeError):
            secret._value = "other"
        assert secret.reveal() == CANARY

    def test_equals_a_secret_of_the_same_value_and_nothing_else(self) -> None:
        """Comparing with a text would invite the text into the code."""
        assert Secret(CANARY) == Secret(CANARY)
        assert Secret(CANARY) != Secret("other")
        assert Secret(CANARY) != CANARY

    def test_is_never_empty(self) -> None:
        """A missing token must fail here and not as a 401."""
        with pytest.raises(ValueError, match="empty"):
            Secret("")
