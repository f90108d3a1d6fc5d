"""
A small world on a real database, built through the same phases that the program uses.

Each world is an org of its own, so many can share one database; its methods read as sentences.
"""

import itertools
import json
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.catalog.loader import load_binding, load_pack
from oncefence.catalog.view import IntegrationBindingView, compile_view
from oncefence.domain.command import Handover, Receipt
from oncefence.domain.effect import Outcome
from oncefence.domain.fence import Fence
from oncefence.domain.handoff import EffectHandoffKey, TrustedRuntimeWorkScope, payload_digest
from oncefence.domain.ids import (
    AttemptId,
    CapabilityId,
    CommandId,
    ExecutionId,
    InstallationId,
    LeaseToken,
    LinkId,
    OrgId,
    OutboxId,
    PrincipalBindingId,
    WorkBindingDigest,
    WorkId,
)
from oncefence.domain.limits import Limits
from oncefence.domain.lookup import Grade, Verdict
from oncefence.domain.redaction import Secret
from oncefence.storage.claims import NotStarted
from oncefence.storage.phases.accept_handoff import accept_handoff
from oncefence.storage.phases.add_principal_binding import add_principal_binding
from oncefence.storage.phases.adopt_link import adopt_link
from oncefence.storage.phases.authenticate import Caller, authenticate
from oncefence.storage.phases.find_work import WorkRef
from oncefence.storage.phases.publish_view import publish_view
from oncefence.storage.phases.record_evidence import Recorded, record_evidence
from oncefence.storage.phases.register_runtime import register_runtime
from oncefence.storage.phases.reject_handoff import reject_handoff
from oncefence.storage.phases.settle_attempt import AttemptEnd, Settled, settle_attempt
from oncefence.storage.phases.settle_lookup import LookupEnd, LookupSettled, settle_lookup
from oncefence.storage.phases.settle_lost_attempt import settle_lost_attempt
from oncefence.storage.phases.stage_payload import stage_payload
from oncefence.storage.phases.start_attempt import Started, start_attempt
from oncefence.storage.phases.start_lookup import LookupStarted, start_lookup
from oncefence.storage.sealing import KeyRing
from tests.support.servers import Database

EXAMPLE_BINDING = Path(__file__).parents[2] / "docs" / "examples" / "lead-title.binding.toml"
NO_QUOTA = "\n[quota]\nburst = false\ndaily = false\n"
UNCOUNTED = EXAMPLE_BINDING.read_text(encoding="utf-8") + NO_QUOTA
"""The example for an account of the tests: many send more through one than it would be let."""

OPERATION = "lead.title.push"
PRINCIPAL = "hubspot-main"
TOKEN = "token-of-the-tests"
INSTALLATION = InstallationId("crm")

_numbers = itertools.count(1)


def example_view(*, is_sensitive: bool = False, quota: str = NO_QUOTA) -> IntegrationBindingView:
    """The view of the example binding over the pack that ships, sensitive where a test needs it."""
    text = UNCOUNTED.replace(NO_QUOTA, quota)
    if is_sensitive:
        text = text.replace("sensitive = false", "sensitive = true")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "example.binding.toml"
        path.write_text(text, encoding="utf-8")
        return compile_view(load_pack("hubspot"), load_binding(path))


def scope_of(org: str, *, capability: str = "outbox") -> TrustedRuntimeWorkScope:
    """A scope of `org` with everything else as the tests have it."""
    return TrustedRuntimeWorkScope(
        org=OrgId(org),
        installation=INSTALLATION,
        capability=CapabilityId(capability),
        work_binding_digest=WorkBindingDigest("ab" * 32),
    )


