"""Secrets can be used and not be seen."""

import copy
import io
import json
import logging
import pickle
import pprint
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from uuid import UUID

import pytest
import structlog
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError
from rich.console import Console
from rich.traceback import Traceback
from temporalio.contrib.pydantic import pydantic_data_converter

from oncefence.app.logs import configure_logs
from oncefence.domain.ids import OrgId
from oncefence.domain.redaction import Concealed, Secret
from oncefence.storage.key_wrapping import LocalKeys
from oncefence.storage.sealed_tokens import GenerationKey
from oncefence.storage.sealing import DataKey, KeyRing

CANARY = "canary-7f3a"
# As a repr would show them.
KEY = b"canary-7f3a-of-thirty-two-bytes!"
KEY_FORMS = ("canary", KEY.hex(), str(list(KEY))[1:30])


@dataclass(frozen=True)
class Holder:
    token: Secret


class Model(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True, frozen=True)

    token: Secret
    number: int = 1


CONCEALED = (
    Secret(CANARY),
    DataKey(KEY),
    LocalKeys({"one": KEY}),
    GenerationKey(DataKey(KEY), "one", (OrgId("acme"), UUID(int=1), UUID(int=2))),
)


def failed_with(secret: object) -> BaseException:
    """An error from a frame that has the secret among its variables, and in its words."""
    try:
        refuse({"token": secret})
    except RuntimeError as error:
        return error
    raise AssertionError("it was refused")


def refuse(holding: dict[str, object]) -> None:
    secret = holding["token"]
    raise RuntimeError(f"refused: {secret}", secret)


def shown_forms(secret: object) -> Iterator[str]:
    """Every way in which a library here would print what it is given."""
    yield from (repr(secret), str(secret), f"{secret}", f"{secret!r:>40}", f"{secret:<30}")
    yield from ("%s %r" % (secret, secret), "{0} {0!r} {0!s}".format(secret))  # noqa: UP031, UP032  # the older ways are what is tried
    yield from (repr([secret]), repr({"x": secret}), repr((secret,)), str(ValueError(secret)))
    yield pprint.pformat({"x": [secret]})
    yield repr([copy.copy(secret), copy.deepcopy(secret)])
    yield json.dumps(secret, default=str)
    yield json.dumps(secret, default=repr)
    error = failed_with(secret)
    yield "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
    console = Console(file=io.StringIO(), width=200)
    console.print(
        Traceback.from_exception(type(error), error, error.__traceback__, show_locals=True)
    )
    assert isinstance(console.file, io.StringIO)
    yield console.file.getvalue()
    for render in (
        structlog.processors.KeyValueRenderer(),
        structlog.processors.LogfmtRenderer(),
        structlog.processors.JSONRenderer(),
        structlog.dev.ConsoleRenderer(colors=False),
    ):
        yield str(render(None, "info", {"event": f"got {secret}", "token": secret}))
    entry = {"event": "x", "exc_info": (type(error), error, error.__traceback__)}
    yield str(structlog.processors.dict_tracebacks(None, "error", entry))


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

    def test_shows_a_placeholder_in_this_programs_logs(self) -> None:
        """Whoever logs it, and whether as a word, a field, an extra or an error's cause (C460)."""
        stream = io.StringIO()
        root = logging.getLogger()
        before = root.handlers[:], root.level
        try:
            configure_logs(stream=stream)
            secret = Secret(CANARY)
            for name in ("oncefence.x", "library", "temporalio.x"):
                logging.getLogger(name).error("token %s %r", secret, secret)
                logging.getLogger(name).error("x", extra={"reason": secret, "token": secret})
                logging.getLogger(name).error("x", exc_info=failed_with(secret))
            structlog.get_logger("oncefence.y").info("x", reason=secret, place=[secret])
        finally:
            root.handlers[:], root.level = before

        assert len(stream.getvalue().splitlines()) == 10
        assert CANARY not in stream.getvalue()

    def test_is_no_field_that_pydantic_writes_down(self) -> None:
        """A model that has one shows the placeholder, and is no JSON and no payload of Temporal."""
        model = Model(token=Secret(CANARY))

        assert "Secret(***)" in repr(model)
        assert CANARY not in f"{model!r}{model}{model.model_dump()}"
        for write in (
            model.model_dump_json,
            lambda: model.model_dump(mode="json"),
            lambda: TypeAdapter(dict[str, object]).dump_json({"x": model.token}),
        ):
            with pytest.raises(PydanticSerializationError) as unwritten:
                write()
            assert CANARY not in str(unwritten.value)
        with pytest.raises(ValidationError) as refused:
            Model.model_validate({"token": model.token, "number": Secret(CANARY)})
        assert CANARY not in f"{refused.value}{refused.value.errors()}"
        with pytest.raises(PydanticSerializationError):
            pydantic_data_converter.payload_converter.to_payloads([model])

    @pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
    def test_cannot_be_pickled(self, protocol: int) -> None:
        """Pickling would carry the value out of the process in clear (C9)."""
        for holder in (Secret(CANARY), Holder(Secret(CANARY)), [Secret(CANARY)]):
            with pytest.raises(TypeError, match="not pickled"):
                pickle.dumps(holder, protocol)

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


class TestWhateverIsConcealed:
    @pytest.mark.parametrize("secret", CONCEALED, ids=lambda each: type(each).__name__)
    def test_shows_its_name_and_nothing_else(self, secret: Concealed) -> None:
        """No library of ours prints a token or a key, whatever it does with variables (C444)."""
        forms = list(shown_forms(secret))

        assert len(forms) == 22
        assert all(f"{type(secret).__name__}(***)" in form for form in forms[:-1])
        assert not [form for form in forms for key in KEY_FORMS if key in form]

    @pytest.mark.parametrize("secret", CONCEALED, ids=lambda each: type(each).__name__)
    def test_leaves_no_copy_of_itself(self, secret: Concealed) -> None:
        """Neither for a file nor for another process, nor as a dict that is printed (C9)."""
        for leave in (
            pickle.dumps,
            secret.__getstate__,
            lambda: vars(secret),
            lambda: json.dumps(secret),
            lambda: hash(secret),
        ):
            with pytest.raises(TypeError) as refused:
                leave() if leave is not pickle.dumps else pickle.dumps(secret)
            assert CANARY not in str(refused.value)
        assert copy.copy(secret) is secret
        assert copy.deepcopy(secret) is secret

    def test_is_what_a_ring_is_made_of(self) -> None:
        """A ring that is printed or pickled by mistake takes no key along."""
        ring = KeyRing({"one": KEY})

        assert not [key for key in KEY_FORMS if key in f"{ring!r}{ring}{vars(ring)}"]
        with pytest.raises(TypeError, match="not pickled"):
            pickle.dumps(ring)
