"""Reading the accounts of orgs: how each is connected, and what waits for it. No secrets."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.authorization import NOBODY, binding_version
from oncefence.domain.ids import OrgId
from oncefence.domain.operator import EVERY_ORG
from oncefence.storage.engine import one_statement, run_phase

_BINDING = """
    SELECT b.org_id AS org, b.binding_id, b.name, b.provider, b.kind, b.subject AS "user",
           b.is_local, b.base_url AS origin, g.base_url AS account_url, g.ordinal,
           g.state AS generation_state, g.flow, g.pack_grant, g.issuer, g.client_id, g.account,
           g.installation, coalesce(g.scopes, '{}') AS scopes, g.token_version,
           g.made_at AS connected_at, g.retired_at, g.retired_because,
           g.wrapped_key IS NOT NULL AS has_key, t.expires_at, t.refresh_expires_at,
           t.made_because AS token_made_because, a.state AS grant_state, a.not_before,
           a.failure_class AS grant_failure, r.outcome AS revocation,
           r.failure_class AS revocation_failure,
           (SELECT count(*) FROM oncefence.work_items AS w
             WHERE w.org_id = b.org_id AND w.binding_id = b.binding_id
               AND w.state IN ('pending', 'retry')) AS waiting
      FROM oncefence.principal_bindings AS b
      LEFT JOIN LATERAL (
            SELECT * FROM oncefence.binding_generations AS n
             WHERE n.org_id = b.org_id AND n.binding_id = b.binding_id
             ORDER BY n.ordinal DESC LIMIT 1) AS g ON true
      LEFT JOIN oncefence.token_versions AS t ON t.org_id = g.org_id
       AND t.generation_id = g.generation_id AND t.version = g.token_version
      LEFT JOIN oncefence.authorization_grants AS a
        ON a.org_id = g.org_id AND a.generation_id = g.generation_id
      LEFT JOIN LATERAL (
            SELECT * FROM oncefence.revocations AS v
             WHERE v.org_id = g.org_id AND v.generation_id = g.generation_id
             ORDER BY v.started_at DESC LIMIT 1) AS r ON true
"""
BINDINGS = text(
    _BINDING
    + """
     WHERE (CAST(:of_all AS boolean) OR b.org_id = ANY (CAST(:orgs AS text[])))
     ORDER BY b.org_id, b.name, b.subject NULLS FIRST
     LIMIT :limit
    """
)
ONE_BINDING = text(
    _BINDING
    + """
     WHERE b.org_id = :org AND b.name = :name
       AND b.subject IS NOT DISTINCT FROM CAST(:subject AS text)
    """
)
GENERATIONS = text(
    """
    SELECT g.generation_id, g.ordinal, g.state, g.flow, g.pack_grant, g.issuer, g.account,
           g.installation, g.scopes, g.token_version, g.made_at, g.retired_at, g.retired_because
      FROM oncefence.binding_generations AS g
     WHERE g.org_id = :org AND g.binding_id = :binding
     ORDER BY g.ordinal DESC LIMIT 50
    """
)
_REQUEST = """
    SELECT q.request_id, q.act, q.made_by, q.note, q.made_at, q.expires_at, q.used_at,
           q.failure_class, q.response_status, q.generation_id,
           coalesce(q.outcome, CASE
               -- Far longer than the call and its settlement may take: whoever made it is gone.
               WHEN q.used_at < clock_timestamp() - interval '2 minutes' THEN 'lost'
               WHEN q.used_at IS NOT NULL THEN 'under_way'
               WHEN q.expires_at <= clock_timestamp() THEN 'expired'
               ELSE 'open' END) AS outcome
      FROM oncefence.authorization_requests AS q
