"""Counts of one provider's that tests reserve from, as the phases do, and whose time they move."""

import itertools
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import uuid4

import asyncpg

from tests.support.servers import Database

_numbers = itertools.count(1)

Dimension = dict[str, Any]


def a_dimension(**changed: Any) -> Dimension:  # a dimension's own forms
    """Five requests in a month by one account, of a name that nobody else has."""
    return {
        "name": f"count-{next(_numbers)}",
        "class": "writes",
        "scope": ["provider_key"],
        "limit": 5,
        "window": "rolling",
        "window_s": 31 * 86_400,
        "purposes": ["effect"],
        **changed,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What was reserved, each with its key, or until when there is nothing."""

    reserved: Sequence[Mapping[str, Any]] | None
    until: datetime | None
    asked_at: datetime

    @property
    def is_granted(self) -> bool:
        return self.reserved is not None


class Counter:
    """Requests of one binding; each statement is a transaction of its own unless one is open."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self.connection = connection
        self.org = "an-org"
        self.provider = "a-provider"
        self.binding = uuid4()
        self.account: str | None = f"account-{next(_numbers)}"

    async def reserve(
        self, *dimensions: Dimension, purpose: str = "effect", endpoint_class: str = "writes"
    ) -> Answered:
        row = await self.connection.fetchrow(
            "SELECT q.*, clock_timestamp() AS asked_at"
            " FROM oncefence.reserve_quota($1, $2, $3, $4, $5, $6, $7) AS q",
            self.org,
            self.provider,
            self.binding,
            self.account,
            endpoint_class,
            json.dumps(dimensions),
            purpose,
        )
        reserved = row["reserved"]
        return Answered(
            reserved=None if reserved is None else json.loads(reserved),
            until=row["until"],
            asked_at=row["asked_at"],
        )

    async def use(self, dimension: Dimension, times: int, purpose: str = "effect") -> None:
        """So many units, all of them there."""
        for _ in range(times):
            assert (await self.reserve(dimension, purpose=purpose)).is_granted

    async def give_back(self, answered: Answered) -> None:
        await self.connection.execute(
            "SELECT oncefence.return_quota($1)", json.dumps(answered.reserved)
        )

    async def tell(
        self,
        *dimensions: Dimension,
        rates: Sequence[Mapping[str, Any]] = (),
        close: Mapping[str, Any] | None = None,
        reserved: Answered | None = None,
        endpoint_class: str = "writes",
        since_sent_s: float | None = None,
    ) -> None:
        """What an answer says, of a request that reserved what it says."""
        await self.connection.execute(
            "SELECT oncefence.correct_quota($1, $2, $3, $4, $5, $6, $7, $8)",
            self.org,
            self.provider,
            self.binding,
            self.account,
            endpoint_class,
            json.dumps(dimensions),
            json.dumps(list(reserved.reserved or ()) if reserved else []),
            json.dumps({"rates": list(rates), "close": close, "since_sent_s": since_sent_s}),
        )

    async def row(self, dimension: Dimension) -> asyncpg.Record:
        """The count of the dimension, as it is now."""
        return await self.connection.fetchrow(
            "SELECT c.*, oncefence.quota_used(oncefence.quota_at(c, clock_timestamp())) AS units"
            " FROM oncefence.quota_counts AS c WHERE c.dimension = $1",
            dimension["name"],
        )

    async def units(self, dimension: Dimension) -> int:
        found: int = (await self.row(dimension))["units"]
        return found

    async def let_pass(self, dimension: Dimension, slots: int) -> None:
        """
        So many slots of the dimension pass: all that is remembered is that much older.

        Every row has its own time, so the others do not see it.
        """
        await self.connection.execute(
            """
            UPDATE oncefence.quota_counts AS c
               SET head = c.head - $2::integer,
                   (used, lookups, cursors) = (
                    SELECT array_agg(c.used[1 + ((place + $2) % 65 + 65) % 65] ORDER BY place),
                           array_agg(c.lookups[1 + ((place + $2) % 65 + 65) % 65] ORDER BY place),
                           array_agg(c.cursors[1 + ((place + $2) % 65 + 65) % 65] ORDER BY place)
                      FROM generate_series(0, 64) AS place)
             WHERE c.dimension = $1
            """,
            dimension["name"],
            slots,
        )


@asynccontextmanager
async def counting(store: Database, count: int = 1) -> AsyncIterator[list[Counter]]:
    """Counters of one binding and account, each on a connection of its own."""
    connections = [await asyncpg.connect(store.app_url) for _ in range(count)]
    try:
        counters = [Counter(connection) for connection in connections]
        for each in counters:
            each.binding, each.account = counters[0].binding, counters[0].account
        yield counters
    finally:
        for connection in connections:
            await connection.close()
