"""
Logs: JSON, one object a line, on standard error, and only what a list allows (C460, C445).

A key that is not on the list is left out and named under `left_out`, so that a mistake shows and
a secret does not. What other libraries log is shown by place and error class; their words only
where they are known to hold identifiers and nothing else.
"""

import logging
import re
import sys
import traceback
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from types import TracebackType
from typing import Any, Final, TextIO
from uuid import UUID

import structlog
from structlog.typing import EventDict, WrappedLogger

ALLOWED: Final = frozenset(
    {
        # of every line
        "event",
        "level",
        "logger",
        "time",
        "place",
        "left_out",
        # errors, by class and by place; never by message
        "error",
        "at",
        "incident",
        # identifiers
        "org_id",
        "command_id",
        "execution_id",
        "work_id",
        "attempt_id",
        "view_id",
        "workflow_id",
        # classifications and counts
        "family",
        "operation",
        "provider",
        "status",
        "code",
        "verdict",
        "outcome",
        "reason",
        "failure_class",
        "ordinal",
        "count",
        "finished",
        "handed_back",
        "left",
        "seconds",
        # the process and its doors
        "method",
        "route",
        "listen",
        "task_queue",
        "time_scale",
        "setting",
    }
)

_OURS: Final = "oncefence"
# They name workflows, activities, ports and processes, and never what is worked on.
_KNOWN_WORDS: Final = ("temporalio", "uvicorn.error")
_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_TEXT_MAX: Final = 500
_FRAMES_MAX: Final = 8


def configure_logs(*, stream: TextIO | None = None, level: int = logging.INFO) -> None:
    """From here on everything that is logged in this process, by whomever, passes the list."""
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.ExtraAdder()],
            processors=[_say_who, _say_the_error, _keep_allowed, _as_json],
        )
    )
    # force: whatever a library set up before would print its own way.
    logging.basicConfig(handlers=[handler], level=level, force=True)
    for noisy in ("httpx", "httpcore", "sqlalchemy", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    structlog.configure(
        processors=[structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )


def _say_who(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    record: logging.LogRecord = event["_record"]
    event["level"] = record.levelname.lower()
    event["logger"] = record.name
    event["time"] = datetime.fromtimestamp(record.created).astimezone().isoformat()
    if not _is_of(record.name, (_OURS, *_KNOWN_WORDS)):
        event["event"] = "library"
        event["place"] = f"{record.module}:{record.lineno}"
    return event


def _say_the_error(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    record: logging.LogRecord = event["_record"]
    found = event.pop("exc_info", None) or record.exc_info
    error = _error_of(found)
    if error is not None:
        frames = traceback.extract_tb(error.__traceback__)[-_FRAMES_MAX:]
        event["error"] = type(error).__name__
        event["at"] = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    return event


def _error_of(
    found: bool
    | BaseException
    | tuple[type[BaseException], BaseException, TracebackType | None]
    | tuple[None, None, None]
    | None,
) -> BaseException | None:
    if isinstance(found, BaseException):
        return found
    if isinstance(found, tuple):
        return found[1]
    return sys.exc_info()[1] if found else None


def _keep_allowed(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    kept: dict[str, Any] = {}
    left_out = []
    for key, value in event.items():
        if key in ("_record", "_from_structlog"):
            continue
        if key in ALLOWED:
            kept[key] = _shown(value)
        else:
            left_out.append(key if _KEY.fullmatch(key) else "?")
    if left_out:
        kept["left_out"] = sorted(left_out)
    return kept


def _shown(value: object) -> object:
    """A scalar, or a list of them; anything else by its type, for it may hold anything."""
    if isinstance(value, Enum):
        return _shown(value.value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value if len(value) <= _TEXT_MAX else value[:_TEXT_MAX] + "..."
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return [_shown(each) for each in value]
    return f"({type(value).__name__})"


def _as_json(logger: WrappedLogger, name: str, event: Mapping[str, Any]) -> str:
    first = ("time", "level", "logger", "event")
    ordered = {key: event[key] for key in first if key in event} | dict(event)
    rendered = structlog.processors.JSONRenderer()(logger, name, ordered)
    return rendered if isinstance(rendered, str) else rendered.decode()


def _is_of(name: str, families: tuple[str, ...]) -> bool:
    return any(name == family or name.startswith(f"{family}.") for family in families)
