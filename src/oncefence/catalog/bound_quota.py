"""What a bound operation uses of the provider's counts, and what an answer tells of them (C300)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from oncefence.catalog.answers import AnswerHeaders, ResponseContract, lower_case, read_answer
from oncefence.catalog.bindings import IntegrationBinding
from oncefence.catalog.canonical import FrozenMap, Model
from oncefence.catalog.definitions import OperationDefinition, ProviderPack
from oncefence.catalog.limits import NEXT_UTC_MIDNIGHT, NamedLimit
from oncefence.catalog.names import DottedName, Name
from oncefence.catalog.quota import QuotaDimension, QuotaScope, QuotaWindow
from oncefence.domain.backoff import RETRY_AFTER_SECONDS_MIN, clamp_retry_after
from oncefence.domain.quota import Purpose

_UNIT_MAX: Final = 2**31 - 1
_RATE_LIMITED: Final = 429
_UNAVAILABLE: Final = 503
_PROVIDER_CLOSED_S_MAX: Final = 3_600.0
"""One account's answer holds everybody's work for an hour at most: then it is asked again. The
request that was answered waits for as long as it was told."""


class BoundQuota(Model):
    """One of the pack's dimensions as a binding counts it, for the requests of one operation."""

    name: Name
    scope: tuple[QuotaScope, ...]
    limit: int | None
    """None: the tenant's account has no such limit, so it is closed at most and never counted."""

    window: QuotaWindow
    window_s: int
    corrected_by: tuple[Name, ...]
    limit_names: tuple[str, ...]
    purposes: FrozenMap[DottedName, tuple[Purpose, ...]]
    """What shares the count, by each of the operation's own classes that use it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An answer that turned a request away for now, and named a limit or a time, or neither."""

    status: int
    limit: NamedLimit | None


def bound_quota(
    pack: ProviderPack, binding: IntegrationBinding, definition: OperationDefinition
) -> tuple[BoundQuota, ...]:
    """The dimensions that requests of this operation count in, with the limits of the binding."""
    classes = {definition.endpoint_class}
    if definition.lookup is not None:
        classes.add(definition.lookup.endpoint_class)
    uses = _uses(pack, binding)
    bound = []
    for name, dimension in sorted(pack.quota.items()):
        purposes = {
            each: _sharing(dimension, each, uses)
            for each in sorted(classes)
            if dimension.counts(each)
        }
        if not purposes:
            continue
        choice = binding.quota.get(name, dimension.limit)
        bound.append(
            BoundQuota(
                name=name,
                scope=tuple(sorted(dimension.scope)),
                limit=choice if isinstance(choice, int) and choice is not False else None,
                window=dimension.window,
                window_s=dimension.window_s,
                corrected_by=dimension.corrected_by,
                limit_names=dimension.limit_names,
                purposes=purposes,
            )
        )
    return tuple(bound)


def dimensions_of(quota: tuple[BoundQuota, ...], endpoint_class: str) -> list[dict[str, object]]:
    """The dimensions of one request, as a command keeps them and the database reads them."""
    return [
        {
            "name": dimension.name,
            "class": endpoint_class,
            "scope": [part.value for part in dimension.scope],
            "limit": dimension.limit,
            "window": dimension.window.value,
            "window_s": dimension.window_s,
            "purposes": [each.value for each in dimension.purposes[endpoint_class]],
        }
        for dimension in quota
        if endpoint_class in dimension.purposes
    ]


def refusal_of(
    response: ResponseContract, status: int | None, body: bytes | None
) -> Refusal | None:
    """The refusal that the answer to a read is, where it says that a limit was met."""
    if status != _RATE_LIMITED:
        return None
    document, _ = read_answer(body or b"")
    names = response.wait_by
    return Refusal(status=status, limit=None if names is None else names.read(document))


def told_of(
    quota: tuple[BoundQuota, ...],
    response: ResponseContract,
    headers: AnswerHeaders,
    refusal: Refusal | None,
    *,
    now: datetime,
    since_sent_s: float | None = None,
) -> dict[str, object] | None:
    """
    What an answer tells of the provider's counts, as the database reads it; None for nothing.

    `refusal` is what turned the request away, where the frozen contract says that it applied
    nothing. `since_sent_s` is how long ago the request began to leave: it counts at the provider
    from then on, and not from its reservation. Garbage tells nothing (C302).
    """
    rates = _rates(quota, response, headers, now=now)
    close = None
    if refusal is not None and refusal.status in (_RATE_LIMITED, _UNAVAILABLE):
        close = _close(quota, response, headers, refusal, now=now)
    is_rolling = any(
        each.limit is not None and each.window is QuotaWindow.ROLLING for each in quota
    )
    told: dict[str, object] = {"rates": rates, "close": close}
    if since_sent_s is not None and is_rolling:
        told["since_sent_s"] = since_sent_s
    elif not rates and close is None:
        return None
    return told


