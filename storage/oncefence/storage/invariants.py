"""
The promise as SQL: what may never be found in the tables, and what a person is shown (C464).

Each rule selects the rows that break it, so that a finding names its row. They read facts only:
no guard, trigger or index is trusted, because an audit that trusts the guard proves nothing.
"""

from dataclasses import dataclass
from typing import Final

from oncefence.storage.audit_chain import BROKEN_LINKS
from oncefence.storage.work_items import EFFECT_FAMILIES

_FINAL: Final = "('succeeded', 'failed', 'cancelled')"
_ACTIVE: Final = "('pending', 'processing', 'retry')"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A named query. Its columns are identifiers and states; never a payload, never a secret."""

    name: str
    meaning: str
    query: str


INVARIANTS: Final = (
    Rule(
        name="one_open_attempt_per_command",
        meaning="a command never has two attempts on the wire (C1, C2)",
        query="""
        SELECT a.org_id, a.command_id, count(*) AS open_attempts
          FROM oncefence.effect_attempts AS a
         WHERE a.started_at IS NOT NULL AND a.settled_at IS NULL
         GROUP BY a.org_id, a.command_id HAVING count(*) > 1
        """,
    ),
    Rule(
        name="one_accepted_attempt_per_command",
        meaning="a command is accepted by its provider at most once (C2)",
        query="""
        SELECT a.org_id, a.command_id, count(*) AS accepted_attempts
          FROM oncefence.effect_attempts AS a
         WHERE a.outcome = 'ACCEPTED'
         GROUP BY a.org_id, a.command_id HAVING count(*) > 1
        """,
    ),
    Rule(
        name="no_attempt_over_a_doubtful_one",
        meaning="no attempt begins while an earlier one is open, accepted or in doubt (C2)",
        query="""
        SELECT later.org_id, later.command_id, later.attempt_id, earlier.attempt_id AS earlier_id,
               coalesce(earlier.outcome, 'open') AS earlier_outcome, earlier.disposition
          FROM oncefence.effect_attempts AS later
          JOIN oncefence.effect_attempts AS earlier
            ON earlier.org_id = later.org_id AND earlier.command_id = later.command_id
           AND earlier.ordinal < later.ordinal
          JOIN oncefence.commands AS c
            ON c.org_id = later.org_id AND c.command_id = later.command_id
         WHERE later.started_at IS NOT NULL
           AND (earlier.outcome IS NULL OR earlier.outcome = 'ACCEPTED' OR earlier.may_have_applied)
           AND NOT (earlier.outcome IS DISTINCT FROM 'ACCEPTED'
                    AND earlier.disposition IS NOT DISTINCT FROM 'no_effect_proof'
                    AND earlier.disposed_at <= later.started_at)
           AND NOT (earlier.outcome IS NOT DISTINCT FROM 'REPLAY_SAFE_RETRY'
                    AND c.idempotency_key IS NOT NULL
                    AND later.started_as_of + make_interval(secs => c.deadline_ms / 1000.0)
                        < (SELECT min(f.started_as_of) FROM oncefence.effect_attempts AS f
                            WHERE f.org_id = later.org_id AND f.command_id = later.command_id)
                          + make_interval(secs => c.replay_window_seconds))
        """,
    ),
    Rule(
        name="attempts_keep_what_the_command_pinned",
        meaning="no attempt goes to another account or record than was accepted (C6)",
        query="""
        SELECT a.org_id, a.command_id, a.attempt_id
          FROM oncefence.effect_attempts AS a
          JOIN oncefence.commands AS c
            ON c.org_id = a.org_id AND c.command_id = a.command_id
         WHERE (a.generation_id, a.link_id, a.link_version, a.method, a.relative_target)
               IS DISTINCT FROM
               (c.generation_id, c.link_id, c.link_version, c.request_method, c.request_target)
        """,
    ),
    Rule(
        name="slot_follows_its_create",
        meaning="a create's slot is open, a link or given back as its execution has it (C342)",
        query="""
        SELECT l.org_id, c.command_id, l.link_id, l.state AS link_state, e.status
          FROM oncefence.remote_links AS l
          LEFT JOIN oncefence.commands AS c
            ON c.org_id = l.org_id AND c.link_id = l.link_id AND c.remote_id IS NULL
          LEFT JOIN oncefence.executions AS e
            ON e.org_id = c.org_id AND e.command_id = c.command_id
         WHERE (c.command_id IS NOT NULL OR l.state = 'creating')
           AND CASE WHEN l.remote_id IS NOT NULL THEN 'a link'
                    WHEN l.state = 'creating' THEN 'open' ELSE 'given back' END
               IS DISTINCT FROM
               CASE WHEN e.status = 'succeeded' THEN 'a link'
                    WHEN e.status IN ('failed', 'cancelled') THEN 'given back'
                    WHEN e.status IS NOT NULL THEN 'open' END
        """,
    ),
    Rule(
        name="one_revision_per_command",
        meaning="a command, its items and the view that they name are of one revision (C519)",
        query="""
        SELECT w.org_id, w.command_id, w.work_id, w.view_id, w.view_revision
          FROM oncefence.work_items AS w
          LEFT JOIN oncefence.commands AS c
            ON c.org_id = w.org_id AND c.command_id = w.command_id
          LEFT JOIN oncefence.binding_views AS v
            ON v.org_id = w.org_id AND v.view_id = w.view_id
         WHERE (w.command_id IS NOT NULL
                AND (w.view_id, w.view_digest) IS DISTINCT FROM (c.view_id, c.view_digest))
            OR (w.view_digest, w.view_revision, w.installation)
               IS DISTINCT FROM (v.digest, v.revision, v.installation)
        """,
    ),
    Rule(
        name="revisions_are_as_they_were_published",
        meaning="a revision has the content of its digest and follows the one before it (C561)",
        query="""
        SELECT v.org_id, v.view_id, v.name, v.revision
          FROM oncefence.binding_views AS v
          LEFT JOIN oncefence.binding_views AS p
            ON p.org_id = v.org_id AND p.installation = v.installation AND p.name = v.name
           AND p.revision = v.revision - 1
         WHERE v.digest <> encode(sha256(convert_to(v.content, 'UTF8')), 'hex')
            OR v.follows_digest IS DISTINCT FROM p.digest
            OR (v.revision = 1) <> (p.view_id IS NULL)
        """,
    ),
    Rule(
        name="a_binding_has_its_current_revision",
        meaning="activations of a binding are one line, and each is of a revision of it (C561)",
        query="""
        SELECT v.org_id, v.installation, v.name, a.ordinal
          FROM (SELECT DISTINCT org_id, installation, name FROM oncefence.binding_views) AS v
          LEFT JOIN oncefence.view_activations AS a
            ON a.org_id = v.org_id AND a.installation = v.installation AND a.name = v.name
          LEFT JOIN oncefence.view_activations AS p
            ON p.org_id = v.org_id AND p.installation = v.installation AND p.name = v.name
           AND p.ordinal = a.ordinal - 1
          LEFT JOIN oncefence.binding_views AS o
            ON o.org_id = v.org_id AND o.installation = v.installation AND o.name = v.name
           AND o.view_id = a.view_id
         WHERE o.view_id IS NULL OR a.replaces IS DISTINCT FROM p.view_id
            OR (a.ordinal = 1) <> (p.view_id IS NULL)
        """,
    ),
    Rule(
        name="settled_by_the_claim_that_started",
        meaning="an attempt is settled by its own token and epoch, or as lost (C160)",
        query="""
        SELECT a.org_id, a.command_id, a.attempt_id, a.settled_as
          FROM oncefence.effect_attempts AS a
         WHERE a.settled_at IS NOT NULL
           AND ((a.settled_as = 'starter'
                 AND (a.settled_token, a.settled_epoch)
                     IS DISTINCT FROM (a.lease_token, a.ownership_epoch))
                OR (a.settled_as = 'lost' AND a.outcome <> 'OUTCOME_UNKNOWN'))
        """,
    ),
    Rule(
        name="open_attempt_is_held",
        meaning="behind an open attempt stands the claim that started it",
        query="""
        SELECT a.org_id, a.command_id, a.attempt_id, w.state
          FROM oncefence.effect_attempts AS a
          JOIN oncefence.work_items AS w ON w.org_id = a.org_id AND w.work_id = a.work_id
         WHERE a.started_at IS NOT NULL AND a.settled_at IS NULL
           AND (w.state <> 'processing' OR w.lease_token IS DISTINCT FROM a.lease_token
                OR w.ownership_epoch <> a.ownership_epoch)
        """,
    ),
    Rule(
        name="attempts_are_counted",
        meaning="an execution's attempt number is the number of its started attempts",
        query="""
        SELECT e.org_id, e.command_id, e.execution_id, e.attempt, count(a.attempt_id) AS started
          FROM oncefence.executions AS e
          LEFT JOIN oncefence.effect_attempts AS a
            ON a.org_id = e.org_id AND a.command_id = e.command_id AND a.started_at IS NOT NULL
         GROUP BY e.org_id, e.command_id, e.execution_id, e.attempt
        HAVING count(a.attempt_id) <> e.attempt
        """,
    ),
    Rule(
        name="running_has_its_open_attempt",
        meaning="an execution runs exactly while one of its attempts is open",
        query="""
        SELECT e.org_id, e.command_id, e.execution_id, e.status,
               count(a.attempt_id) AS open_attempts
          FROM oncefence.executions AS e
          LEFT JOIN oncefence.effect_attempts AS a
            ON a.org_id = e.org_id AND a.command_id = e.command_id
           AND a.started_at IS NOT NULL AND a.settled_at IS NULL
         GROUP BY e.org_id, e.command_id, e.execution_id, e.status
        HAVING (e.status = 'running') <> (count(a.attempt_id) > 0)
        """,
    ),
    Rule(
        name="unknown_is_looked_up",
        meaning="an unknown outcome has its active lookup item (C98)",
        query=f"""
        SELECT e.org_id, e.command_id, e.execution_id
          FROM oncefence.executions AS e
         WHERE e.status = 'unknown' AND NOT EXISTS (
               SELECT FROM oncefence.work_items AS w
                WHERE w.org_id = e.org_id AND w.execution_id = e.execution_id
                  AND w.family = 'effect.lookup' AND w.state IN {_ACTIVE})
        """,  # noqa: S608  # constants of this file
    ),
    Rule(
        name="never_silently_idle",
        meaning="what is neither final nor in a queue has an item that moves it on (C3)",
        query=f"""
        SELECT e.org_id, e.command_id, e.execution_id, e.status
          FROM oncefence.executions AS e
         WHERE e.status NOT IN {_FINAL} AND e.status NOT IN ('needs_attention', 'unknown')
           AND NOT EXISTS (
               SELECT FROM oncefence.work_items AS w
                WHERE w.org_id = e.org_id AND w.execution_id = e.execution_id
                  AND w.family IN {EFFECT_FAMILIES}
                  AND (w.state IN {_ACTIVE}
                       OR w.state IN ('awaiting_legacy_outcome', 'legacy_outcome_unknown')))
        """,  # noqa: S608  # constants of this file
    ),
    Rule(
        name="final_has_no_active_item",
        meaning="nothing is left to claim for an execution that is final",
        query=f"""
        SELECT e.org_id, e.command_id, e.execution_id, e.status, w.work_id, w.family, w.state
          FROM oncefence.executions AS e
          JOIN oncefence.work_items AS w
            ON w.org_id = e.org_id AND w.execution_id = e.execution_id
         WHERE e.status IN {_FINAL} AND w.state IN {_ACTIVE}
           AND (w.family = 'effect.lookup' OR w.family IN {EFFECT_FAMILIES})
        """,  # noqa: S608  # constants of this file
    ),
    Rule(
        name="one_active_item_per_command",
        meaning="a command has at most one active item of a family",
        query=f"""
        SELECT w.org_id, w.command_id, w.family, count(*) AS active_items
          FROM oncefence.work_items AS w
         WHERE w.state IN {_ACTIVE} AND w.command_id IS NOT NULL
         GROUP BY w.org_id, w.command_id, w.family HAVING count(*) > 1
        """,  # noqa: S608  # constants of this file
    ),
    Rule(
        name="one_processing_per_lane",
        meaning="a lane lets one item through at a time",
        query="""
        SELECT w.org_id, l.lane, count(*) AS processing_items
          FROM oncefence.work_items AS w
          CROSS JOIN LATERAL (VALUES (w.source_lane), (w.target_lane)) AS l (lane)
         WHERE w.state = 'processing' AND l.lane IS NOT NULL
         GROUP BY w.org_id, l.lane HAVING count(*) > 1
        """,
    ),
    Rule(
        name="claims_hold_a_lease",
        meaning="an item is processing exactly while a token and a lease stand in its row",
        query="""
        SELECT w.org_id, w.work_id, w.family, w.state
          FROM oncefence.work_items AS w
         WHERE (w.state = 'processing') <> (w.lease_token IS NOT NULL)
            OR (w.lease_token IS NULL) <> (w.lease_until IS NULL)
        """,
    ),
    Rule(
        name="acceptance_is_whole",
        meaning="an accepted handoff has its command, execution and dispatch item",
        query=f"""
        SELECT h.org_id, h.handoff_key, h.command_id, c.command_id IS NOT NULL AS has_command,
               e.execution_id IS NOT NULL AS has_execution, w.work_id IS NOT NULL AS has_item
          FROM oncefence.handoffs AS h
          LEFT JOIN oncefence.commands AS c
            ON c.org_id = h.org_id AND c.command_id = h.command_id
           AND c.handoff_key = h.handoff_key
          LEFT JOIN oncefence.executions AS e
            ON e.org_id = h.org_id AND e.command_id = h.command_id
          LEFT JOIN LATERAL (
               SELECT i.work_id FROM oncefence.work_items AS i
                WHERE i.org_id = h.org_id AND i.command_id = h.command_id
                  AND i.family IN {EFFECT_FAMILIES} LIMIT 1) AS w ON true
         WHERE h.admission = 'COMMAND_ACCEPTED'
           AND (c.command_id IS NULL OR e.execution_id IS NULL OR w.work_id IS NULL)
        """,  # noqa: S608  # constants of this file
    ),
    Rule(
        name="command_has_its_admission",
        meaning="no command stands without the accepted handoff that made it",
        query="""
        SELECT c.org_id, c.command_id, c.handoff_key
          FROM oncefence.commands AS c
         WHERE NOT EXISTS (
               SELECT FROM oncefence.handoffs AS h
                WHERE h.handoff_key = c.handoff_key AND h.org_id = c.org_id
                  AND h.command_id = c.command_id AND h.admission = 'COMMAND_ACCEPTED')
        """,
    ),
    Rule(
        name="payload_is_sealed",
        meaning="payload and request of every execution rest sealed under its key (C440)",
        query="""
        SELECT e.org_id, e.command_id, e.execution_id, k.execution_id IS NOT NULL AS has_key,
               (SELECT count(*) FROM oncefence.sealed_payloads AS s
                 WHERE s.org_id = e.org_id AND s.execution_id = e.execution_id
                   AND s.kind IN ('payload', 'request')) AS sealed
          FROM oncefence.executions AS e
          LEFT JOIN oncefence.execution_keys AS k
            ON k.org_id = e.org_id AND k.execution_id = e.execution_id
         WHERE k.execution_id IS NULL
            OR (SELECT count(DISTINCT s.kind) FROM oncefence.sealed_payloads AS s
                 WHERE s.org_id = e.org_id AND s.execution_id = e.execution_id
                   AND s.kind IN ('payload', 'request')) < 2
        """,
    ),
    Rule(
        name="settlement_has_its_completion",
        meaning="each settlement has one completion, and the newest says how it stands (C99)",
        query=f"""
        SELECT e.org_id, e.command_id, e.execution_id, e.status, e.settlements,
               (SELECT count(*) FROM oncefence.completions AS n
                 WHERE n.org_id = e.org_id AND n.execution_id = e.execution_id) AS completions
          FROM oncefence.executions AS e
         WHERE (e.status IN {_FINAL} AND e.settlements = 0)
            OR (SELECT count(*) FROM oncefence.completions AS n
                 WHERE n.org_id = e.org_id AND n.execution_id = e.execution_id) <> e.settlements
            OR (e.status IN {_FINAL} AND NOT EXISTS (
                SELECT FROM oncefence.completions AS n
                 WHERE n.org_id = e.org_id AND n.execution_id = e.execution_id
                   AND n.settlement = e.settlements AND n.status = e.status))
        """,  # noqa: S608  # constants of this file
    ),
    Rule(
        name="success_has_its_evidence",
        meaning="a success rests on an accepted attempt or on a recorded finding",
        query="""
        SELECT e.org_id, e.command_id, e.execution_id, e.settled_by
          FROM oncefence.executions AS e
         WHERE e.status = 'succeeded' AND NOT EXISTS (
               SELECT FROM oncefence.effect_attempts AS a
                WHERE a.org_id = e.org_id AND a.command_id = e.command_id
                  AND (a.outcome = 'ACCEPTED' OR a.disposition IN ('applied', 'person')))
        """,
    ),
    Rule(
        name="failure_leaves_no_doubt",
        meaning="what failed or was cancelled leaves no attempt in doubt (C83)",
        query="""
        SELECT e.org_id, e.command_id, e.execution_id, e.status, a.attempt_id
          FROM oncefence.executions AS e
          JOIN oncefence.effect_attempts AS a
            ON a.org_id = e.org_id AND a.command_id = e.command_id
         WHERE e.status IN ('failed', 'cancelled')
           AND (a.outcome IS NULL OR a.outcome = 'ACCEPTED'
                OR (a.may_have_applied AND a.disposition IS NULL))
        """,
    ),
    Rule(
        name="proof_has_its_evidence",
        meaning="a proof of no effect names the word of the starter that it rests on (C182)",
        query="""
        SELECT a.org_id, a.command_id, a.attempt_id
          FROM oncefence.effect_attempts AS a
         WHERE a.disposition = 'no_effect_proof' AND NOT EXISTS (
               SELECT FROM oncefence.attempt_evidence AS v
                WHERE v.org_id = a.org_id AND v.evidence_id = a.disposition_evidence_id
                  AND v.attempt_id = a.attempt_id AND v.kind = 'unsent')
        """,
    ),
    Rule(
        name="current_generation_has_its_token",
        meaning="a current generation has the sealed token version that it names",
        query="""
        SELECT g.org_id, g.binding_id, g.generation_id, g.token_version
          FROM oncefence.binding_generations AS g
         WHERE g.state = 'current' AND (g.wrapped_key IS NULL OR NOT EXISTS (
               SELECT FROM oncefence.token_versions AS t
                WHERE t.org_id = g.org_id AND t.generation_id = g.generation_id
                  AND t.version = g.token_version))
        """,
    ),
    Rule(
        name="a_rotating_token_is_spent_once",
        meaning="no token that a call uses up is sent to its provider twice (C288)",
        query="""
        SELECT r.org_id, r.generation_id, r.from_version, count(*) AS calls
          FROM oncefence.token_refreshes AS r
         WHERE r.rotation = 'rotating'
           AND coalesce(r.outcome, 'open') NOT IN ('answered', 'unsent')
         GROUP BY r.org_id, r.generation_id, r.from_version HAVING count(*) > 1
        """,
    ),
    Rule(
        name="tokens_come_of_their_renewals",
        meaning="each renewed version is of one call for the version before it (C286)",
        query="""
        SELECT coalesce(t.org_id, r.org_id) AS org_id,
               coalesce(t.generation_id, r.generation_id) AS generation_id,
               coalesce(t.version, r.to_version) AS version, t.made_because
          FROM (SELECT * FROM oncefence.token_versions
                 WHERE made_because IN ('expired', 'suspect')) AS t
          FULL JOIN (SELECT * FROM oncefence.token_refreshes
                      WHERE outcome = 'activated') AS r
            ON r.org_id = t.org_id AND r.generation_id = t.generation_id
           AND r.to_version = t.version
         WHERE r.refresh_id IS NULL OR t.version IS NULL OR r.from_version <> t.version - 1
            OR r.because <> t.made_because
        """,
    ),
    Rule(
        name="an_open_renewal_stands_in_its_grant",
        meaning="a grant names the renewal that is out, and no other (C286)",
        query="""
        SELECT r.org_id, r.generation_id, r.refresh_id, a.open_refresh, a.state
          FROM oncefence.token_refreshes AS r
          JOIN oncefence.authorization_grants AS a
            ON a.org_id = r.org_id AND a.generation_id = r.generation_id
         WHERE r.settled_at IS NULL AND a.open_refresh IS DISTINCT FROM r.refresh_id
        """,
    ),
    Rule(
        name="quota_stays_within_its_limit",
        meaning="no more is reserved than the highest limit that was declared lets through (C300)",
        query="""
        SELECT coalesce(c.org_id, '*') AS org_id, c.quota_key, n.used, n.lookups, n.cursors,
               c.limit_max
          FROM oncefence.quota_counts AS c
         CROSS JOIN LATERAL (
            SELECT sum(t.u) AS used, sum(t.l) AS lookups, sum(t.c) AS cursors,
                   bool_or(t.l + t.c > t.u) AS is_torn
              FROM unnest(c.used, c.lookups, c.cursors) AS t (u, l, c)) AS n
         WHERE n.used > c.limit_max OR n.is_torn
        """,
    ),
    Rule(
        name="nothing_is_sent_without_its_quota",
        meaning="a marked attempt has a unit of every count that its command uses (C301)",
        query="""
        SELECT a.org_id, a.command_id, a.attempt_id
          FROM oncefence.effect_attempts AS a
          JOIN oncefence.commands AS c
            ON c.org_id = a.org_id AND c.command_id = a.command_id
         WHERE a.started_at IS NOT NULL
           AND jsonb_array_length(a.quota)
               <> (SELECT count(*) FROM jsonb_array_elements(c.quota) AS d
                    WHERE d ->> 'limit' IS NOT NULL)
        """,
    ),
    Rule(
        name="audit_rows_follow_one_another",
        meaning="the audit rows of an org are one chain, whole and as they were written (C406)",
        query=BROKEN_LINKS,
    ),
)
"""What may never be found, whatever happened."""


QUEUES: Final = (
    Rule(
        name="needs_attention",
        meaning="investigation has stopped; a person records the result",
        query="""
        SELECT e.org_id, e.command_id, e.execution_id, e.failure_class, e.changed_at AS since
          FROM oncefence.executions AS e
         WHERE e.status = 'needs_attention'
        """,
    ),
    Rule(
        name="contradiction",
        meaning="evidence speaks against what was recorded",
        query="""
        SELECT x.org_id, e.command_id, x.execution_id, x.evidence_id, v.kind, v.outcome,
               x.execution_status, x.seen_at AS since
          FROM oncefence.contradictions AS x
          JOIN oncefence.attempt_evidence AS v
            ON v.org_id = x.org_id AND v.evidence_id = x.evidence_id
          JOIN oncefence.executions AS e
            ON e.org_id = x.org_id AND e.execution_id = x.execution_id
        """,
    ),
    Rule(
        name="lookup_blocked",
        meaning="the provider has not been reached by a lookup for 24 hours (C266)",
        # The streak began after the last lookup that did reach it, else when the item was made.
        query=f"""
        SELECT w.org_id, w.command_id, w.execution_id, w.work_id, s.unreached_since AS since
          FROM oncefence.work_items AS w
          CROSS JOIN LATERAL (
               SELECT min(l.looked_at) AS unreached_since, max(l.looked_at) AS last_looked_at
                 FROM oncefence.lookups AS l
                WHERE l.org_id = w.org_id AND l.work_id = w.work_id AND l.verdict = 'unreachable'
                  AND l.looked_at > coalesce(
                      (SELECT max(r.looked_at) FROM oncefence.lookups AS r
                        WHERE r.org_id = w.org_id AND r.work_id = w.work_id
                          AND r.verdict <> 'unreachable'), '-infinity')) AS s
         -- Of a dispatch it is the look before a create.
         WHERE (w.family = 'effect.lookup' OR w.family IN {EFFECT_FAMILIES})
           AND w.state IN {_ACTIVE}
           AND s.unreached_since
               <= statement_timestamp() - CAST(:lookup_blocked_after AS interval)
        """,  # noqa: S608  # constants of this file
    ),
    Rule(
        name="lane_blocked",
        meaning="an item stands behind an execution in unknown or needs_attention",
        query="""
        SELECT w.org_id, w.command_id, w.execution_id, w.work_id,
               min(e.command_id::text) AS behind_command, min(e.changed_at) AS since
          FROM oncefence.work_items AS w
          JOIN oncefence.effect_attempts AS a
            ON a.org_id = w.org_id AND a.command_id <> w.command_id
           AND (a.source_lane = w.source_lane OR a.target_lane = w.target_lane)
           AND a.may_have_applied AND a.disposition IS NULL AND a.superseded_by IS NULL
          JOIN oncefence.executions AS e
            ON e.org_id = a.org_id AND e.execution_id = a.execution_id
           AND e.status IN ('unknown', 'needs_attention')
         WHERE w.state IN ('pending', 'retry')
         GROUP BY w.org_id, w.command_id, w.execution_id, w.work_id
        """,
    ),
    Rule(
        name="refresh_unknown",
        meaning="a principal's tokens cannot be renewed until a person authorises it anew (C291)",
        # The principal, and each command that waits for it.
        query=f"""
        SELECT a.org_id, w.command_id, w.execution_id, w.work_id, g.binding_id, a.generation_id,
               a.state, a.failure_class, a.changed_at AS since
          FROM oncefence.authorization_grants AS a
          JOIN oncefence.binding_generations AS g
            ON g.org_id = a.org_id AND g.generation_id = a.generation_id AND g.state = 'current'
          LEFT JOIN oncefence.commands AS c
            ON c.org_id = g.org_id AND c.generation_id = g.generation_id
           AND EXISTS (SELECT FROM oncefence.work_items AS i
                        WHERE i.org_id = c.org_id AND i.command_id = c.command_id
                          AND i.state IN {_ACTIVE})
          LEFT JOIN oncefence.work_items AS w
            ON w.org_id = c.org_id AND w.command_id = c.command_id AND w.state IN {_ACTIVE}
         WHERE a.state IN ('refresh_unknown', 'needs_reauthorization')
        """,  # noqa: S608  # constants of this file
    ),
    Rule(
        name="quarantined",
        meaning="a handoff key was offered again with another payload digest or outbox id",
        query="""
        SELECT q.org_id, h.command_id, q.handoff_key, q.field, q.verb, q.seen_at AS since
          FROM oncefence.handoff_conflicts AS q
          JOIN oncefence.handoffs AS h ON h.handoff_key = q.handoff_key
        """,
    ),
    Rule(
        name="legacy_outcome_unknown",
        meaning="an item was fenced by a rollback and its old owner left no clear outcome",
        query="""
        SELECT w.org_id, w.command_id, w.execution_id, w.work_id, w.changed_at AS since
          FROM oncefence.work_items AS w
         WHERE w.state = 'legacy_outcome_unknown'
        """,
    ),
)
"""The human queues that have facts in this version (C4). Standing in one is no violation."""


STANDINGS: Final = f"""
    SELECT h.org_id, h.handoff_key, h.command_id, e.execution_id, e.status, e.settled_by,
           e.failure_class,
           EXISTS (SELECT FROM oncefence.work_items AS w
                    WHERE w.org_id = h.org_id AND w.command_id = h.command_id
                      AND w.family = 'effect.lookup') AS was_unknown,
           e.status IN {_FINAL} AS is_final
      FROM oncefence.handoffs AS h
      LEFT JOIN oncefence.executions AS e
        ON e.org_id = h.org_id AND e.command_id = h.command_id
     WHERE h.admission = 'COMMAND_ACCEPTED'
     ORDER BY h.admitted_at, h.handoff_key
"""  # noqa: S608  # constants of this file
"""Where every accepted command stands; what the provider's ledger is compared with."""
