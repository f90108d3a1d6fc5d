"""Reading the Retry-After header in the three ways in which providers write it."""

import math
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from oncefence.domain.backoff import (
    RETRY_AFTER_SECONDS_MAX,
    RETRY_AFTER_UNREADABLE_SECONDS,
    clamp_retry_after,
)

# Digits as the standard has them, and the fraction that some send. Python's own int() and
# float() would also take "+5", "1_0", "1e3" and "nan".
_SECONDS: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_SECONDS_LIST: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:\s*,\s*[0-9]+(?:\.[0-9]+)?)+")
_HTTP_DATE: Final = re.compile(r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,? .{15,40}")
_ISO_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}.{0,24}")

# More digits than a day has seconds, whatever they are; int() also refuses very long texts.
_DIGITS_MAX: Final = 12


def retry_after_seconds(value: str | None, *, now: datetime) -> float:
    """
    Return the seconds that the provider asks for, within one second and a day (C250).

    Never raises and never returns less than a readable value asks for: a missing or
    unreadable one counts as thirty seconds. A time without a zone is UTC, never local time.
    """
    if now.tzinfo is None:
        raise ValueError("now carries its zone")
    text = (value or "").strip()
    if _SECONDS.fullmatch(text):
        return _whole_seconds(text)
    if _SECONDS_LIST.fullmatch(text):
        # The header came twice: the later of two promises keeps both.
        return max(_whole_seconds(part.strip()) for part in text.split(","))
    moment = _moment(text)
    if moment is None:
        return RETRY_AFTER_UNREADABLE_SECONDS
    return clamp_retry_after(math.ceil((moment - now).total_seconds()))


def _whole_seconds(text: str) -> float:
    if len(text.partition(".")[0].lstrip("0")) > _DIGITS_MAX:
        return RETRY_AFTER_SECONDS_MAX
    return clamp_retry_after(math.ceil(float(text)))


def _moment(text: str) -> datetime | None:
    try:
        if _HTTP_DATE.fullmatch(text):
            moment = parsedate_to_datetime(text)
        elif _ISO_TIME.fullmatch(text):
            moment = datetime.fromisoformat(text)
        else:
            return None
        # Astimezone may overflow near the ends of the calendar; that, too, is unreadable.
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError, TypeError, IndexError):
        return None
