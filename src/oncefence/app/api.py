"""The HTTP door (C581): the addresses, and what each of them asks of the kernel."""

from http import HTTPStatus
from typing import Annotated, Final

from fastapi import APIRouter, FastAPI, Path
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response

from oncefence.app import (
    metrics_door,
    oauth_callback,
    operator_audit,
    operator_bindings,
    operator_breakers,
    operator_dead_letters,
    operator_operators,
    operator_pauses,
    operator_pressure,
    operator_quota,
    operator_work,
    problems,
)
from oncefence.app.door_messages import (
    DIGEST_FORM,
    KEY_FORM,
    AcceptedReceipt,
    CompletionReport,
    ExecutionReport,
    HandoffRequest,
    Health,
    LocalContract,
    PayloadStaged,
    RejectedReceipt,
    RejectionRequest,
    ScopeReport,
    Undecided,
    receipt_message,
)
from oncefence.app.door_reading import read_body, read_digest, read_execution_id, read_message
from oncefence.app.door_responses import answers, says, takes
from oncefence.app.doors import CallerHere, Doors, DoorsHere
from oncefence.app.problems import RequestRefused, no_such_thing
from oncefence.catalog.payload import PAYLOAD_BYTES_MAX
from oncefence.domain.command import Handover
from oncefence.domain.effect import Outcome
from oncefence.domain.execution import ExecutionStatus
from oncefence.domain.handoff import EffectHandoffKey, payload_digest
from oncefence.domain.ids import OutboxId
from oncefence.storage.phases.accept_handoff import accept_handoff
from oncefence.storage.phases.find_admission import find_admission, receipt_of
from oncefence.storage.phases.probe_store import probe_store
from oncefence.storage.phases.read_execution import CompletionSeen, read_execution
from oncefence.storage.phases.refuse_scope import refuse_other_scope
from oncefence.storage.phases.reject_handoff import reject_handoff
from oncefence.storage.phases.stage_payload import stage_payload

__all__ = ["Doors", "make_api"]

OPERATOR_ROUTERS: Final[tuple[APIRouter, ...]] = (
    operator_audit.router,
    operator_bindings.router,
    operator_breakers.router,
    operator_dead_letters.router,
    operator_operators.router,
    operator_pauses.router,
    operator_pressure.router,
    operator_quota.router,
    operator_work.router,
    metrics_door.router,
    oauth_callback.router,
)


