"""The messages about quota: what is counted, how much of it is used, what is closed (C300)."""

from datetime import datetime
from typing import Self
from uuid import UUID

from oncefence.app.operator_messages import OperatorAnswer
from oncefence.storage.phases.list_quota import QuotaCount


class QuotaRow(OperatorAnswer):
    """One count; one without a dimension is a gate, which counts nothing and only closes."""

    key: str
    provider: str
    dimension: str | None
    org: str | None
    binding_id: UUID | None
    account: str | None
    endpoint_class: str | None
    base_url: str | None
    window: str | None
    window_seconds: int | None
    limit: int | None
    """As the last request had it; null where the tenant says that there is none."""

    told_limit: int | None
    """The lower limit that the provider itself tells."""

    used: int
    used_by_lookups: int
    used_by_cursors: int
    resets_at: datetime | None
    """When the provider said that its window ends."""

    closed_until: datetime | None
    closed_because: str | None
    changed_at: datetime

    @classmethod
    def of(cls, count: QuotaCount) -> Self:
        """The row of `count`."""
        return cls(
            key=count.key,
            provider=count.provider,
            dimension=count.dimension,
            org=count.org,
            binding_id=count.binding,
            account=count.account,
            endpoint_class=count.endpoint_class,
            base_url=count.base_url,
            window=count.window,
            window_seconds=count.window_seconds,
            limit=count.limit,
            told_limit=count.told_limit,
            used=count.used,
            used_by_lookups=count.used_by_lookups,
            used_by_cursors=count.used_by_cursors,
            resets_at=count.resets_at,
            closed_until=count.closed_until,
            closed_because=count.closed_because,
            changed_at=count.changed_at,
        )


class QuotaRows(OperatorAnswer):
    """The counts, what is closed and what is fullest first."""

    counts: list[QuotaRow]
