"""What a provider counts, and how much of it may be used in which time (C300)."""

from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from oncefence.catalog.canonical import Model
from oncefence.catalog.findings import Finding, key, unknown
from oncefence.catalog.limits import WINDOW_S_MAX
from oncefence.catalog.names import DottedName, Name

DAY_S: Final = 86_400
LIMIT_MAX: Final = 10_000_000


class QuotaScope(StrEnum):
    """Whose use is counted together; several of them make one count for each combination."""

    ORG = "org"
    BINDING = "binding"
    ENDPOINT_CLASS = "endpoint_class"
    PROVIDER_KEY = "provider_key"
    """The remote account or app under which the provider counts; bindings may share it."""


class QuotaWindow(StrEnum):
    """When use is forgotten."""

    ROLLING = "rolling"
    """Each unit a window after it was used."""

    FIXED = "fixed"
    """All at the end of a window, whose bounds the provider knows."""

    UTC_DAY = "utc_day"
    """All at midnight UTC."""


class QuotaDimension(Model):
    """One count with its limit. A request is sent when all its dimensions have room (C301)."""

    scope: tuple[QuotaScope, ...] = Field(min_length=1)
    endpoint_classes: tuple[DottedName, ...] = ()
    """The classes that count; none named means all of them."""

    limit: int = Field(ge=1, le=LIMIT_MAX)
    window: QuotaWindow = QuotaWindow.ROLLING
    window_s: int = Field(ge=1, le=WINDOW_S_MAX)
    corrected_by: tuple[Name, ...] = ()
    """The rates of answers whose headers correct this count (C302)."""

    limit_names: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:-]{1,64}\z")], ...] = ()
    """By what a refused request tells that this is the limit it met."""

    def counts(self, endpoint_class: str) -> bool:
        """Whether a request of this class uses one unit."""
        return not self.endpoint_classes or endpoint_class in self.endpoint_classes


def quota_errors(
    quota: Mapping[Name, QuotaDimension],
    *,
    classes: Collection[str],
    rates: Mapping[str, Collection[str]],
    limits: Mapping[str, Collection[str]],
) -> Iterator[Finding]:
    """
    What no single key of `[quota]` shows.

    Args:
        quota: The table.
        classes: The endpoint classes that some request has.
        rates: The rates that answers show, each with the classes of the requests answered.
        limits: Likewise the names of limits that answers give.
    """
    seen: dict[tuple[object, ...], str] = {}
    named: dict[str, str] = {}
    for name, dimension in quota.items():
        at = key("quota", name)
        yield from _repeated(at, dimension)
        for endpoint_class in dimension.endpoint_classes:
            if endpoint_class not in classes:
                yield f"{at}.endpoint_classes", unknown("endpoint class", endpoint_class, classes)
        yield from _shown(f"{at}.corrected_by", "rate", dimension.corrected_by, rates, dimension)
        yield from _shown(f"{at}.limit_names", "limit", dimension.limit_names, limits, dimension)
        for limit in dimension.limit_names:
            if named.setdefault(limit, name) != name:
                yield f"{at}.limit_names", f"{limit!r} names quota.{named[limit]} already"
        if dimension.window is QuotaWindow.UTC_DAY and dimension.window_s != DAY_S:
            yield f"{at}.window_s", f"must be {DAY_S} where the window is a day"
        same = (
            frozenset(dimension.scope),
            frozenset(dimension.endpoint_classes),
            dimension.window,
            dimension.window_s,
        )
        if seen.setdefault(same, name) != name:
            yield at, f"counts the same as quota.{seen[same]}"


def quota_warnings(
    quota: Mapping[Name, QuotaDimension], classes: Collection[str]
) -> Iterator[Finding]:
    """Requests that a pack with quota leaves uncounted."""
    uncounted = sorted(
        name for name in classes if not any(part.counts(name) for part in quota.values())
    )
    if quota and uncounted:
        yield "quota", f"counts no request of the classes {', '.join(uncounted)}"


def _repeated(at: str, dimension: QuotaDimension) -> Iterator[Finding]:
    for part in ("scope", "endpoint_classes", "corrected_by", "limit_names"):
        values = getattr(dimension, part)
        if len(set(values)) != len(values):
            yield f"{at}.{part}", "names one twice"


def _shown(
    at: str,
    kind: str,
    names: Collection[str],
    shown: Mapping[str, Collection[str]],
    dimension: QuotaDimension,
) -> Iterator[Finding]:
    for name in names:
        if name not in shown:
            yield at, unknown(kind, name, shown)
        elif not any(map(dimension.counts, shown[name])):
            yield at, f"{name!r} is shown to none of the requests that count here"