def make_api(doors: Doors) -> FastAPI:
    """The application that serves `doors` over HTTP."""
    app = FastAPI(
        title="oncefence",
        summary="Hand an effect over and learn what became of it.",
        version="1",
        # Their pages load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.doors = doors
    app.include_router(v1)
    app.include_router(health)
    for router in OPERATOR_ROUTERS:
        app.include_router(router)
    problems.install(app)
    return app


v1 = APIRouter(prefix="/v1")
health = APIRouter()

DigestInPath = Annotated[
    str,
    Path(description="SHA-256 of the exact bytes, lower-case hex", json_schema_extra=DIGEST_FORM),
]
KeyInPath = Annotated[str, Path(description="an EffectHandoffKey", json_schema_extra=KEY_FORM)]
IdInPath = Annotated[str, Path(json_schema_extra={"format": "uuid"})]


@v1.put(
    "/payloads/{digest}",
    responses=answers(401, 413, 422, 503, s200=PayloadStaged),
    openapi_extra=takes("application/octet-stream", {"type": "string", "format": "binary"}),
)
async def put_payload(
    digest: DigestInPath, request: Request, doors: DoorsHere, caller: CallerHere
) -> Response:
    """Keep the bytes of a payload until a handoff names them; any bytes, and as often as liked."""
    named = read_digest(digest)
    payload = await read_body(request, PAYLOAD_BYTES_MAX)
    if payload_digest(payload) != named:
        raise RequestRefused(
            status=HTTPStatus.UNPROCESSABLE_ENTITY,
            code="payload_digest_mismatch",
            detail=f"the digest in the address is not the SHA-256 of the {len(payload)} bytes "
            "that arrived; nothing was kept",
        )
    await stage_payload(doors.engine, doors.ring, caller, named, payload)
    return says(PayloadStaged(payload_digest=named, size_bytes=len(payload)))


@v1.post(
    "/handoffs",
    status_code=HTTPStatus.CREATED,
    responses=answers(
        400, 401, 403, 409, 413, 415, 422, 503, s201=AcceptedReceipt, s200=AcceptedReceipt
    ),
    openapi_extra=takes("application/json", HandoffRequest.model_json_schema()),
)
async def accept(request: Request, doors: DoorsHere, caller: CallerHere) -> Response:
    """Accept a handoff: 201 the first time, 200 with the same receipt for every repeat (C131)."""
    message = await read_message(request, HandoffRequest)
    handover = Handover(
        key=EffectHandoffKey.parse(message.handoff_key),
        outbox=OutboxId(message.outbox_id),
        digest=read_digest(message.payload_digest),
        operation=message.operation,
        subject=message.subject,
    )
    receipt = await accept_handoff(doors.engine, doors.ring, caller, handover, doors.limits)
    return says(
        receipt_message(receipt),
        HTTPStatus.CREATED if receipt.is_new else HTTPStatus.OK,
        BackgroundTask(doors.tell, receipt),
    )


@v1.post(
    "/handoffs/reject",
    responses=answers(
        400, 401, 403, 409, 413, 415, 422, 503, s200=AcceptedReceipt | RejectedReceipt
    ),
    openapi_extra=takes("application/json", RejectionRequest.model_json_schema()),
)
async def reject(request: Request, doors: DoorsHere, caller: CallerHere) -> Response:
    """Reject a handoff that is not accepted yet; otherwise answer its acceptance (C128)."""
    message = await read_message(request, RejectionRequest)
    receipt = await reject_handoff(
        doors.engine,
        caller,
        EffectHandoffKey.parse(message.handoff_key),
        digest=read_digest(message.payload_digest),
        outbox=OutboxId(message.outbox_id),
        reason=message.reason,
        limits=doors.limits,
    )
    return says(receipt_message(receipt), background=BackgroundTask(doors.tell, receipt))


@v1.get(
    "/handoffs/{key}",
    responses=answers(401, 403, 422, 503, s200=AcceptedReceipt | RejectedReceipt | Undecided),
)
async def admission(key: KeyInPath, doors: DoorsHere, caller: CallerHere) -> Response:
    """What the key's admission is; without one it is undecided, which proves nothing (C132)."""
    asked = EffectHandoffKey.parse(key)
    await refuse_other_scope(doors.engine, caller.scope, asked, verb="read")
    row = await find_admission(doors.engine, asked)
    if row is None:
        return says(Undecided())
    return says(receipt_message(receipt_of(asked, row, is_new=False)))


@v1.get("/executions/{execution}", responses=answers(401, 404, 503, s200=ExecutionReport))
async def execution(execution: IdInPath, doors: DoorsHere, caller: CallerHere) -> Response:
    """What the caller may know of an execution that came of a handoff of its own scope."""
    seen = await read_execution(doors.engine, caller.scope, read_execution_id(execution))
    if seen is None:
        raise no_such_thing()
    return says(
        ExecutionReport(
            execution_id=seen.execution,
            command_id=seen.command,
            handoff_key=seen.handoff_key,
            operation=seen.operation,
            status=ExecutionStatus(seen.status),
            via=seen.via,
            attempts=seen.attempts,
            last_outcome=None if seen.last_outcome is None else Outcome(seen.last_outcome),
            failure_class=seen.failure_class,
            settled_by=seen.settled_by,
            evidence_grade=seen.evidence_grade,
            effect=seen.effect,
            accepted_at=seen.accepted_at,
            changed_at=seen.changed_at,
            completion=None if seen.completion is None else _completion(seen.completion),
        )
    )


def _completion(seen: CompletionSeen) -> CompletionReport:
    return CompletionReport(
        completion_id=seen.completion,
        settlement=seen.settlement,
        status=ExecutionStatus(seen.status),
        supersedes=seen.supersedes,
        contract=LocalContract.model_validate(seen.contract),
    )


@v1.get("/scope", responses=answers(401, 503, s200=ScopeReport))
async def scope(caller: CallerHere) -> Response:
    """The work scope of the credential: what handoff keys are made of."""
    return says(ScopeReport.of(caller.scope))


@health.get("/healthz", responses=answers(s200=Health))
async def healthz() -> Response:
    """Answer as long as the process lives, whatever else is down."""
    return says(Health(status="alive"))


@health.get("/readyz", responses=answers(503, s200=Health))
async def readyz(doors: DoorsHere) -> Response:
    """Answer ready while the database answers and the process does not stop."""
    if doors.is_stopping():
        raise RequestRefused(
            status=HTTPStatus.SERVICE_UNAVAILABLE,
            code="draining",
            detail="this process stops; what comes here until it has is still served",
        )
    await probe_store(doors.engine)
    return says(Health(status="ready"))
