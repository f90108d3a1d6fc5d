"""Acceptance: one handoff key becomes one command, one execution and one WorkItem, or nothing."""

import json
from functools import lru_cache
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.catalog.freeze import FrozenRequest
from oncefence.catalog.view import BoundOperation, IntegrationBindingView
from oncefence.domain import ids
from oncefence.domain.command import ExternalCommand, Handover, Receipt
from oncefence.domain.errors import (
    HandoffAlreadyRejected,
    HandoffConflict,
    NoSuchTarget,
    ScopeRefused,
)
from oncefence.domain.handoff import Admission, EffectHandoffKey, payload_digest
from oncefence.domain.ids import (
    BindingGenerationId,
    CommandId,
    LinkId,
    OutboxId,
    PrincipalBindingId,
    ViewId,
)
from oncefence.domain.limits import Limits
from oncefence.domain.remote_link import LinkPin
from oncefence.storage import handoff_conflicts, handoffs
from oncefence.storage.engine import one_statement, run_phase
from oncefence.storage.frozen import seal_request
from oncefence.storage.phases.authenticate import Caller
from oncefence.storage.phases.refuse_scope import refuse_other_scope
from oncefence.storage.sealing import KeyRing
from oncefence.storage.sql_files import sql_file

ACCEPT = text(sql_file("accept_handoff"))

# Everything that acceptance relies on, in one read. Nothing of it is locked: the command pins
# what it found, and the dispatch mark checks the pins under lock.
CONTEXT = text(
    """
    SELECT v.view_id, v.digest AS view_digest, v.content AS view_content,
           v.principal_binding, b.binding_id, b.provider, g.generation_id,
           l.link_id, l.version AS link_version, l.state AS link_state, l.remote_id,
           s.wrapped_key, s.key_id, s.ciphertext
      FROM (VALUES (1)) AS one (row)
      LEFT JOIN oncefence.binding_views AS v
        ON v.org_id = :org AND v.installation = :installation AND :operation = ANY (v.operations)
       AND v.revision = (SELECT max(n.revision) FROM oncefence.binding_views AS n
                          WHERE n.org_id = v.org_id AND n.installation = v.installation
                            AND n.name = v.name)
      LEFT JOIN oncefence.principal_bindings AS b
        ON b.org_id = v.org_id AND b.name = v.principal_binding
      LEFT JOIN oncefence.binding_generations AS g
        ON g.org_id = b.org_id AND g.binding_id = b.binding_id AND g.state = 'current'
      LEFT JOIN oncefence.remote_links AS l
        ON l.org_id = b.org_id AND l.binding_id = b.binding_id AND l.subject = :subject
       AND l.local_object = v.local_objects[array_position(v.operations, :operation)]
       AND l.state <> 'retired'
      LEFT JOIN oncefence.staged_payloads AS s
        ON s.org_id = :org AND s.payload_address = :address AND s.wrapped_key IS NOT NULL
    """
)


async def accept_handoff(
    engine: AsyncEngine, ring: KeyRing, caller: Caller, handover: Handover, limits: Limits
) -> Receipt:
    """
    The receipt of `handover`: newly accepted, or what its key came to before.

    Idempotent: a repeat after a lost answer finds what the first one wrote.

    Raises:
        ScopeRefused: The key is not of the caller's scope.
        HandoffConflict: The key is taken with another payload digest or outbox id.
        HandoffAlreadyRejected: A rejection receipt stands.
        NoSuchTarget: Operation, binding, link or payload is not there. No admission was written.
        PayloadRefused: The payload cannot become the operation's request. Likewise.
    """
    await refuse_other_scope(engine, caller.scope, handover.key, verb="accept")
    before = await find_admission(engine, handover.key)
    if before is not None:
        return await _repeated(engine, caller, handover, before)
    operation, context, payload = await _resolve(engine, ring, caller, handover)
    request = operation.freeze(payload, remote_id=context.remote_id)
    command = _command(handover, operation, context)
    values = {
        **_admission_values(caller, handover, limits.retention_days),
        **_command_values(command),
        **_request_values(ring, caller, command.command, request, payload),
        "completion_contract": json.dumps(operation.completion.model_dump(mode="json")),
    }

    async def transaction() -> Row[Any]:
        async with one_statement(engine).connect() as connection:
            return (await connection.execute(ACCEPT, values)).one()

    written = await run_phase("accept_handoff", transaction)
    if written.admissions:
        whole = (written.commands, written.sealed, written.items) == (1, 2, 1)
        assert whole, "acceptance is whole"
        return Receipt(
            admission=Admission.COMMAND_ACCEPTED,
            key=handover.key,
            admitted_at=written.admitted_at,
            is_new=True,
            command=command.command,
            execution=ids.execution_id(command.command),
            work=ids.dispatch_work_id(command.command, 1),
            due=written.run_after,
            deadline_ms=command.deadline_ms,
        )
    row = await find_admission(engine, handover.key)
    if row is None:
        # The key collided with a row that this org may not see.
        raise ScopeRefused
    return await _repeated(engine, caller, handover, row)