def _uses(pack: ProviderPack, binding: IntegrationBinding) -> Mapping[str, set[Purpose]]:
    """What requests of each endpoint class are for, of the operations that are bound."""
    uses: dict[str, set[Purpose]] = {}
    for bound in binding.operations.values():
        operation = pack.operations[bound.operation]
        uses.setdefault(operation.endpoint_class, set()).add(Purpose.EFFECT)
        if operation.lookup is not None:
            uses.setdefault(operation.lookup.endpoint_class, set()).add(Purpose.LOOKUP)
    for cursor in pack.cursors.values():
        for call in (cursor.request, cursor.ties):
            if call is not None:
                uses.setdefault(call.endpoint_class, set()).add(Purpose.CURSOR)
    return uses


def _sharing(
    dimension: QuotaDimension, endpoint_class: str, uses: Mapping[str, set[Purpose]]
) -> tuple[Purpose, ...]:
    has_class_of_its_own = QuotaScope.ENDPOINT_CLASS in dimension.scope
    return tuple(
        sorted(
            set[Purpose]().union(
                *(
                    purposes
                    for each, purposes in uses.items()
                    if dimension.counts(each)
                    and (each == endpoint_class or not has_class_of_its_own)
                )
            )
        )
    )


def _rates(
    quota: tuple[BoundQuota, ...],
    response: ResponseContract,
    headers: AnswerHeaders,
    *,
    now: datetime,
) -> list[dict[str, object]]:
    if not response.rate:
        return []
    shown = response.rates(headers, now=now)
    return [
        {
            "dimension": dimension.name,
            "limit": _units(reading.limit),
            "remaining": _units(reading.remaining),
            "reset_s": reading.reset_seconds,
        }
        for dimension in quota
        for name in dimension.corrected_by
        if (reading := shown.get(name)) is not None
        and (reading.limit, reading.remaining, reading.reset_seconds) != (None, None, None)
    ]


def _units(count: int | None) -> int | None:
    return None if count is None else min(count, _UNIT_MAX)


def _close(
    quota: tuple[BoundQuota, ...],
    response: ResponseContract,
    headers: AnswerHeaders,
    refusal: Refusal,
    *,
    now: datetime,
) -> dict[str, object]:
    limit = refusal.limit
    asked = response.retry_after.wait_seconds(lower_case(headers), now=now)
    # By its own clock the database knows best when the day ends, and so it is told just that.
    until_midnight = limit is not None and limit.wait == NEXT_UTC_MIDNIGHT
    if limit is None and asked is None:
        # It says that a limit was met and nothing else: the others hold back for a moment.
        seconds = RETRY_AFTER_SECONDS_MIN
    elif until_midnight:
        seconds = clamp_retry_after(asked or 0.0)
    else:
        seconds = response.wait_seconds(refusal.status, headers, limit, now=now)
    closes, dimension = _what_closes(quota, refusal)
    if closes == "provider":
        seconds = min(seconds, _PROVIDER_CLOSED_S_MAX)
    return {
        "closes": closes,
        "dimension": dimension,
        "seconds": seconds,
        "until_midnight": until_midnight,
        "because": f"limit {limit.name}" if limit is not None else f"status {refusal.status}",
    }


def _what_closes(quota: tuple[BoundQuota, ...], refusal: Refusal) -> tuple[str, str | None]:
    is_known_limit = refusal.limit is not None and refusal.limit.wait is not None
    if refusal.status == _UNAVAILABLE and not is_known_limit:
        # It is the provider that is away, whoever asks. A limit is the account's under any status.
        return "provider", None
    if refusal.limit is None:
        return "class", None
    for dimension in quota:
        if refusal.limit.name in dimension.limit_names:
            return "dimension", dimension.name
    # A day's limit that nothing counts is the whole account's.
    return ("binding" if refusal.limit.wait == NEXT_UTC_MIDNIGHT else "class"), None