def an_end(
    outcome: Outcome,
    *,
    may_have_applied: bool | None = None,
    failure_class: str | None = None,
    response_status: int | None = None,
    receipt: dict[str, str] | None = None,
    sealed_answer: bytes | None = None,
    retry_after_seconds: float = 1.0,
) -> AttemptEnd:
    """How an attempt ended; whether it may have applied follows the outcome unless told."""
    if may_have_applied is None:
        may_have_applied = outcome in (Outcome.OUTCOME_UNKNOWN, Outcome.ACCEPTED)
    return AttemptEnd(
        outcome=outcome,
        may_have_applied=may_have_applied,
        failure_class=failure_class,
        response_status=response_status,
        receipt=receipt or {},
        phases={},
        sealed_answer=sealed_answer,
        retry_after_seconds=retry_after_seconds,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """An accepted command by its identities."""

    handover: Handover
    receipt: Receipt
    command: CommandId
    execution: ExecutionId
    work: WorkId


class World:
    """One org with a Runtime, a published binding, an account and links, and what is done in it."""

    def __init__(
        self,
        *,
        database: Database,
        org: OrgId,
        ring: KeyRing,
        caller: Caller,
        credential: str,
        binding: PrincipalBindingId,
        limits: Limits,
    ) -> None:
        self.database = database
        self.engine: AsyncEngine = database.app_engine
        self.org = org
        self.ring = ring
        self.caller = caller
        self.credential = credential
        self.binding = binding
        self.limits = limits
        self.links: dict[str, LinkId] = {}

    @classmethod
    async def make(
        cls,
        database: Database,
        *,
        org: str | None = None,
        is_sensitive: bool = False,
        limits: Limits | None = None,
        ring: KeyRing | None = None,
        view: IntegrationBindingView | None = None,
    ) -> "World":
        """A world of its own: registered, published, bound, and without links so far."""
        name = OrgId(org or f"org-{next(_numbers)}")
        ring = ring or KeyRing({"test-key": secrets.token_bytes(32)})
        engine = database.app_engine
        scope = scope_of(name)
        credential = await register_runtime(engine, ring, scope, actor="tests")
        caller = await authenticate(engine, ring, credential)
        assert caller is not None, "a registered credential is known"
        view = view or example_view(is_sensitive=is_sensitive)
        await publish_view(engine, name, INSTALLATION, view, actor="tests")
        binding = await add_principal_binding(
            engine,
            ring,
            name,
            name=PRINCIPAL,
            provider="hubspot",
            base_url="http://127.0.0.1:1",
            is_local=True,
            token=Secret(TOKEN),
            actor="tests",
        )
        return cls(
            database=database,
            org=name,
            ring=ring,
            caller=caller,
            credential=credential,
            binding=binding,
            limits=limits or Limits(),
        )

    # --- coming in ---------------------------------------------------------------------------

    async def link(self, subject: str) -> LinkId:
        """The link of `subject`, adopted when it is first asked for."""
        if subject not in self.links:
            self.links[subject] = await adopt_link(
                self.engine,
                self.org,
                binding_name=PRINCIPAL,
                local_object="lead",
                subject=subject,
                remote_object="contact",
                remote_id=str(1000 + len(self.links)),
                actor="tests",
            )
        return self.links[subject]

    async def offer(
        self,
        subject: str = "lead-1",
        *,
        title: str = "Director",
        outbox: str | None = None,
        also: Mapping[str, object] | None = None,
    ) -> Handover:
        """A handover that could be accepted: link adopted, payload staged."""
        await self.link(subject)
        payload = json.dumps({"title": title, **(also or {})}).encode()
        digest = payload_digest(payload)
        await stage_payload(self.engine, self.ring, self.caller, digest, payload)
        entry = OutboxId(outbox or f"outbox-{next(_numbers)}")
        return Handover(
            key=EffectHandoffKey.for_outbox(self.caller.scope, entry),
            outbox=entry,
            digest=digest,
            operation=OPERATION,
            subject=subject,
        )

    async def accept(self, handover: Handover) -> Receipt:
        """What acceptance says to `handover`."""
        return await accept_handoff(self.engine, self.ring, self.caller, handover, self.limits)

    async def reject(self, handover: Handover, reason: str = "withdrawn") -> Receipt:
        """What rejection says to the key of `handover`."""
        return await reject_handoff(
            self.engine,
            self.caller,
            handover.key,
            digest=handover.digest,
            outbox=handover.outbox,
            reason=reason,
            limits=self.limits,
        )

    async def accept_command(
        self,
        subject: str = "lead-1",
        *,
        title: str = "Director",
        outbox: str | None = None,
        also: Mapping[str, object] | None = None,
    ) -> Accepted:
        """An accepted command on `subject`, whose payload has `also` these members."""
        handover = await self.offer(subject, title=title, outbox=outbox, also=also)
        receipt = await self.accept(handover)
        assert receipt.command is not None, "it was accepted"
        assert receipt.execution is not None, "it was accepted"
        assert receipt.work is not None, "it was accepted"
        return Accepted(
            handover=handover,
            receipt=receipt,
            command=receipt.command,
            execution=receipt.execution,
            work=receipt.work,
        )

    # --- the way of a command ----------------------------------------------------------------

    async def try_to_start(
        self,
        accepted: Accepted,
        *,
        as_of: datetime | None = None,
        token: LeaseToken | None = None,
        owner: UUID | None = None,
    ) -> Started | NotStarted:
        """What the dispatch mark says; as of the moment the item is due, unless told."""
        if as_of is None:
            as_of = max(await self.now(), (await self.item(accepted.work)).run_after)
        return await start_attempt(
            self.engine,
            self.org,
            accepted.work,
            as_of=as_of,
            owner=owner or uuid4(),
            token=token or LeaseToken(uuid4()),
            limits=self.limits,
        )

    async def start(
        self,
        accepted: Accepted,
        *,
        as_of: datetime | None = None,
        token: LeaseToken | None = None,
    ) -> Started:
        """A marked attempt of `accepted`."""
        started = await self.try_to_start(accepted, as_of=as_of, token=token)
        assert isinstance(started, Started), started
        return started

    async def settle(
        self,
        started: Started,
        outcome: Outcome | AttemptEnd,
        *,
        may_have_applied: bool | None = None,
        as_of: datetime | None = None,
    ) -> Settled:
        """The attempt settled by its starter."""
        end = outcome
        if isinstance(end, Outcome):
            end = an_end(end, may_have_applied=may_have_applied)
        return await settle_attempt(
            self.engine,
            started.fence,
            started.attempt,
            end,
            as_of=as_of or await self.now(),
            limits=self.limits,
        )

    async def expire_lease(self, work: WorkId) -> None:
        """The lease of `work` ended a second ago."""
        await self.sql(
            "UPDATE oncefence.work_items SET lease_until = clock_timestamp() - interval '1 second'"
            " WHERE org_id = :org AND work_id = :work",
            work=work,
        )

    async def settle_as_lost(self, work: WorkId) -> WorkRef | None:
        """What there is to settle as lost in `work`."""
        return await settle_lost_attempt(self.engine, self.org, work, as_of=await self.now())

    async def lose(self, started: Started) -> WorkId:
        """The starter is gone, its lease ended, and its attempt is settled as lost."""
        await self.expire_lease(started.fence.work)
        lost = await self.settle_as_lost(started.fence.work)
        assert lost is not None, "there was an attempt to lose"
        return lost.work

    async def tell(self, started: Started, end: AttemptEnd) -> Recorded:
        """Late evidence of the starter."""
        return await record_evidence(
            self.engine, started.fence, started.attempt, end, as_of=await self.now()
        )

    async def try_to_look(
        self,
        lookup_work: WorkId,
        *,
        as_of: datetime | None = None,
        token: LeaseToken | None = None,
    ) -> LookupStarted | NotStarted:
        """What the claim of a lookup says; as of the moment it is due, unless told."""
        if as_of is None:
            as_of = max(await self.now(), (await self.item(lookup_work)).run_after)
        return await start_lookup(
            self.engine,
            self.org,
            lookup_work,
            as_of=as_of,
            owner=uuid4(),
            token=token or LeaseToken(uuid4()),
            limits=self.limits,
        )

    async def start_looking(self, lookup_work: WorkId) -> LookupStarted:
        """A claimed lookup."""
        looking = await self.try_to_look(lookup_work)
        assert isinstance(looking, LookupStarted), looking
        return looking

    async def conclude(
        self, looking: LookupStarted, verdict: Verdict, *, as_of: datetime | None = None
    ) -> LookupSettled:
        """The claimed lookup settled with `verdict`."""
        return await self.settle_looking(
            looking.fence, verdict, is_sensitive=looking.is_sensitive, as_of=as_of
        )

    async def settle_looking(
        self,
        fence: Fence,
        verdict: Verdict,
        *,
        is_sensitive: bool = False,
        as_of: datetime | None = None,
    ) -> LookupSettled:
        """The lookup that `fence` holds settled with `verdict`."""
        end = LookupEnd(
            verdict=verdict,
            reading=verdict.value,
            grade=Grade.STATE,
            response_status=None,
            receipt={},
            phases={},
        )
        return await settle_lookup(
            self.engine,
            fence,
            end,
            is_sensitive=is_sensitive,
            as_of=as_of or await self.now(),
            limits=self.limits,
        )

    async def look(
        self, lookup_work: WorkId, verdict: Verdict, *, as_of: datetime | None = None
    ) -> LookupSettled:
        """One lookup, claimed when it is due and settled with `verdict`."""
        return await self.conclude(await self.start_looking(lookup_work), verdict, as_of=as_of)

    # --- shortcuts to a state ----------------------------------------------------------------

    async def a_running_command(self, subject: str = "lead-1") -> tuple[Accepted, Started]:
        """A command whose attempt is open."""
        accepted = await self.accept_command(subject)
        return accepted, await self.start(accepted)

    async def an_unknown_command(self, subject: str = "lead-1") -> tuple[Accepted, Started, WorkId]:
        """A command whose attempt was lost, with its lookup item."""
        accepted, started = await self.a_running_command(subject)
        return accepted, started, await self.lose(started)

    async def a_command_for_a_person(self, subject: str = "lead-1") -> tuple[Accepted, Started]:
        """A command in needs_attention."""
        accepted, started, lookup_work = await self.an_unknown_command(subject)
        await self.look(lookup_work, Verdict.UNUSABLE)
        return accepted, started

    # --- what others do meanwhile ------------------------------------------------------------

    async def change_link(self, subject: str, state: str = "active") -> None:
        """The link of `subject` gets its next version in `state`."""
        await self.sql(
            "UPDATE oncefence.remote_links SET version = version + 1, state = :state"
            " WHERE org_id = :org AND link_id = :link",
            link=self.links[subject],
            state=state,
        )

    async def retire_generation(self) -> None:
        """The account was reconnected: the pinned generation is no longer the current one."""
        await self.sql(
            "UPDATE oncefence.binding_generations SET state = 'retired'"
            " WHERE org_id = :org AND binding_id = :binding",
            binding=self.binding,
        )

    async def give_idempotency_key(self, accepted: Accepted, *, window_seconds: int) -> None:
        """
        The provider takes an idempotency key for this command.

        No pack that the example uses has one, so the frozen command is rewritten behind its guard.
        """
        connection = await asyncpg.connect(self.database.admin_url)
        try:
            async with connection.transaction():
                await connection.execute("SET LOCAL session_replication_role = replica")
                await connection.execute(
                    "UPDATE oncefence.commands SET idempotency_key = $1,"
                    " replay_window_seconds = $2 WHERE org_id = $3 AND command_id = $4",
                    str(accepted.command),
                    window_seconds,
                    self.org,
                    accepted.command,
                )
        finally:
            await connection.close()

    # --- what stands -------------------------------------------------------------------------

    async def now(self) -> datetime:
        """The database's clock."""
        moment = (await self.sql("SELECT clock_timestamp() WHERE :org <> ''"))[0][0]
        assert isinstance(moment, datetime)
        return moment

    async def sql(self, statement: str, **values: object) -> Sequence[Row[Any]]:
        """One statement of the application role in a transaction of its own; `:org` is known."""
        async with self.engine.begin() as connection:
            result = await connection.execute(text(statement), {"org": self.org, **values})
            return result.all() if result.returns_rows else []

    async def transaction(self, *statements: str, **values: object) -> None:
        """Several statements of the application role, committed together."""
        async with self.engine.begin() as connection:
            for statement in statements:
                await connection.execute(text(statement), {"org": self.org, **values})

    async def item(self, work: WorkId) -> Row[Any]:
        """The WorkItem."""
        rows = await self.sql(
            "SELECT * FROM oncefence.work_items WHERE org_id = :org AND work_id = :work", work=work
        )
        return rows[0]

    async def execution(self, accepted: Accepted) -> Row[Any]:
        """The command's execution."""
        rows = await self.sql(
            "SELECT * FROM oncefence.executions WHERE org_id = :org AND execution_id = :execution",
            execution=accepted.execution,
        )
        return rows[0]

    async def states(self, accepted: Accepted) -> tuple[str, str]:
        """The dispatch item's state and the execution's status."""
        item, execution = await self.item(accepted.work), await self.execution(accepted)
        return item.state, execution.status

    async def attempt(self, attempt: AttemptId) -> Row[Any]:
        """One effect attempt."""
        rows = await self.sql(
            "SELECT * FROM oncefence.effect_attempts WHERE org_id = :org AND attempt_id = :attempt",
            attempt=attempt,
        )
        return rows[0]

    async def of_command(self, table: str, accepted: Accepted) -> Sequence[Row[Any]]:
        """The rows of a table that belong to the command, or to its execution, oldest first."""
        by, value = (
            ("execution_id", accepted.execution)
            if table in ("lookups", "completions", "contradictions")
            else ("command_id", accepted.command)
        )
        order = {
            "effect_attempts": "ordinal",
            "completions": "settlement",
            "lookups": "looked_at",
            "work_items": "made_at, work_id",
        }
        return await self.sql(
            f"SELECT * FROM oncefence.{table} WHERE org_id = :org AND {by} = :value"
            f" ORDER BY {order.get(table, by)}",
            value=value,
        )

    async def count(self, table: str) -> int:
        """How many rows of a table this org has."""
        rows = await self.sql(f"SELECT count(*) FROM oncefence.{table} WHERE org_id = :org")
        return int(rows[0][0])


def seconds(amount: float) -> timedelta:
    """A span of time, short to write."""
    return timedelta(seconds=amount)
