"""
The chain of the audit rows as SQL: what each row must say of itself and of the row before it.

Nothing that guards the table is trusted. A sequence that is named is that of the first place
where the chain does not hold: of the row itself, or of the first row that is missing.
"""

from enum import StrEnum
from typing import Final


class LinkFault(StrEnum):
    """What is wrong at one place of a chain."""

    MISSING = "missing"
    """Rows between two others are gone, or their sequence was changed."""

    REPEATED = "repeated"
    """Two rows have one sequence."""

    UNLINKED = "unlinked"
    """The row follows another one than the row before it."""

    CHANGED = "changed"
    """The row does not say what it said when its digest was made."""

    CUT_OFF = "cut_off"
    """Rows at the end are gone: the head of the chain is further on."""

    BEYOND_HEAD = "beyond_head"
    """There are rows after the one that the head names; they were not written by a chained act."""

    OTHER_HEAD = "other_head"
    """The head names the last row, and another digest than that row has."""

    HEADLESS = "headless"
    """The chain has rows and no head."""


BROKEN_LINKS: Final = """
SELECT l.org_id, l.sequence, l.fault FROM (
    SELECT r.org_id, least(r.sequence, r.sequence_before + 1) AS sequence,
           CASE WHEN r.sequence > r.sequence_before + 1 THEN 'missing'
                WHEN r.sequence < r.sequence_before + 1 THEN 'repeated'
                WHEN r.previous IS DISTINCT FROM r.digest_before THEN 'unlinked'
                WHEN r.digest IS DISTINCT FROM r.digest_due THEN 'changed' END AS fault
      FROM (SELECT a.org_id, a.sequence, a.previous, a.digest,
                   oncefence.audit_digest(a) AS digest_due,
                   coalesce(lag(a.sequence) OVER the_row_before, 0) AS sequence_before,
                   coalesce(lag(a.digest) OVER the_row_before, ''::bytea) AS digest_before
              FROM oncefence.audit AS a
            WINDOW the_row_before AS (PARTITION BY a.org_id ORDER BY a.sequence, a.audit_id)) AS r
    UNION ALL
    SELECT e.org_id, least(h.sequence, e.sequence) + 1,
           CASE WHEN h.sequence > e.sequence THEN 'cut_off' ELSE 'beyond_head' END
      FROM oncefence.audit_heads AS h
      JOIN (SELECT k.org_id, coalesce(max(a.sequence), 0) AS sequence
              FROM oncefence.audit_heads AS k
              LEFT JOIN oncefence.audit AS a ON a.org_id = k.org_id
             GROUP BY k.org_id) AS e ON e.org_id = h.org_id
     WHERE h.sequence <> e.sequence
    UNION ALL
    SELECT h.org_id, h.sequence, 'other_head'
      FROM oncefence.audit_heads AS h
      JOIN oncefence.audit AS a ON a.org_id = h.org_id AND a.sequence = h.sequence
     WHERE a.digest IS DISTINCT FROM h.digest
       AND a.sequence = (SELECT max(b.sequence) FROM oncefence.audit AS b
                          WHERE b.org_id = h.org_id)
    UNION ALL
    SELECT DISTINCT a.org_id, 1::bigint, 'headless'
      FROM oncefence.audit AS a
     WHERE NOT EXISTS (SELECT 1 FROM oncefence.audit_heads AS h WHERE h.org_id = a.org_id)
) AS l WHERE l.fault IS NOT NULL
"""
"""Each place where a chain does not hold, with its LinkFault; none where all chains do."""
