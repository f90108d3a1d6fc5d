"""Answers that come instead of a change, in the provider's own words."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from email.utils import format_datetime

from oncefence.simulator.dialects.protocol import Dialect, Limit
from oncefence.simulator.faults import REDIRECTS, Fault, Rule, ScriptedFault
from oncefence.simulator.journal import stamp
from oncefence.simulator.wire import Answer, Head

# What a 429 of the day speaks of ends at the next midnight; a maintenance takes its time.
_MAINTENANCE = timedelta(minutes=20)


def refusal(dialect: Dialect, rule: Rule, head: Head, now: datetime) -> Answer:
    """The answer of a fault that comes before the change."""
    waits = _retry_after(rule, now)
    match rule.fault:
        case Fault.RATE_LIMIT_429:
            return dialect.limited(Limit.ORDINARY, waits, now)
        case ScriptedFault.SECONDLY_LIMIT_429:
            return dialect.limited(Limit.SECONDLY, waits, now)
        case ScriptedFault.DAILY_LIMIT_429:
            return dialect.limited(Limit.DAILY, waits, now)
        case Fault.SERVER_ERROR_BEFORE_COMMIT:
            return server_error(dialect, rule, now)
        case ScriptedFault.MAINTENANCE_503:
            return dialect.maintenance(waits, now + _MAINTENANCE)
        case Fault.REJECT_400:
            return dialect.error(rule.status or 400, "refused by script")
        case Fault.UNAUTHORIZED_401:
            return dialect.error(401, "the token is expired")
        case ScriptedFault() as fault if fault in REDIRECTS:
            # Without a location it leads back here, where the ledger sees whoever follows.
            host = head.headers.get("host", "localhost")
            location = rule.location or f"http://{host}{head.target}"
            return Answer(status=REDIRECTS[fault], body=b"", headers={"Location": location})
        case fault:
            raise AssertionError(f"{fault} does not come before the commit")


def server_error(dialect: Dialect, rule: Rule, now: datetime) -> Answer:
    """500, or the rule's 5xx."""
    return dialect.error(rule.status or 500, "internal error", headers=_retry_after(rule, now))


def _retry_after(rule: Rule, now: datetime) -> Mapping[str, str]:
    if rule.retry_after is None:
        return {}
    form, _, seconds = str(rule.retry_after).partition(":")
    if not (seconds.isascii() and seconds.isdigit()):
        return {"Retry-After": str(rule.retry_after)}
    then = now + timedelta(seconds=int(seconds))
    match form:
        case "date":
            return {"Retry-After": format_datetime(then, usegmt=True)}
        case "iso":
            return {"Retry-After": stamp(then)}
        case "iso-naive":
            return {"Retry-After": naive(then)}
        case _:
            return {"Retry-After": str(rule.retry_after)}


def naive(moment: datetime) -> str:
    """The moment in UTC, to the second, without saying that it is UTC."""
    return stamp(moment)[:19]
