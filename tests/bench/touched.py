"""Which pages a transaction touched, table by table and index by index, by the server's count."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Final, TypeAlias

import asyncpg

Pages: TypeAlias = Mapping[str, float]
"""Pages touched in the shared buffers, by the name of the table or index."""

# Found there or read into them: both are touches of a shared buffer.
_ROWS: Final = (
    "SELECT relname AS name, coalesce(heap_blks_hit + heap_blks_read, 0)"
    " + coalesce(toast_blks_hit + toast_blks_read + tidx_blks_hit + tidx_blks_read, 0) AS pages"
    " FROM pg_statio_user_tables WHERE schemaname = 'oncefence'"
)
_INDEXES: Final = (
    "SELECT indexrelname AS name, idx_blks_hit + idx_blks_read AS pages"
    " FROM pg_statio_user_indexes WHERE schemaname = 'oncefence'"
)
# The first page of a B-tree says on which level its root is; pages begin with 24 bytes of header.
_TREES: Final = (
    "SELECT c.relname AS name, i.indrelid::regclass::text AS table_name,"
    " pg_read_binary_file(pg_relation_filepath(c.oid), 36, 4) AS level"
    " FROM pg_class AS c JOIN pg_index AS i ON i.indexrelid = c.oid"
    " JOIN pg_am AS m ON m.oid = c.relam"
    " WHERE c.relnamespace = 'oncefence'::regnamespace AND c.relkind = 'i' AND m.amname = 'btree'"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """An index: of which table, and of how many pages one way down it is."""

    table: str
    height: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Touched:
    """What one transaction touches: the middle of several, so that a page split is left out."""

    rows: Pages
    indexes: Pages

    @property
    def pages(self) -> float:
        """All pages."""
        return sum(self.rows.values()) + sum(self.indexes.values())

    def ways_down(self, trees: Mapping[str, Tree]) -> Pages:
        """
        How often the indexes of each table are gone down, from a root to a leaf.

        By table: where two of its indexes serve a statement alike, the planner takes either.
        """
        ways: Counter[str] = Counter()
        for name, pages in self.indexes.items():
            ways[trees[name].table] += pages / trees[name].height
        return {table: round(count, 3) for table, count in ways.items()}


async def touched_by(
    connection: asyncpg.Connection, act: Callable[[], Awaitable[object]], times: int
) -> Touched:
    """What `act`, on this very connection, touches each time."""
    rows: list[Pages] = []
    indexes: list[Pages] = []
    for _ in range(times):
        before = await _standing(connection)
        await act()
        after = await _standing(connection)
        for found, past, now in zip((rows, indexes), before, after, strict=True):
            found.append({name: now[name] - past[name] for name in now})
    return Touched(rows=_middle(rows), indexes=_middle(indexes))


async def trees_of(owner: asyncpg.Connection) -> dict[str, Tree]:
    """Every index with its height; asked by a superuser."""
    await owner.execute("CHECKPOINT")
    return {
        row["name"]: Tree(
            table=row["table_name"].removeprefix("oncefence."),
            height=int.from_bytes(row["level"], "little") + 1,
        )
        for row in await owner.fetch(_TREES)
    }


async def _standing(connection: asyncpg.Connection) -> tuple[Pages, Pages]:
    # A session hands its counts in now and then; here it must have done so before they are read.
    await connection.execute("SELECT pg_stat_force_next_flush()")
    return await _pages(connection, _ROWS), await _pages(connection, _INDEXES)


async def _pages(connection: asyncpg.Connection, query: str) -> Pages:
    return {row["name"]: row["pages"] for row in await connection.fetch(query)}


def _middle(found: list[Pages]) -> Pages:
    middles = {name: median(each[name] for each in found) for name in found[0]}
    return {name: pages for name, pages in middles.items() if pages}
