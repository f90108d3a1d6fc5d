"""What a handover names: its operation, its link and binding, its bytes; or its admission."""

from dataclasses import dataclass, field
from functools import lru_cache

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.catalog.operations import BoundOperation
from oncefence.catalog.view import IntegrationBindingView
from oncefence.domain.command import Handover
from oncefence.domain.errors import NoSuchTarget, SubjectTaken
from oncefence.domain.handoff import payload_digest
from oncefence.domain.remote_link import LinkState
from oncefence.storage.driver_connection import DriverRow, driver_connection
from oncefence.storage.engine import run_phase
from oncefence.storage.phases.authenticate import Caller
from oncefence.storage.sealing import KeyRing

# Everything that acceptance relies on, and what the key came to if it came before, in one read.
# Nothing of it is locked: the command pins what it found, and the dispatch mark checks the pins
# under lock.
CONTEXT = text(
    """
    SELECT v.view_id, v.digest AS view_digest, v.revision AS view_revision,
           v.content AS view_content,
           v.principal_binding, b.binding_id, b.provider, g.generation_id,
           g.identity_ordinal,
           l.link_id, l.version AS link_version, l.state AS link_state, l.remote_id,
           l.remote_object AS link_object,
           s.wrapped_key, s.key_id, s.ciphertext,
           h.admission, h.admitted_at, h.outbox_id, h.payload_address, h.command_id, h.reason
      FROM (VALUES (1)) AS one (row)
      LEFT JOIN oncefence.handoffs AS h
        ON h.handoff_key = :handoff_key AND h.org_id = :org
      LEFT JOIN oncefence.binding_views AS v
        ON v.org_id = :org AND v.installation = :installation AND :operation = ANY (v.operations)
       AND v.view_id = (SELECT a.view_id FROM oncefence.view_activations AS a
                         WHERE a.org_id = v.org_id AND a.installation = v.installation
                           AND a.name = v.name
                         ORDER BY a.ordinal DESC LIMIT 1)
      LEFT JOIN oncefence.principal_bindings AS b
        ON b.org_id = v.org_id AND b.name = v.principal_binding
       AND b.subject IS NOT DISTINCT FROM CAST(:user AS text)
      LEFT JOIN oncefence.binding_generations AS g
        ON g.org_id = b.org_id AND g.binding_id = b.binding_id AND g.state = 'current'
      LEFT JOIN oncefence.remote_links AS l
        ON l.org_id = b.org_id AND l.binding_id = b.binding_id AND l.subject = :subject
       AND l.local_object = v.local_objects[array_position(v.operations, :operation)]
       AND l.state <> 'retired' AND l.identity_ordinal = g.identity_ordinal
      LEFT JOIN oncefence.staged_payloads AS s
        ON s.org_id = :org AND s.payload_address = :address AND s.wrapped_key IS NOT NULL
    """
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """All that a handover names, found."""

    operation: BoundOperation
    context: DriverRow = field(repr=False)
    """The ids and versions that the command is to pin."""

    payload: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """The key has its admission already; nothing else was looked at."""

    row: DriverRow


async def resolve_handoff(
    engine: AsyncEngine, ring: KeyRing, caller: Caller, handover: Handover
) -> Resolved | Admitted:
    """
    What `handover` names, or the admission of its key where there is one.

    The admission comes first: what a repeat is told does not depend on what is published today.

    Raises:
        NoSuchTarget: Operation, binding, link or payload is not there.
        SubjectTaken: A record is to be created of what has one.
    """
    user: str | None = None
    while True:
        found = await _found(engine, caller, handover, user)
        if isinstance(found, Admitted):
            return found
        operation, context = found
        payload = None
        if context.ciphertext is not None:
            payload = _payload(ring, caller, handover, context)
            # Whose account it is done with stands in the payload alone.
            named = operation.user_of(payload)
            if named != user:
                user = named
                continue
        _refuse_missing(handover, operation, context, user)
        assert payload is not None, "what is missing was refused"
        return Resolved(operation=operation, context=context, payload=payload)


async def _found(
    engine: AsyncEngine, caller: Caller, handover: Handover, user: str | None
) -> tuple[BoundOperation, DriverRow] | Admitted:
    rows = await _read(engine, caller, handover, user)
    context = rows[0]
    if context.admission is not None:
        return Admitted(row=context)
    if len(rows) > 1:
        raise NoSuchTarget(
            kind="single view for operation",
            name=handover.operation,
            remedy="two published bindings of this installation offer it; rename one",
        )
    operation = _operation(handover, context)
    operation.check_subject(handover.subject)
    return operation, context


async def _read(
    engine: AsyncEngine, caller: Caller, handover: Handover, user: str | None
) -> list[DriverRow]:
    async def transaction() -> list[DriverRow]:
        async with driver_connection(engine) as connection:
            return await connection.all(
                CONTEXT,
                {
                    "org": caller.scope.org,
                    "installation": caller.scope.installation,
                    "handoff_key": str(handover.key),
                    "operation": handover.operation,
                    "subject": handover.subject,
                    "address": caller.org_key.address(handover.digest),
                    "user": user,
                },
            )

    return await run_phase("resolve_handoff", transaction)


def _operation(handover: Handover, context: DriverRow) -> BoundOperation:
    if context.view_id is None:
        raise NoSuchTarget(
            kind="operation",
            name=handover.operation,
            remedy="publish a binding that has it with `oncefence catalog publish`, and activate"
            " that revision",
        )
    return _view(context.view_content).operation(handover.operation)


@lru_cache(maxsize=256)
def _view(content: str) -> IntegrationBindingView:
    # By its text: a view is immutable, so the same text is the same view for ever.
    return IntegrationBindingView.from_json(content)


def _refuse_missing(
    handover: Handover, operation: BoundOperation, context: DriverRow, user: str | None
) -> None:
    if context.ciphertext is None:
        raise NoSuchTarget(
            kind="payload",
            name=handover.digest,
            remedy="put its bytes first: PUT /v1/payloads/{digest}",
        )
    if context.generation_id is None:
        whose = "" if user is None else " of that user"
        raise NoSuchTarget(
            kind=f"connected principal binding{whose}",
            name=context.principal_binding,
            remedy="make it with `oncefence binding connect` or `oncefence binding add`",
        )
    if context.provider != operation.provider:
        raise NoSuchTarget(
            kind=f"principal binding for {operation.provider}",
            name=context.principal_binding,
            remedy=f"the binding of that name is for {context.provider}",
        )
    if operation.is_create:
        _refuse_taken(handover, operation, context.link_state)
    else:
        _refuse_unlinked(handover, operation, context.link_state)
        _refuse_other_object(handover, operation, context.link_object)


def _refuse_taken(handover: Handover, operation: BoundOperation, link_state: str | None) -> None:
    if link_state is not None:
        raise SubjectTaken(
            local_object=operation.local_object,
            subject=handover.subject,
            is_being_created=link_state == LinkState.CREATING,
        )


def _refuse_unlinked(handover: Handover, operation: BoundOperation, link_state: str | None) -> None:
    if link_state is None:
        raise NoSuchTarget(
            kind=f"link for {operation.local_object}",
            name=handover.subject,
            remedy="adopt the remote record with `oncefence link adopt`",
        )
    if link_state != LinkState.ACTIVE:
        remedy = f"the link is {link_state}; repair it first"
        if link_state == LinkState.CREATING:
            remedy = "its record is being created; hand this over again when that has succeeded"
        raise NoSuchTarget(
            kind=f"active link for {operation.local_object}",
            name=handover.subject,
            remedy=remedy,
        )


def _refuse_other_object(handover: Handover, operation: BoundOperation, linked: str) -> None:
    # An id means nothing outside its kind: under the same number stands somebody else's record.
    if linked != operation.remote_object:
        raise NoSuchTarget(
            kind=f"link of {operation.local_object} to a {operation.remote_object}",
            name=handover.subject,
            remedy=f"it is linked to a {linked}, and {operation.name} writes to another kind of "
            "record; bind that to a local object of its own",
        )


def _payload(ring: KeyRing, caller: Caller, handover: Handover, context: DriverRow) -> bytes:
    org, address = caller.scope.org, caller.org_key.address(handover.digest).hex()
    key = ring.unwrap(context.wrapped_key, context.key_id, "staged", org, address)
    payload = key.open(context.ciphertext, "staged", org, address)
    assert payload_digest(payload) == handover.digest, "staged bytes are those of their digest"
    return payload
