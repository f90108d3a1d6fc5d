"""Points in time as providers write them: when a record was made, and when it last changed."""

import re
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from pydantic import Field

from oncefence.catalog.canonical import Model
from oncefence.catalog.expressions import JmesPath, find


class TimeFormat(StrEnum):
    """How a provider writes a point in time."""

    ISO8601 = "iso8601"
    """With its zone; without one it is not read."""

    EPOCH_S = "epoch_s"
    EPOCH_MS = "epoch_ms"


class ChangeTime(Model):
    """Where a time of the record is read, and how far the two clocks may be apart."""

    value: JmesPath
    format: TimeFormat
    skew_s: int = Field(default=5, ge=0, le=3_600)

    def is_before(self, mark: datetime, document: object) -> bool | None:
        """Whether the time is surely before `mark`; None where none can be read."""
        time = read_time(find(self.value, document), self.format)
        return None if time is None else time < mark - timedelta(seconds=self.skew_s)


def read_time(value: object, form: TimeFormat) -> datetime | None:
    """The point in time, or None where it is not in the declared form."""
    if form is TimeFormat.ISO8601:
        return _iso_time(value)
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,16}", value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    unit = timedelta(seconds=1) if form is TimeFormat.EPOCH_S else timedelta(milliseconds=1)
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + value * unit
    except OverflowError:
        return None


def _iso_time(value: object) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None