"""
REQUESTS = text(
    _REQUEST
    + """
     WHERE q.org_id = :org AND q.binding_id = :binding ORDER BY q.made_at DESC LIMIT 20
    """
)
ONE_REQUEST = text(_REQUEST + " WHERE q.org_id = :org AND q.request_id = :request")
CLASSES = text(
    """
    SELECT DISTINCT w.queue_class
      FROM oncefence.work_items AS w
     WHERE w.org_id = :org AND w.binding_id = :binding AND w.queue_class >= ''
       AND w.state IN ('pending', 'retry')
     ORDER BY w.queue_class
    """
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedBinding:
    """A binding with its newest generation; what is of that is None of one never connected."""

    org: str
    binding_id: UUID
    name: str
    provider: str
    kind: str
    user: str | None
    is_local: bool
    origin: str
    account_url: str | None
    ordinal: int | None
    generation_state: str | None
    flow: str | None
    pack_grant: str | None
    issuer: str | None
    client_id: str | None
    account: str | None
    installation: str | None
    scopes: list[str]
    token_version: int | None
    connected_at: datetime | None
    retired_at: datetime | None
    retired_because: str | None
    has_key: bool
    expires_at: datetime | None
    refresh_expires_at: datetime | None
    token_made_because: str | None
    grant_state: str | None
    not_before: datetime | None
    grant_failure: str | None
    revocation: str | None
    revocation_failure: str | None
    waiting: int

    @property
    def version(self) -> str:
        """What an act on it names as expected."""
        return binding_version(self.ordinal, self.generation_state)

    @property
    def state(self) -> str:
        """connected, disconnected, or absent."""
        return {"current": "connected", "retired": "disconnected"}.get(
            self.generation_state or "", NOBODY
        )

    @property
    def base_url(self) -> str:
        """Where its requests go."""
        return self.account_url or self.origin


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGeneration:
    """One generation of a binding."""

    generation_id: UUID
    ordinal: int
    state: str
    flow: str
    pack_grant: str | None
    issuer: str | None
    account: str | None
    installation: str | None
    scopes: list[str]
    token_version: int
    made_at: datetime
    retired_at: datetime | None
    retired_because: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRequest:
    """A request for authorisation; `outcome` is also open, expired or under_way."""

    request_id: UUID
    act: str
    made_by: str
    note: str
    made_at: datetime
    expires_at: datetime
    used_at: datetime | None
    failure_class: str | None
    response_status: int | None
    generation_id: UUID | None
    outcome: str


async def list_bindings(
    engine: AsyncEngine, orgs: Collection[OrgId], *, limit: int = 1000
) -> Sequence[ListedBinding]:
    """The bindings of these orgs, each with its newest generation, by name."""
    asked = {"of_all": EVERY_ORG in orgs, "orgs": sorted(orgs), "limit": limit}
    rows = await _read(engine, "list_bindings", BINDINGS, asked)
    return [ListedBinding(**row) for row in rows]


async def find_binding(
    engine: AsyncEngine, org: OrgId, name: str, user: str | None
) -> ListedBinding | None:
    """The binding of this name, or that of one of its users."""
    asked = {"org": org, "name": name, "subject": user}
    rows = await _read(engine, "find_binding", ONE_BINDING, asked)
    return ListedBinding(**rows[0]) if rows else None


async def list_generations(
    engine: AsyncEngine, org: OrgId, binding: UUID
) -> Sequence[ListedGeneration]:
    """The generations of a binding, newest first."""
    rows = await _read(engine, "list_generations", GENERATIONS, {"org": org, "binding": binding})
    return [ListedGeneration(**row) for row in rows]


async def list_requests(engine: AsyncEngine, org: OrgId, binding: UUID) -> Sequence[ListedRequest]:
    """What was asked to be connected for a binding, newest first."""
    rows = await _read(engine, "list_requests", REQUESTS, {"org": org, "binding": binding})
    return [ListedRequest(**row) for row in rows]


async def find_request(engine: AsyncEngine, org: OrgId, request: UUID) -> ListedRequest | None:
    """What a request for authorisation came to, or that it is open still."""
    rows = await _read(engine, "find_request", ONE_REQUEST, {"org": org, "request": request})
    return ListedRequest(**rows[0]) if rows else None


async def find_bound_classes(engine: AsyncEngine, org: OrgId, binding: UUID) -> Sequence[str]:
    """The endpoint classes of what waits with this binding."""
    rows = await _read(engine, "find_bound_classes", CLASSES, {"org": org, "binding": binding})
    return [row["queue_class"] for row in rows]


async def _read(
    engine: AsyncEngine, verb: str, statement: TextClause, values: Mapping[str, object]
) -> Sequence[Mapping[str, Any]]:
    async def transaction() -> Sequence[Mapping[str, Any]]:
        async with one_statement(engine).connect() as connection:
            rows = (await connection.execute(statement, values)).mappings().all()
            return [dict(row) for row in rows]

    return await run_phase(verb, transaction)