async def find_admission(engine: AsyncEngine, key: EffectHandoffKey) -> Row[Any] | None:
    """The admission row of `key`, read without a lock."""

    async def transaction() -> Row[Any] | None:
        async with one_statement(engine).connect() as connection:
            return await handoffs.find(connection, key)

    return await run_phase("find_admission", transaction)


def receipt_of(key: EffectHandoffKey, row: Row[Any], *, is_new: bool) -> Receipt:
    """The receipt that an admission row stands for."""
    if row.admission == Admission.HANDOFF_REJECTED:
        return Receipt(
            admission=Admission.HANDOFF_REJECTED,
            key=key,
            admitted_at=row.admitted_at,
            is_new=is_new,
            reason=row.reason,
        )
    command = CommandId(row.command_id)
    return Receipt(
        admission=Admission.COMMAND_ACCEPTED,
        key=key,
        admitted_at=row.admitted_at,
        is_new=is_new,
        command=command,
        execution=ids.execution_id(command),
        work=ids.dispatch_work_id(command, 1),
    )


async def refuse_conflict(
    engine: AsyncEngine,
    key: EffectHandoffKey,
    row: Row[Any],
    *,
    verb: str,
    outbox: OutboxId,
    address: bytes,
) -> None:
    """
    Compare a repeat with the admission that stands, and keep the conflict where they differ.

    Raises:
        HandoffConflict: They differ. The admission and its command are as they were.
    """
    field = None
    if row.payload_address != address:
        field = "payload digest"
    elif row.outbox_id != outbox:
        field = "outbox id"
    if field is None:
        return

    async def transaction() -> None:
        async with engine.begin() as connection:
            await handoff_conflicts.add(
                connection, key, field=field, verb=verb, outbox=outbox, address=address
            )

    await run_phase("record_conflict", transaction)
    raise HandoffConflict(field=field)


async def _repeated(
    engine: AsyncEngine, caller: Caller, handover: Handover, row: Row[Any]
) -> Receipt:
    await refuse_conflict(
        engine,
        handover.key,
        row,
        verb="accept",
        outbox=handover.outbox,
        address=caller.org_key.address(handover.digest),
    )
    if row.admission == Admission.HANDOFF_REJECTED:
        raise HandoffAlreadyRejected(handoff_key=str(handover.key))
    return receipt_of(handover.key, row, is_new=False)


async def _resolve(
    engine: AsyncEngine, ring: KeyRing, caller: Caller, handover: Handover
) -> tuple[BoundOperation, Row[Any], bytes]:
    org = caller.scope.org
    address = caller.org_key.address(handover.digest)

    async def transaction() -> list[Row[Any]]:
        async with one_statement(engine).connect() as connection:
            found = await connection.execute(
                CONTEXT,
                {
                    "org": org,
                    "installation": caller.scope.installation,
                    "operation": handover.operation,
                    "subject": handover.subject,
                    "address": address,
                },
            )
            return list(found.all())

    rows = await run_phase("resolve_handoff", transaction)
    context = rows[0]
    if len(rows) > 1:
        raise NoSuchTarget(
            kind="single view for operation",
            name=handover.operation,
            remedy="two published bindings of this installation offer it; rename one",
        )
    operation = _operation(handover, context)
    operation.check_subject(handover.subject)
    _refuse_missing(handover, operation, context)
    key = ring.unwrap(context.wrapped_key, context.key_id, "staged", org, address.hex())
    payload = key.open(context.ciphertext, "staged", org, address.hex())
    assert payload_digest(payload) == handover.digest, "staged bytes are those of their digest"
    return operation, context, payload


