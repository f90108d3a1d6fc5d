"""The routes about operators themselves: who there is, one more, and one less (C407)."""

from collections.abc import Iterable
from http import HTTPStatus
from typing import Annotated, Final

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from oncefence.app.door_reading import read_message
from oncefence.app.door_responses import answers, says, takes
from oncefence.app.doors import DoorsHere
from oncefence.app.operator_access import OperatorHere, require
from oncefence.app.operator_messages import ActRequest
from oncefence.app.roster_messages import (
    AddOperatorRequest,
    OperatorAdded,
    OperatorRevoked,
    OperatorRow,
    OperatorRows,
)
from oncefence.domain.ids import OrgId
from oncefence.domain.operator import Act
from oncefence.storage.phases.add_operator import add_operator
from oncefence.storage.phases.list_operators import list_operators
from oncefence.storage.phases.revoke_operator import revoke_operator

_NAME_FORM: Final = r"^[a-z0-9][a-z0-9._-]{0,62}$"


router = APIRouter(prefix="/v1/operator/operators")

NameInPath = Annotated[str, Path(pattern=_NAME_FORM, description="of a live operator")]
WithRevoked = Annotated[bool, Query(description="also those that were revoked")]


@router.get("", responses=answers(401, 422, 503, s200=OperatorRows))
async def read_operators(
    doors: DoorsHere, operator: OperatorHere, *, with_revoked: WithRevoked = False
) -> Response:
    """Those whose whole scope lies within the reader's own."""
    found = await list_operators(doors.engine, with_revoked=with_revoked)
    mine = [each for each in found if operator.may_everywhere(Act.READ, each.orgs)]
    return says(OperatorRows(operators=[OperatorRow.of(each) for each in mine]))


@router.post(
    "",
    status_code=HTTPStatus.CREATED,
    responses=answers(400, 401, 403, 409, 413, 415, 422, 503, s201=OperatorAdded),
    openapi_extra=takes("application/json", AddOperatorRequest.model_json_schema()),
)
async def add(request: Request, doors: DoorsHere, operator: OperatorHere) -> Response:
    """Make an operator and tell its token, this once; with any role, within the maker's orgs."""
    message = await read_message(request, AddOperatorRequest)
    for org in message.orgs:
        require(operator, Act.ADD_OPERATOR, org)
    added = await add_operator(
        doors.engine,
        name=message.name,
        roles=frozenset(message.roles),
        orgs=frozenset(message.orgs),
        actor=operator.actor,
        note=message.note,
    )
    return says(
        OperatorAdded(name=message.name, operator_id=added.operator, token=added.token.reveal()),
        HTTPStatus.CREATED,
    )


@router.post(
    "/{name}/revoke",
    responses=answers(400, 401, 403, 409, 413, 415, 422, 503, s200=OperatorRevoked),
    openapi_extra=takes("application/json", ActRequest.model_json_schema()),
)
async def revoke(
    name: NameInPath, request: Request, doors: DoorsHere, operator: OperatorHere
) -> Response:
    """End a token at once; somebody else's operator is answered as one that there is not."""
    message = await read_message(request, ActRequest)

    def may_revoke(orgs: Iterable[OrgId]) -> bool:
        return operator.may_everywhere(Act.REVOKE_OPERATOR, orgs)

    # Of the role alone: whose operators there are is not told to who may revoke none.
    for org in operator.orgs:
        require(operator, Act.REVOKE_OPERATOR, org)
    revoked = await revoke_operator(
        doors.engine,
        name=name,
        expected_version=message.expected_version,
        actor=operator.actor,
        note=message.note,
        may_revoke=may_revoke,
    )
    return says(OperatorRevoked(name=name, operator_id=revoked))
