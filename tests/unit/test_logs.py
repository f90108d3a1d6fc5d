"""Logs hold what a list allows and nothing else."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
import structlog

from oncefence.app.logs import configure_logs

SECRET = "pat-very-secret"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    written = io.StringIO()
    configure_logs(stream=written)
    yield written
    root.handlers[:], root.level = handlers, level
    structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_each_line_is_one_json_object(stream: io.StringIO) -> None:
    """Both ways of logging that this code uses end in the same form (C460)."""
    work = UUID(int=7)
    logging.getLogger("oncefence.x").info("settled as %s", "lost", extra={"work_id": work})
    structlog.get_logger("oncefence.doors").warning("request_refused", code="scope", status=403)

    first, second = lines(stream)
    assert (first["event"], first["level"], first["work_id"]) == (
        "settled as lost",
        "info",
        str(work),
    )
    assert (second["event"], second["level"], second["code"], second["status"]) == (
        "request_refused",
        "warning",
        "scope",
        403,
    )
    assert {"time", "logger"} <= first.keys() & second.keys()


def test_what_is_not_on_the_list_is_named_and_left_out(stream: io.StringIO) -> None:
    """A new key is a decision; until then its value stays out (C445)."""
    structlog.get_logger("oncefence.doors").info("x", token=SECRET, status=200)
    logging.getLogger("oncefence.x").info("x", extra={"payload": SECRET})

    assert SECRET not in stream.getvalue()
    assert [line["left_out"] for line in lines(stream)] == [["token"], ["payload"]]


def test_a_value_that_is_no_scalar_is_shown_by_its_type(stream: io.StringIO) -> None:
    """A row or a response under an allowed key would carry everything with it."""
    structlog.get_logger("oncefence.doors").info("x", reason={"body": SECRET}, count=[1, b"x"])

    assert SECRET not in stream.getvalue()
    (line,) = lines(stream)
    assert (line["reason"], line["count"]) == ("(dict)", [1, "(bytes)"])


@pytest.mark.parametrize("name", ["oncefence.x", "temporalio.worker", "asyncpg"])
def test_an_error_is_told_by_class_and_place(stream: io.StringIO, name: str) -> None:
    """A driver's message holds the parameters of its statement."""
    try:
        int(SECRET)
    except ValueError:
        logging.getLogger(name).exception("failed")

    (line,) = lines(stream)
    assert SECRET not in stream.getvalue()
    assert line["error"] == "ValueError"
    assert "test_logs.py" in line["at"][-1]


def test_the_words_of_unknown_libraries_are_not_repeated(stream: io.StringIO) -> None:
    """They may hold an address with a password in it; the place is enough to find them."""
    logging.getLogger("somelibrary").warning("connecting to %s", SECRET)
    logging.getLogger("temporalio.worker").warning("Worker is shutting down")

    unknown, known = lines(stream)
    assert SECRET not in stream.getvalue()
    assert (unknown["event"], unknown["logger"]) == ("library", "somelibrary")
    assert unknown["place"].startswith("test_logs:")
    assert known["event"] == "Worker is shutting down"
