"""Acceptance: one handoff key becomes one command, one execution and one WorkItem, or nothing."""

import json
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.catalog.freeze import FrozenRequest
from oncefence.catalog.operations import BoundOperation
from oncefence.domain import ids
from oncefence.domain.command import ExternalCommand, Handover, Receipt
from oncefence.domain.errors import HandoffAlreadyRejected, ScopeRefused, SubjectTaken
from oncefence.domain.handoff import Admission, payload_digest
from oncefence.domain.idempotency import replay_window_seconds
from oncefence.domain.ids import (
    BindingGenerationId,
    CommandId,
    LinkId,
    PrincipalBindingId,
    ViewId,
)
from oncefence.domain.limits import Limits
from oncefence.domain.remote_link import LinkPin
from oncefence.domain.work_item import CONNECTED, DISPATCH
from oncefence.storage.driver_connection import AnyRow, DriverRow, driver_connection
from oncefence.storage.engine import constraint_name, run_phase
from oncefence.storage.frozen import seal_request
from oncefence.storage.phases.authenticate import Caller
from oncefence.storage.phases.find_admission import find_admission, receipt_of
from oncefence.storage.phases.refuse_conflict import refuse_conflict
from oncefence.storage.phases.refuse_scope import refuse_other_scope
from oncefence.storage.phases.resolve_handoff import Admitted, resolve_handoff
from oncefence.storage.sealing import KeyRing
from oncefence.storage.sql_files import sql_file

_ACCEPT: Final = sql_file("accept_handoff")
_BEFORE_THE_COMMAND: Final = "), command AS ("
ACCEPT = text(_ACCEPT)
ACCEPT_CREATE = text(
    _ACCEPT.replace(_BEFORE_THE_COMMAND, sql_file("create_slot") + _BEFORE_THE_COMMAND, 1)
)
"""The same with the slot of the create, whose cost nobody else is to bear."""

ONE_LIVE_LINK: Final = "one_live_link_per_subject"


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
        SubjectTaken: What is to be created has a link, or is being created. Likewise.
    """
    await refuse_other_scope(engine, caller.scope, handover.key, verb="accept")
    found = await resolve_handoff(engine, ring, caller, handover)
    if isinstance(found, Admitted):
        return await _repeated(engine, caller, handover, found.row)
    operation, context, payload = found.operation, found.context, found.payload
    command = _command(handover, operation, context)
    request = operation.freeze(payload, remote_id=command.link.remote_id, command=command.command)
    values = {
        **_admission_values(caller, handover, limits.retention_days),
        **_command_values(command),
        **_replay_values(operation, request),
        "family": DISPATCH if operation.user is None else CONNECTED,
        "looks_first": operation.looks_first,
        "quota": json.dumps(operation.quota_dimensions(operation.endpoint_class)),
        "lookup_quota": json.dumps(
            operation.quota_dimensions(operation.lookup.endpoint_class) if operation.lookup else []
        ),
        "identity_ordinal": context.identity_ordinal,
        "local_object": operation.local_object,
        "remote_object": operation.remote_object,
        **_request_values(ring, caller, command.command, request, payload),
        "view_revision": context.view_revision,
        # Half a window: what many acceptances at once do not see of each other has room too.
        "few": max(limits.admission_window // 2, 1),
        "completion_contract": json.dumps(operation.completion.model_dump(mode="json")),
    }

    async def transaction() -> DriverRow:
        async with driver_connection(engine) as connection:
            return await connection.one(ACCEPT_CREATE if command.is_create else ACCEPT, values)

    try:
        written = await run_phase("accept_handoff", transaction)
    except Exception as error:
        if constraint_name(error) == ONE_LIVE_LINK:
            # Somebody else's create of it was accepted since its place was looked at, or a link
            # adopted; whoever asks again is told which.
            raise SubjectTaken(
                local_object=operation.local_object,
                subject=handover.subject,
                is_being_created=True,
            ) from None
        raise
    if written.admissions:
        whole = (written.commands, written.sealed, written.work_items) == (1, 2, 1)
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
            has_room=written.has_room,
            family=str(values["family"]),
        )
    row = await find_admission(engine, handover.key)
    if row is None:
        # The key collided with a row that this org may not see.
        raise ScopeRefused
    return await _repeated(engine, caller, handover, row)


async def _repeated(
    engine: AsyncEngine, caller: Caller, handover: Handover, row: AnyRow
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


def _command(handover: Handover, operation: BoundOperation, context: DriverRow) -> ExternalCommand:
    lookup = operation.lookup
    identity = ids.command_id(str(handover.key))
    if operation.is_create:
        link = LinkPin(link=ids.slot_id(identity), version=1, remote_id=None)
    else:
        link = LinkPin(
            link=LinkId(context.link_id),
            version=context.link_version,
            remote_id=context.remote_id,
        )
    return ExternalCommand(
        command=identity,
        handover=handover,
        provider=operation.provider,
        endpoint_class=operation.endpoint_class,
        view=ViewId(context.view_id),
        view_digest=context.view_digest,
        binding=PrincipalBindingId(context.binding_id),
        generation=BindingGenerationId(context.generation_id),
        link=link,
        deadline_ms=operation.total_deadline_ms,
        lookup_deadline_ms=lookup.total_deadline_ms if lookup is not None else None,
        is_sensitive=operation.sensitive,
        keeps_source_order=operation.lanes.source != "none",
        keeps_target_order=operation.lanes.target != "none",
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
        "deadline_ms": command.deadline_ms,
        "lookup_deadline_ms": command.lookup_deadline_ms,
        "is_sensitive": command.is_sensitive,
        "source_lane": command.source_lane,
        "target_lane": command.target_lane,
    }


def _replay_values(operation: BoundOperation, request: FrozenRequest) -> dict[str, object]:
    window = None
    if operation.idempotency is not None:
        window = replay_window_seconds(operation.idempotency.window_s)
    return {"idempotency_key": request.idempotency_key, "replay_window_seconds": window}


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
