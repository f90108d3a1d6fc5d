"""The routes about breakers: how they stand, and a person's word on one (C304)."""

from http import HTTPStatus
from typing import Annotated

import structlog
from fastapi import APIRouter, Path, Query
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response

from oncefence.app.breaker_messages import (
    BreakerReport,
    BreakerRow,
    BreakerRows,
    CloseRequest,
    OpenRequest,
)
from oncefence.app.door_reading import read_message
from oncefence.app.door_responses import answers, says, takes
from oncefence.app.doors import Doors, DoorsHere
from oncefence.app.operator_access import OperatorHere, require
from oncefence.app.operator_queries import AnyOrgInQuery
from oncefence.app.problems import RequestRefused
from oncefence.domain.breaker import BreakerKey, BreakerState
from oncefence.domain.operator import EVERY_ORG, Act
from oncefence.storage.phases.bring_forward import bring_forward
from oncefence.storage.phases.list_breakers import list_breakers, never_told, read_breaker
from oncefence.storage.phases.override_breaker import override_breaker

log = structlog.get_logger("oncefence.doors")

router = APIRouter(prefix="/v1/operator/breakers")

KeyInPath = Annotated[
    str, Path(max_length=200, description="provider:PROVIDER:CLASS or binding:ORG:ID")
]
WithClosed = Annotated[bool, Query(description="also those that hold nothing back")]


@router.get("", responses=answers(401, 403, 422, 503, s200=BreakerRows))
async def read_breakers(
    doors: DoorsHere,
    operator: OperatorHere,
    *,
    org: AnyOrgInQuery = None,
    with_closed: WithClosed = False,
) -> Response:
    """What holds something of these orgs back; a provider's breaker holds back all of them."""
    orgs = operator.orgs if org is None else frozenset((org,))
    for each in orgs:
        require(operator, Act.READ, each)
    found = await list_breakers(doors.engine, orgs, with_closed=with_closed)
    return says(BreakerRows(breakers=[BreakerRow.of(each) for each in found]))


@router.get("/{key}", responses=answers(401, 403, 422, 503, s200=BreakerReport))
async def read_one(key: KeyInPath, doors: DoorsHere, operator: OperatorHere) -> Response:
    """How one breaker stands; one of which nothing was ever told is closed."""
    asked = _key(key)
    if asked.binding is None:
        # It is everybody's: who may read anything may read it.
        for each in operator.orgs:
            require(operator, Act.READ, each)
    else:
        require(operator, Act.READ, asked.org)
    found = await read_breaker(doors.engine, asked, tells_orgs=operator.may(Act.READ, EVERY_ORG))
    return says(BreakerReport(breaker=BreakerRow.of(found or never_told(asked))))


@router.post(
    "/{key}/open",
    responses=answers(400, 401, 403, 404, 409, 413, 415, 422, 503, s200=BreakerReport),
    openapi_extra=takes("application/json", OpenRequest.model_json_schema()),
)
async def open_one(
    key: KeyInPath, request: Request, doors: DoorsHere, operator: OperatorHere
) -> Response:
    """Hold back what goes there for a while; what is under way goes on to its end."""
    asked = _key(key)
    message = await read_message(request, OpenRequest)
    require(operator, Act.OPEN_BREAKER, asked.org)
    done = await override_breaker(
        doors.engine,
        asked,
        BreakerState.OPEN,
        actor=operator.actor,
        note=message.note,
        expected_version=message.expected_version,
        open_seconds=message.open_seconds,
    )
    return says(BreakerReport(breaker=BreakerRow.of(done.breaker), is_new=done.is_new))


@router.post(
    "/{key}/close",
    responses=answers(400, 401, 403, 404, 409, 413, 415, 422, 503, s200=BreakerReport),
    openapi_extra=takes("application/json", CloseRequest.model_json_schema()),
)
async def close_one(
    key: KeyInPath, request: Request, doors: DoorsHere, operator: OperatorHere
) -> Response:
    """Let go at once what the breaker holds; a window of each class is woken."""
    asked = _key(key)
    message = await read_message(request, CloseRequest)
    require(operator, Act.CLOSE_BREAKER, asked.org)
    done = await override_breaker(
        doors.engine,
        asked,
        BreakerState.CLOSED,
        actor=operator.actor,
        note=message.note,
        expected_version=message.expected_version,
    )
    return says(
        BreakerReport(breaker=BreakerRow.of(done.breaker), is_new=done.is_new),
        # A repeat wakes too: the process that did the act may have died before it woke anybody.
        background=BackgroundTask(_wake_held, doors, asked),
    )


def _key(text: str) -> BreakerKey:
    key = BreakerKey.parse(text)
    if key is None:
        raise RequestRefused(
            status=HTTPStatus.UNPROCESSABLE_ENTITY,
            code="breaker_key_malformed",
            detail="a breaker is called provider:PROVIDER:CLASS or binding:ORG:ID, "
            "as `oncefence breaker list` shows it",
        )
    return key


async def _wake_held(doors: Doors, key: BreakerKey) -> None:
    """Open what the breaker held; after its COMMIT, so that whoever came meanwhile is seen."""
    try:
        for org, queue_class in await bring_forward(doors.engine, key):
            await doors.window.open(org, queue_class)
    except Exception as error:  # noqa: BLE001  # logged; what is missed comes at its time
        log.warning("announce_failed", error=type(error).__name__)
