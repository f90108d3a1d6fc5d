"""
The admission window as SQL: what of a class is open, and what of it may be opened now (C393).

Parts of the statements of several phases, so that acceptance, the end of an item, the resume of a
pause and the sweep mean the same by them. A class is an org and a queue class.
"""

from typing import Final

from oncefence.domain.backoff import RETRY_WINDOW_SECONDS_MAX
from oncefence.domain.claim import ENGINE_CAPABILITY
from oncefence.domain.limits import Limits

LIVE: Final = "('pending', 'processing', 'retry')"

LOOKED_AT: Final = 8
"""So many windows of a class are looked at in its order: a bound on what asking costs. What was
opened stands there, unless more than that stands before it and is blocked or paused."""

# Stable within a statement, so that an index can be searched by it.
_NOW: Final = "statement_timestamp()"
# An item that is tried again sooner than this keeps its place, for its workflow is open and waits;
# one that must wait longer, as a provider asked, gives it up.
_SOON: Final = f"{_NOW} + make_interval(secs => {RETRY_WINDOW_SECONDS_MAX})"

# What `obstacle_to_claim` would refuse, of an item `w` with its nudge `n`, if any. Of slow start
# it is silent: that one tells its workflow for how long to wait.
MAY_BE_CLAIMED: Final = """
       w.engine_capability <= :capability
   AND NOT EXISTS (SELECT FROM oncefence.pauses AS p
                    WHERE p.resumed_at IS NULL AND p.org_id IN ('*', w.org_id)
                      AND oncefence.is_paused_by(w, p))
   AND NOT oncefence.is_credential_parked(w)
   AND oncefence.lanes_are_free(w)
"""
IS_NUDGED: Final = f"""
       n.run_after = w.run_after AND n.ownership_epoch = w.ownership_epoch
   AND n.next_nudge_at > {_NOW}
"""


def open_items(org: str, queue_class: str) -> str:
    """
    How many items of the class are open, counted no further than a few windows.

    Open is what somebody holds or may take over, what waits briefly for another try, and what
    was nudged lately and is not yet claimed.
    """
    of_class = f"w.org_id = {org} AND w.queue_class = {queue_class}"
    return f"""
      (SELECT count(*) FROM (
         (SELECT 1 FROM oncefence.work_items AS w
           WHERE {of_class} AND w.state = 'processing'
             AND (w.lease_until > {_NOW} OR ({MAY_BE_CLAIMED})) LIMIT :window)
          UNION ALL
         (SELECT 1 FROM oncefence.work_items AS w
           WHERE {of_class} AND w.state = 'retry'
             AND w.run_after > {_NOW} AND w.run_after <= {_SOON} LIMIT :window)
          UNION ALL
         (SELECT 1
            FROM (SELECT * FROM oncefence.work_items AS w
                   WHERE {of_class} AND w.state IN ('pending', 'retry') AND w.run_after <= {_NOW}
                   ORDER BY w.run_after, w.work_id LIMIT :looked_at) AS w
            JOIN oncefence.work_nudges AS n ON n.org_id = w.org_id AND n.work_id = w.work_id
           WHERE {IS_NUDGED} LIMIT :window)
       ) AS o)
    """  # noqa: S608  # constants alone are joined in


def window_values(limits: Limits) -> dict[str, object]:
    """What the parts above ask of whoever uses them."""
    return {
        "window": limits.admission_window,
        "looked_at": LOOKED_AT * limits.admission_window,
        "capability": ENGINE_CAPABILITY,
    }
