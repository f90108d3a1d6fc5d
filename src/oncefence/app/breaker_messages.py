"""The messages about breakers: how each stands, and a person's word on it (C304)."""

from datetime import datetime
from typing import Annotated, Self

from pydantic import Field

from oncefence.app.operator_messages import ActRequest, OperatorAnswer
from oncefence.domain.breaker import OPEN_SECONDS_DEFAULT, OPEN_SECONDS_MAX, BreakerState
from oncefence.storage.phases.list_breakers import Breaker


class CloseRequest(ActRequest):
    """The end of a breaker's opening, now."""


class OpenRequest(ActRequest):
    """A breaker that is opened for a while; then it is half-open, as after its own opening."""

    open_seconds: Annotated[float, Field(gt=0, le=OPEN_SECONDS_MAX, strict=False)] = (
        OPEN_SECONDS_DEFAULT
    )


class BreakerRow(OperatorAnswer):
    """One breaker; `version` is what an act on it asks for."""

    key: str
    provider: str
    state: BreakerState
    version: str
    via: str
    """By which move it came into its state."""

    changed_at: datetime | None
    changed_by: str | None
    note: str | None
    opens: int
    opened_at: datetime | None
    until: datetime | None
    failures: int
    orgs_failing: int | None
    """Of a provider's breaker, and for whoever may see every org; else null."""

    orgs_seen: int | None

    @classmethod
    def of(cls, breaker: Breaker) -> Self:
        """The row of `breaker`."""
        return cls(
            key=str(breaker.key),
            provider=breaker.provider,
            state=breaker.state,
            version=breaker.version,
            via=breaker.via,
            changed_at=breaker.changed_at,
            changed_by=breaker.changed_by,
            note=breaker.changed_note,
            opens=breaker.opens,
            opened_at=breaker.opened_at,
            until=breaker.until,
            failures=breaker.failures,
            orgs_failing=breaker.orgs_failing,
            orgs_seen=breaker.orgs_seen,
        )


class BreakerRows(OperatorAnswer):
    """The breakers, those that hold something back first."""

    breakers: list[BreakerRow]


class BreakerReport(OperatorAnswer):
    """One breaker, after an act on it; `is_new` is false where it had been done before."""

    breaker: BreakerRow
    is_new: bool = False
