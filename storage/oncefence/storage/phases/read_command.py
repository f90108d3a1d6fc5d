"""One page about one command: everything that happened to it, and nothing that is sealed (C408)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from oncefence.domain.errors import NoSuchTarget, Refused
from oncefence.domain.ids import OrgId
from oncefence.storage.engine import run_phase

SNAPSHOT = text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")

# Whatever name a person has for a command: its own id, that of its execution or of one of its
# items or attempts, or its handoff key.
FIND = text(
    """
    SELECT DISTINCT f.org_id, f.command_id FROM (
        SELECT org_id, command_id FROM oncefence.commands
         WHERE command_id = CAST(:id AS uuid) OR handoff_key = :name
        UNION ALL
        SELECT org_id, command_id FROM oncefence.executions
         WHERE execution_id = CAST(:id AS uuid)
        UNION ALL
        SELECT org_id, command_id FROM oncefence.work_items WHERE work_id = CAST(:id AS uuid)
        UNION ALL
        SELECT org_id, command_id FROM oncefence.effect_attempts
         WHERE attempt_id = CAST(:id AS uuid)) AS f
     WHERE f.command_id IS NOT NULL AND (CAST(:org AS text) IS NULL OR f.org_id = :org)
     ORDER BY f.org_id, f.command_id
    """
)
ADMISSION = text(
    "SELECT org_id, admission, reason, admitted_at FROM oncefence.handoffs"
    " WHERE handoff_key = :name AND (CAST(:org AS text) IS NULL OR org_id = :org)"
)

SECTIONS: Final[Mapping[str, str]] = {
    "handoff": """
        SELECT handoff_key, admission, outbox_id, installation, capability, receipt_version,
               admitted_at, retained_until
          FROM oncefence.handoffs WHERE org_id = :org AND command_id = :command
    """,
    "conflicts": """
        SELECT q.field, q.verb, q.offered_outbox_id, q.seen_at
          FROM oncefence.handoff_conflicts AS q
          JOIN oncefence.handoffs AS h ON h.handoff_key = q.handoff_key
         WHERE h.org_id = :org AND h.command_id = :command ORDER BY q.seen_at
    """,
    "command": """
        SELECT org_id, command_id, operation, subject, provider, endpoint_class, request_method,
               request_target, idempotency_key IS NOT NULL AS has_idempotency_key, deadline_ms,
               is_sensitive, accepted_at
          FROM oncefence.commands WHERE org_id = :org AND command_id = :command
    """,
    "execution": """
        SELECT execution_id, status, via, attempt, settlements, failure_class, settled_by,
               evidence_grade, accepted_at, changed_at
          FROM oncefence.executions WHERE org_id = :org AND command_id = :command
    """,
    "items": """
        SELECT work_id, family, state, via, run_after, attempt, claims_lost, ownership_epoch,
               lease_until, outcome, failure_class, source_lane, source_sequence, target_lane,
               target_sequence, changed_at
          FROM oncefence.work_items WHERE org_id = :org AND command_id = :command
         ORDER BY made_at, work_id
    """,
    "attempts": """
        SELECT ordinal, attempt_id, work_id, ownership_epoch, started_at, settled_at, settled_as,
               outcome, may_have_applied, failure_class, response_status, phases,
               provider_receipt, disposition, disposed_at, superseded_by
          FROM oncefence.effect_attempts WHERE org_id = :org AND command_id = :command
         ORDER BY ordinal
    """,
    "evidence": """
        SELECT v.evidence_id, v.attempt_id, v.kind, v.outcome, v.response_status, v.phases,
               v.provider_receipt, v.execution_status, v.verdict, v.recorded_at
          FROM oncefence.attempt_evidence AS v
          JOIN oncefence.effect_attempts AS a
            ON a.org_id = v.org_id AND a.attempt_id = v.attempt_id
         WHERE a.org_id = :org AND a.command_id = :command ORDER BY v.recorded_at
    """,
    "lookups": """
        SELECT l.try, l.reading, l.verdict, l.grade, l.response_status, l.phases,
               l.provider_receipt, l.looked_at
          FROM oncefence.lookups AS l
          JOIN oncefence.executions AS e
            ON e.org_id = l.org_id AND e.execution_id = l.execution_id
         WHERE e.org_id = :org AND e.command_id = :command ORDER BY l.looked_at
    """,
    "contradictions": """
        SELECT x.evidence_id, x.execution_status, x.seen_at
          FROM oncefence.contradictions AS x
          JOIN oncefence.executions AS e
            ON e.org_id = x.org_id AND e.execution_id = x.execution_id
         WHERE e.org_id = :org AND e.command_id = :command ORDER BY x.seen_at
    """,
    "link": """
        SELECT l.link_id, l.local_object, l.subject, l.remote_object, l.remote_id, l.state,
               l.version, c.link_version AS pinned_version
          FROM oncefence.commands AS c
          JOIN oncefence.remote_links AS l ON l.org_id = c.org_id AND l.link_id = c.link_id
         WHERE c.org_id = :org AND c.command_id = :command
    """,
    "binding": """
        SELECT b.name, b.provider, b.kind, b.base_url, b.is_local, g.generation_id,
               g.ordinal AS generation, g.state AS generation_state, v.name AS view,
               v.revision AS view_revision, c.view_digest
          FROM oncefence.commands AS c
          JOIN oncefence.principal_bindings AS b
            ON b.org_id = c.org_id AND b.binding_id = c.binding_id
          JOIN oncefence.binding_generations AS g
            ON g.org_id = c.org_id AND g.generation_id = c.generation_id
          JOIN oncefence.binding_views AS v ON v.org_id = c.org_id AND v.view_id = c.view_id
         WHERE c.org_id = :org AND c.command_id = :command
    """,
    "completions": """
        SELECT n.completion_id, n.settlement, n.status, n.supersedes,
               n.contract ->> 'command' AS local_command, n.made_at, n.delivered_at
          FROM oncefence.completions AS n
          JOIN oncefence.executions AS e
            ON e.org_id = n.org_id AND e.execution_id = n.execution_id
         WHERE e.org_id = :org AND e.command_id = :command ORDER BY n.settlement
    """,
    # What was done by hand to anything that this command stands on.
    "audit": """
        SELECT u.at, u.actor, u.act, u.subject_kind, u.subject_id, u.note
          FROM oncefence.audit AS u
          JOIN oncefence.commands AS c ON c.org_id = u.org_id AND c.command_id = :command
         WHERE u.org_id = :org AND u.subject_id IN (
               c.command_id::text, c.handoff_key, c.view_id::text, c.binding_id::text,
               c.generation_id::text, c.link_id::text,
               (SELECT e.execution_id::text FROM oncefence.executions AS e
                 WHERE e.org_id = c.org_id AND e.command_id = c.command_id))
         ORDER BY u.audit_id
    """,
}
"""Each section of the page with what fills it. No column of these is a payload or a secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandPage:
    """The rows of each section, in the order of `SECTIONS`; a section may be empty."""

    org: OrgId
    command: UUID
    sections: Mapping[str, Sequence[Mapping[str, Any]]]


