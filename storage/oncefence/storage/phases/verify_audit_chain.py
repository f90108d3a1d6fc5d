"""Verifying the audit's chains: every digest is computed anew from what its row says (C406)."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.ids import OrgId
from oncefence.storage.audit_chain import BROKEN_LINKS, LinkFault
from oncefence.storage.engine import run_phase

LINKS_MAX = 200
"""How many broken links are read, of all chains; the first of each chain is always among them."""

# One snapshot: between two statements a chain goes on, and its head would look like another's.
SNAPSHOT = text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
CHAINS = text(
    """
    SELECT coalesce(h.org_id, r.org_id) AS org_id, coalesce(r.rows, 0) AS rows,
           coalesce(h.sequence, 0) AS sequence, h.digest
      FROM oncefence.audit_heads AS h
      FULL JOIN (SELECT a.org_id, count(*) AS rows FROM oncefence.audit AS a
                  GROUP BY a.org_id) AS r ON r.org_id = h.org_id
     WHERE CAST(:orgs AS text[]) IS NULL OR coalesce(h.org_id, r.org_id) = ANY (:orgs)
     ORDER BY 1
    """
)
BROKEN = text(
    f"""
    SELECT b.org_id, b.sequence, b.fault
      FROM (SELECT q.*, row_number() OVER (PARTITION BY q.org_id
                                           ORDER BY q.sequence, q.fault) AS nth
              FROM ({BROKEN_LINKS}) AS q
             WHERE CAST(:orgs AS text[]) IS NULL OR q.org_id = ANY (:orgs)) AS b
     ORDER BY (b.nth > 1), b.org_id, b.nth LIMIT :links_max
    """  # noqa: S608  # our own text
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenLink:
    """A place where a chain does not hold."""

    sequence: int
    fault: LinkFault


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainState:
    """
    One org's chain. `head` is the digest that its head names, in hex.

    A head that was written down elsewhere proves later that nothing up to it was made anew.
    """

    org: OrgId
    rows: int
    head_sequence: int
    head: str
    broken: Sequence[BrokenLink]

    @property
    def first_broken(self) -> int | None:
        """The first sequence at which the chain does not hold; None where all of it does."""
        return self.broken[0].sequence if self.broken else None


async def verify_audit_chain(
    engine: AsyncEngine, orgs: Iterable[OrgId] | None = None
) -> Sequence[ChainState]:
    """Every chain, or those of `orgs` that there are; nothing is written, and nothing waits."""
    named = {"orgs": None if orgs is None else sorted(orgs)}

    async def transaction() -> Sequence[ChainState]:
        async with engine.begin() as connection:
            await connection.execute(SNAPSHOT)
            chains = (await connection.execute(CHAINS, named)).all()
            broken: dict[str, list[BrokenLink]] = defaultdict(list)
            for row in await connection.execute(BROKEN, named | {"links_max": LINKS_MAX}):
                broken[row.org_id].append(
                    BrokenLink(sequence=row.sequence, fault=LinkFault(row.fault))
                )
        return [
            ChainState(
                org=OrgId(row.org_id),
                rows=row.rows,
                head_sequence=row.sequence,
                head="" if row.digest is None else row.digest.hex(),
                broken=tuple(broken[row.org_id]),
            )
            for row in chains
        ]

    return await run_phase("verify_audit_chain", transaction)
