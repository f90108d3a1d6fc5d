"""Lists that are read in the order of change, to find what no delivery told (C360)."""

from collections.abc import Collection, Iterator, Mapping
from typing import Final, Literal

from pydantic import Field

from oncefence.catalog.calls import Call, call_errors
from oncefence.catalog.canonical import Model
from oncefence.catalog.expressions import JmesPath
from oncefence.catalog.findings import Finding, key, unknown
from oncefence.catalog.names import Name
from oncefence.catalog.record_times import TimeFormat
from oncefence.catalog.webhooks import Moment

SINCE: Final = "since"
UNTIL: Final = "until"
AFTER_ID: Final = "after_id"
PAGE_SIZE: Final = "page_size"
PAGE: Final = "page"
FIELDS: Final = "fields"

LIST_VARIABLES: Final = (SINCE, UNTIL, PAGE_SIZE, PAGE, FIELDS)
TIE_VARIABLES: Final = (SINCE, UNTIL, AFTER_ID, PAGE_SIZE, FIELDS)


class NextPage(Model):
    """How an answer names the page after it; exactly one of the two."""

    url: JmesPath | None = None
    """The address of the next page, of which path and query alone are followed."""

    token: JmesPath | None = None
    """What takes the place of `{page}`; a key with an empty `{page}` is left out."""


class Cursor(Model):
    """One list of an object's records by the time of their last change."""

    object: Name
    request: Call
    items: JmesPath
    identity: JmesPath
    """The id within an item."""

    changed_at: Moment
    """The time of the last change within an item."""

    bound_format: TimeFormat
    """How `{since}` and `{until}` are written."""

    bounds: Literal["inclusive", "exclusive"]
    precision_ms: int = Field(default=1, ge=1, le=60_000)
    """What the provider compares; finer differences are nothing to it."""

    tie_break: Literal["id", "none"]
    """Whether records of one time come in the order of their ids."""

    next: NextPage
    page_size: int = Field(ge=1, le=10_000)
    page_size_max: int = Field(ge=1, le=10_000)
    results_max: int | None = Field(default=None, ge=1)
    """How many records one range can give over all its pages; longer ranges are split."""

    ties: Call | None = None
    """The records of one time by id, from `{after_id}` on, where even one time is too many."""

    overlap_s: int = Field(ge=0, le=86_400)
    """How far each run reaches back behind the last, since a change may show late."""

    deletes_visible: bool
    """Whether deleted records are in the list, marked as such."""


def cursor_errors(cursors: Mapping[Name, Cursor], objects: Collection[str]) -> Iterator[Finding]:
    """What no single key of `[cursors]` shows."""
    for name, cursor in cursors.items():
        at = key("cursors", name)
        if cursor.object not in objects:
            yield f"{at}.object", unknown("object", cursor.object, objects)
        if cursor.page_size > cursor.page_size_max:
            yield f"{at}.page_size", "is more than page_size_max"
        if cursor.overlap_s * 1_000 < cursor.precision_ms:
            yield (
                f"{at}.overlap_s",
                "is less than precision_ms: a change in the same moment would be passed over",
            )
        yield from _list(at, cursor)
        yield from next_errors(f"{at}.next", cursor.next, cursor.request)
        yield from _ties(at, cursor)


def next_errors(at: str, following: NextPage, request: Call) -> Iterator[Finding]:
    """What is wrong in the way from one page of `request` to the next."""
    if (following.url is None) == (following.token is None):
        yield at, "needs either url or token, and only one of them"
    if following.url is not None and request.method != "GET":
        yield f"{at}.url", f"cannot be followed by {request.method}; name a token"
    if (following.token is not None) != (PAGE in request.variables()):
        yield f"{at}.token", "must be there where the request uses {page}, and only then"


def _list(at: str, cursor: Cursor) -> Iterator[Finding]:
    request = cursor.request
    yield from call_errors(f"{at}.request", request, LIST_VARIABLES)
    yield from _only_reads(f"{at}.request", request)
    used = request.variables()
    for variable in (SINCE, PAGE_SIZE):
        if variable not in used:
            yield f"{at}.request", f"does not use {{{variable}}}"
    if cursor.results_max is not None and UNTIL not in used:
        yield f"{at}.request", "does not use {until}, so a range that is too long cannot be split"


def _ties(at: str, cursor: Cursor) -> Iterator[Finding]:
    if (cursor.ties is None) != (cursor.results_max is None):
        yield (
            f"{at}.ties",
            "must be there with results_max, and only then: a range of one moment has no halves",
        )
    if cursor.ties is not None:
        yield from call_errors(f"{at}.ties", cursor.ties, TIE_VARIABLES)
        yield from _only_reads(f"{at}.ties", cursor.ties)
        for variable in (SINCE, UNTIL, AFTER_ID):
            if variable not in cursor.ties.variables():
                yield f"{at}.ties", f"does not use {{{variable}}}"


def _only_reads(at: str, call: Call) -> Iterator[Finding]:
    # Some providers search by POST; the other methods change something everywhere.
    if call.method not in ("GET", "POST"):
        yield f"{at}.method", "a list only reads: use GET, or POST where that is how one searches"
