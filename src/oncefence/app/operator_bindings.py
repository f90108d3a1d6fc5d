"""The routes about accounts: which there are, and connecting, repairing and ending one (C280)."""

from http import HTTPStatus
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path, Query
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response

from oncefence.app import connecting, disconnecting
from oncefence.app.binding_messages import (
    AuthorizationBegun,
    AuthorizationReport,
    BindingReport,
    BindingRow,
    BindingRows,
    ConnectRequest,
    DisconnectReport,
    DisconnectRequest,
    GenerationRow,
    ReauthorizeRequest,
)
from oncefence.app.door_reading import read_message
from oncefence.app.door_responses import answers, says, takes
from oncefence.app.doors import Doors, DoorsHere
from oncefence.app.operator_access import OperatorHere, require
from oncefence.app.operator_queries import AnyOrgInQuery, OrgInQuery
from oncefence.app.problems import no_such_thing
from oncefence.domain.authorization import SUBJECT_LENGTH_MAX
from oncefence.domain.operator import Act
from oncefence.storage.phases.disconnect_binding import no_such_binding
from oncefence.storage.phases.list_bindings import (
    find_binding,
    find_request,
    list_bindings,
    list_generations,
    list_requests,
)

router = APIRouter(prefix="/v1/operator")

NameInPath = Annotated[str, Path(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$", description="a binding")]
RequestInPath = Annotated[UUID, Path(description="a request for authorisation")]
UserInQuery = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=SUBJECT_LENGTH_MAX,
        pattern="^[!-~]+$",
        description="of a per-user binding: whose",
    ),
]
_ACT_PROBLEMS = (400, 401, 403, 409, 413, 415, 422, 503)


@router.get("/bindings", responses=answers(401, 403, 422, 503, s200=BindingRows))
async def read_bindings(
    doors: DoorsHere, operator: OperatorHere, org: AnyOrgInQuery = None
) -> Response:
    """The accounts of these orgs, and how each is connected."""
    orgs = operator.orgs if org is None else (org,)
    for each in orgs:
        require(operator, Act.READ, each)
    rows = await list_bindings(doors.engine, orgs)
    return says(BindingRows(bindings=[BindingRow.of(each) for each in rows]))


@router.get("/bindings/{name}", responses=answers(401, 403, 404, 422, 503, s200=BindingReport))
async def read_binding(
    name: NameInPath,
    doors: DoorsHere,
    operator: OperatorHere,
    org: OrgInQuery,
    user: UserInQuery = None,
) -> Response:
    """One account with its generations, and what was asked for it."""
    require(operator, Act.READ, org)
    found = await find_binding(doors.engine, org, name, user)
    if found is None:
        raise no_such_binding(name)
    generations = await list_generations(doors.engine, org, found.binding_id)
    requests = await list_requests(doors.engine, org, found.binding_id)
    return says(
        BindingReport(
            binding=BindingRow.of(found),
            generations=[GenerationRow.of(each) for each in generations],
            requests=[AuthorizationReport.of(each) for each in requests],
        )
    )


@router.get(
    "/authorizations/{request_id}",
    responses=answers(401, 403, 404, 422, 503, s200=AuthorizationReport),
)
async def read_request(
    request_id: RequestInPath, doors: DoorsHere, operator: OperatorHere, org: OrgInQuery
) -> Response:
    """What a request for authorisation came to."""
    require(operator, Act.READ, org)
    row = await find_request(doors.engine, org, request_id)
    if row is None:
        raise no_such_thing()
    return says(AuthorizationReport.of(row))


@router.post(
    "/bindings/connect",
    status_code=HTTPStatus.CREATED,
    responses=answers(*_ACT_PROBLEMS, s201=AuthorizationBegun),
    openapi_extra=takes("application/json", ConnectRequest.model_json_schema()),
)
async def connect(request: Request, doors: DoorsHere, operator: OperatorHere) -> Response:
    """Begin to connect an account: another generation, whoever it turns out to be (C282)."""
    message = await read_message(request, ConnectRequest)
    require(operator, Act.CONNECT_BINDING, message.org)
    begun = await connecting.connect(
        doors,
        message.wish,
        expected_version=message.expected_version,
        actor=operator.actor,
        note=message.note,
    )
    return _begun(doors, begun)


@router.post(
    "/bindings/reauthorize",
    status_code=HTTPStatus.CREATED,
    responses=answers(*_ACT_PROBLEMS, s201=AuthorizationBegun),
    openapi_extra=takes("application/json", ReauthorizeRequest.model_json_schema()),
)
async def reauthorize(request: Request, doors: DoorsHere, operator: OperatorHere) -> Response:
    """Begin to repair a grant within its generation, as the same account and no other."""
    message = await read_message(request, ReauthorizeRequest)
    require(operator, Act.REAUTHORIZE_BINDING, message.org)
    begun = await connecting.reauthorize(
        doors,
        message.org,
        message.name,
        message.user,
        expected_version=message.expected_version,
        actor=operator.actor,
        note=message.note,
    )
    return _begun(doors, begun)


@router.post(
    "/bindings/disconnect",
    responses=answers(*_ACT_PROBLEMS, s200=DisconnectReport),
    openapi_extra=takes("application/json", DisconnectRequest.model_json_schema()),
)
async def disconnect(request: Request, doors: DoorsHere, operator: OperatorHere) -> Response:
    """Disconnect an account here and at its provider; repeated, it does what is left (C295)."""
    message = await read_message(request, DisconnectRequest)
    require(operator, Act.DISCONNECT_BINDING, message.org)
    ended = await disconnecting.disconnect(
        doors,
        message.org,
        message.name,
        message.user,
        revokes=not message.without_revocation,
        expected_version=message.expected_version,
        actor=operator.actor,
        note=message.note,
    )
    return says(
        DisconnectReport.of(ended),
        background=BackgroundTask(
            connecting.wake_bound, doors, message.org, ended.disconnected.binding
        ),
    )


def _begun(doors: Doors, begun: connecting.Begun) -> Response:
    settled = begun.settled
    background = None
    if settled is not None and settled.outcome.is_success:
        background = BackgroundTask(connecting.wake_bound, doors, settled.org, settled.binding)
    return says(AuthorizationBegun.of(begun), HTTPStatus.CREATED, background)