def _operation(handover: Handover, context: Row[Any]) -> BoundOperation:
    if context.view_id is None:
        raise NoSuchTarget(
            kind="operation",
            name=handover.operation,
            remedy="publish a binding that has it with `oncefence catalog publish`",
        )
    return _view(context.view_content).operation(handover.operation)


@lru_cache(maxsize=256)
def _view(content: str) -> IntegrationBindingView:
    # By its text: a view is immutable, so the same text is the same view for ever.
    return IntegrationBindingView.from_json(content)


def _refuse_missing(handover: Handover, operation: BoundOperation, context: Row[Any]) -> None:
    if context.generation_id is None:
        raise NoSuchTarget(
            kind="principal binding",
            name=context.principal_binding,
            remedy="make it with `oncefence binding add`",
        )
    if context.provider != operation.provider:
        raise NoSuchTarget(
            kind=f"principal binding for {operation.provider}",
            name=context.principal_binding,
            remedy=f"the binding of that name is for {context.provider}",
        )
    if context.link_id is None:
        raise NoSuchTarget(
            kind=f"link for {operation.local_object}",
            name=handover.subject,
            remedy="adopt the remote record with `oncefence link adopt`",
        )
    if context.link_state != "active":
        raise NoSuchTarget(
            kind=f"active link for {operation.local_object}",
            name=handover.subject,
            remedy=f"the link is {context.link_state}; repair it first",
        )
    if context.ciphertext is None:
        raise NoSuchTarget(
            kind="payload",
            name=handover.digest,
            remedy="put its bytes first: PUT /v1/payloads/{digest}",
        )


def _command(handover: Handover, operation: BoundOperation, context: Row[Any]) -> ExternalCommand:
    lookup = operation.lookup
    return ExternalCommand(
        command=ids.command_id(str(handover.key)),
        handover=handover,
        provider=operation.provider,
        endpoint_class=operation.endpoint_class,
        view=ViewId(context.view_id),
        view_digest=context.view_digest,
        binding=PrincipalBindingId(context.binding_id),
        generation=BindingGenerationId(context.generation_id),
        link=LinkPin(
            link=LinkId(context.link_id),
            version=context.link_version,
            remote_id=context.remote_id,
        ),
        deadline_ms=operation.total_deadline_ms,
        lookup_deadline_ms=lookup.total_deadline_ms if lookup is not None else None,
        is_sensitive=operation.sensitive,
    )


def _command_values(command: ExternalCommand) -> dict[str, object]:
    return {
        "command_id": command.command,
        "operation": command.handover.operation,
        "subject": command.handover.subject,
        "provider": command.provider,
        "endpoint_class": command.endpoint_class,
        "view_id": command.view,
        "view_digest": command.view_digest,
        "binding_id": command.binding,
        "generation_id": command.generation,
        "link_id": command.link.link,
        "link_version": command.link.version,
        "remote_id": command.link.remote_id,
        "idempotency_key": None,
        "replay_window_seconds": None,
        "deadline_ms": command.deadline_ms,
        "lookup_deadline_ms": command.lookup_deadline_ms,
        "is_sensitive": command.is_sensitive,
        "source_lane": command.source_lane,
        "target_lane": command.target_lane,
    }


def _admission_values(caller: Caller, handover: Handover, retention_days: int) -> dict[str, object]:
    scope = caller.scope
    return {
        "handoff_key": str(handover.key),
        "org_id": scope.org,
        "installation": scope.installation,
        "capability": scope.capability,
        "work_binding_digest": scope.work_binding_digest,
        "outbox_id": handover.outbox,
        "payload_address": caller.org_key.address(handover.digest),
        "retention_days": retention_days,
    }


def _request_values(
    ring: KeyRing,
    caller: Caller,
    command: CommandId,
    request: FrozenRequest,
    payload: bytes,
) -> dict[str, object]:
    org, execution = caller.scope.org, ids.execution_id(command)
    key, wrapped, key_id = ring.new_key("execution", org, execution)
    return {
        "execution_id": execution,
        "work_id": ids.dispatch_work_id(command, 1),
        "request_method": request.method,
        "request_target": request.target,
        "request_headers": json.dumps([list(pair) for pair in request.headers]),
        "request_body_address": caller.org_key.address(payload_digest(request.body)),
        "wrapped_key": wrapped,
        "key_id": key_id,
        "sealed_payload": key.seal(payload, "payload", org, execution, 1),
        "sealed_request": seal_request(key, request, "request", org, execution, 1),
    }