@dataclass(eq=False)
class CommandAmbiguous(Refused):
    """More than one org has a command of this name."""

    orgs: tuple[str, ...]

    def __str__(self) -> str:
        return f"that names a command in each of {', '.join(self.orgs)}; say which with --org"


async def read_command(engine: AsyncEngine, name: str, *, org: OrgId | None) -> CommandPage:
    """
    The page of the command that `name` stands for, all of one moment.

    Raises:
        NoSuchTarget: Nothing has that name (in `org`), or only a rejected handoff has.
        CommandAmbiguous: Several orgs have one.
    """

    async def transaction() -> CommandPage:
        async with engine.begin() as connection:
            await connection.execute(SNAPSHOT)
            found = await _find(connection, name, org)
            place = {"org": found.org_id, "command": found.command_id}
            sections = {}
            for section, query in SECTIONS.items():
                rows = await connection.execute(text(query), place)
                sections[section] = [dict(row) for row in rows.mappings()]
            return CommandPage(org=OrgId(found.org_id), command=found.command_id, sections=sections)

    return await run_phase("read_command", transaction)


async def _find(connection: AsyncConnection, name: str, org: OrgId | None) -> Any:
    """The row of FIND; Any, because rows have the columns of their statement."""
    try:
        identity = UUID(name)
    except ValueError:
        identity = None
    rows = (await connection.execute(FIND, {"id": identity, "name": name, "org": org})).all()
    if len(rows) > 1:
        raise CommandAmbiguous(orgs=tuple(sorted({row.org_id for row in rows})))
    if rows:
        return rows[0]
    admission = (await connection.execute(ADMISSION, {"name": name, "org": org})).one_or_none()
    if admission is not None:
        raise NoSuchTarget(
            kind="command of the rejected handoff",
            name=name,
            remedy=f"it was rejected on {admission.admitted_at:%Y-%m-%d %H:%M:%S %Z}, "
            f"because: {admission.reason}",
        )
    if name.startswith("ehk1."):
        raise NoSuchTarget(
            kind="admission for the handoff key",
            name=name,
            remedy="it is undecided: hand it over again, or reject it",
        )
    raise NoSuchTarget(
        kind="command",
        name=name,
        remedy="give the id of a command, execution, item or attempt, or a whole handoff key",
    )
