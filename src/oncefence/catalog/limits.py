"""What answers say about limits: how long to wait, which one was met, how much is left."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from oncefence.catalog.canonical import FrozenMap, Model
from oncefence.catalog.expressions import JmesPath, find
from oncefence.catalog.names import HeaderName
from oncefence.domain.backoff import RETRY_AFTER_UNREADABLE_SECONDS

NEXT_UTC_MIDNIGHT: Final = "next_utc_midnight"
_DAY_S: Final = 86_400
WINDOW_S_MAX: Final = 31 * _DAY_S

# Digits as the standard has them, and the fraction that some send. Python's own int() and
# float() would also take "+5", "1_0", "1e3" and "nan".
_SECONDS = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_WEEKDAY = re.compile(r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*")
_HTTP_DATE = re.compile(rf"{_WEEKDAY.pattern},? .{{15,40}}")
_ISO_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}.{0,24}")
_COUNT = re.compile(r"[0-9]{1,15}")
_LIMIT_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,64}")

# Whether a text can be read does not depend on when it is.
_SOME_TIME: Final = datetime(2000, 1, 1, tzinfo=UTC)

# More digits than a day has seconds, whatever they are; int() also refuses very long texts.
_DIGITS_MAX: Final = 12
# Nobody asks for a wait of thirty years: a number from here on is a point in time.
_EPOCH_FROM: Final = 1_000_000_000


class RetryAfterForm(StrEnum):
    """How a provider writes the time to wait."""

    SECONDS = "seconds"
    HTTP_DATE = "http_date"
    ISO = "iso"
    """ISO 8601 with its zone."""

    ISO_UTC = "iso_utc"
    """ISO 8601 whose missing zone means UTC."""

    EPOCH_S = "epoch_s"
    """Seconds since 1970; smaller numbers than 1,000,000,000 are not of this form."""


EVERY_FORM: Final = tuple(RetryAfterForm)
Forms = Annotated[tuple[RetryAfterForm, ...], Field(min_length=1)]


class RetryAfterRule(Model):
    """Where the time to wait stands, and in which forms it may be written."""

    header: HeaderName = "Retry-After"
    forms: Forms = (RetryAfterForm.SECONDS, RetryAfterForm.HTTP_DATE)

    def seconds(self, headers: Mapping[str, str], *, now: datetime) -> float | None:
        """The wait that `headers` (lower-case names) ask for; None if none of our forms."""
        return seconds_of(headers.get(self.header.lower()), self.forms, now=now)

    def wait_seconds(self, headers: Mapping[str, str], *, now: datetime) -> float | None:
        """
        How long to wait by `headers` (lower-case names); None where they do not say.

        The latest of several values, of which an unreadable one counts as half a minute (C250).
        """
        value = headers.get(self.header.lower())
        return None if value is None else max(self._wait(part, now) for part in _values(value))

    def _wait(self, text: str, now: datetime) -> float:
        declared = _seconds_of_one(text, self.forms, now)
        if declared is not None:
            return declared
        # A form that was not declared proves nothing, and yet nobody should come back before it.
        other = _seconds_of_one(text, EVERY_FORM, now)
        return max(RETRY_AFTER_UNREADABLE_SECONDS, other or 0.0)

    def is_readable(self, headers: Mapping[str, str]) -> bool:
        """Whether `headers` (lower-case names) name a time in one of our forms."""
        return self.seconds(headers, now=_SOME_TIME) is not None


def seconds_of(
    value: str | None, forms: tuple[RetryAfterForm, ...] = EVERY_FORM, *, now: datetime
) -> float | None:
    """
    The whole seconds from `now` that `value` asks for in one of `forms`, or None.

    Never raises for any text, and never rounds down. A point in time that is past gives less
    than nothing; who waits has its own least (C250).
    """
    if now.tzinfo is None:
        raise ValueError("now carries its zone")
    found = [_seconds_of_one(part, forms, now) for part in _values(value or "")]
    # The header came twice: the later of two promises keeps both.
    return None if None in found else max(part for part in found if part is not None)


def _values(text: str) -> list[str]:
    """The values of a header, of which several were joined by commas; a date has its own."""
    values: list[str] = []
    for part in text.split(","):
        if values and _WEEKDAY.fullmatch(values[-1]):
            values[-1] = f"{values[-1]},{part.rstrip()}"
        else:
            values.append(part.strip())
    return values


def _seconds_of_one(text: str, forms: tuple[RetryAfterForm, ...], now: datetime) -> float | None:
    if _SECONDS.fullmatch(text):
        return _number(text, forms, now)
    moment = _moment(text, forms)
    return None if moment is None else math.ceil((moment - now).total_seconds())


def _number(text: str, forms: tuple[RetryAfterForm, ...], now: datetime) -> float | None:
    whole = text.partition(".")[0].lstrip("0")
    seconds = math.ceil(float(text)) if len(whole) <= _DIGITS_MAX else 10**_DIGITS_MAX
    if seconds >= _EPOCH_FROM and RetryAfterForm.EPOCH_S in forms:
        return float(seconds) - math.floor(now.timestamp())
    return float(seconds) if RetryAfterForm.SECONDS in forms else None


def _moment(text: str, forms: tuple[RetryAfterForm, ...]) -> datetime | None:
    try:
        if _HTTP_DATE.fullmatch(text):
            if RetryAfterForm.HTTP_DATE not in forms:
                return None
            moment = parsedate_to_datetime(text)
        elif _ISO_TIME.fullmatch(text):
            moment = datetime.fromisoformat(text)
            form = RetryAfterForm.ISO if moment.tzinfo else RetryAfterForm.ISO_UTC
            if form not in forms and RetryAfterForm.ISO_UTC not in forms:
                return None
        else:
            return None
        # Astimezone may overflow near the ends of the calendar; that, too, is unreadable.
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError, TypeError, IndexError):
        return None


def _wait(value: object) -> object:
    is_seconds = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _DAY_S
    if value != NEXT_UTC_MIDNIGHT and not is_seconds:
        raise ValueError(f"must be seconds from 1 to {_DAY_S} or the text {NEXT_UTC_MIDNIGHT}")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedLimit:
    """A limit that an answer names."""

    name: str
    wait: int | str | None
    """Seconds, `next_utc_midnight`, or None for a limit that the pack does not know."""

    def seconds(self, *, now: datetime) -> float | None:
        """The wait from `now`; None where the pack does not know the limit."""
        if self.wait != NEXT_UTC_MIDNIGHT:
            return None if self.wait is None else float(self.wait)
        utc = now.astimezone(UTC)
        midnight = (utc + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
        return float(math.ceil((midnight - utc).total_seconds()))


class LimitNames(Model):
    """The limits that answers name, and how long each of them takes to open again."""

    value: JmesPath
    waits: FrozenMap[str, Annotated[object, AfterValidator(_wait)]] = Field(min_length=1)

    def read(self, document: object) -> NamedLimit | None:
        """The limit that `document` names; None where it names none."""
        name = find(self.value, document)
        if not isinstance(name, str) or not _LIMIT_NAME.fullmatch(name):
            return None
        wait = self.waits.get(name)
        return NamedLimit(name=name, wait=wait if isinstance(wait, int | str) else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateReading:
    """What an answer shows of one limit; what it does not show, or shows as garbage, is None."""

    limit: int | None
    remaining: int | None
    reset_seconds: float | None


class RateHeaders(Model):
    """The headers that show how much of a limit is left."""

    limit: HeaderName | None = None
    remaining: HeaderName
    reset: HeaderName | None = None
    reset_forms: Forms = (RetryAfterForm.SECONDS, RetryAfterForm.EPOCH_S, RetryAfterForm.ISO)
    window_ms: HeaderName | None = None
    """The length of the window; where no reset is shown, the whole of it may be left."""

    def read(self, headers: Mapping[str, str], *, now: datetime) -> RateReading:
        """What `headers` (lower-case names) show; garbage is as if it were not there."""
        reset = None
        if self.reset is not None:
            reset = seconds_of(headers.get(self.reset.lower()), self.reset_forms, now=now)
        window = _count(headers, self.window_ms)
        if reset is None and window is not None:
            reset = float(math.ceil(window / 1000))
        return RateReading(
            limit=_count(headers, self.limit),
            remaining=_count(headers, self.remaining),
            reset_seconds=None if reset is None else min(max(reset, 0.0), float(WINDOW_S_MAX)),
        )


def _count(headers: Mapping[str, str], name: str | None) -> int | None:
    text = headers.get(name.lower(), "").strip() if name is not None else ""
    return int(text) if _COUNT.fullmatch(text) else None
