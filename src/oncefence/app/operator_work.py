"""The routes about work: what there is, one item, and what an operator does to it (C406)."""

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Path, Query
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response

from oncefence.app.door_reading import read_message
from oncefence.app.door_responses import answers, says, takes
from oncefence.app.doors import DoorsHere
from oncefence.app.operator_access import OperatorHere, require
from oncefence.app.operator_hints import tell_of
from oncefence.app.operator_messages import PAGE_ROWS
from oncefence.app.operator_queries import AnyOrgInQuery, LimitInQuery, OrgInQuery
from oncefence.app.problems import RequestRefused
from oncefence.app.work_messages import (
    CancelReport,
    ReclaimReport,
    ReplayReport,
    WorkActRequest,
    WorkMessage,
    WorkRows,
    position_of,
)
from oncefence.domain.errors import NoSuchTarget
from oncefence.domain.ids import OrgId, WorkId
from oncefence.domain.operator import EVERY_ORG, Act, Operator
from oncefence.domain.work_item import WorkItemState
from oncefence.storage.phases.cancel_work import cancel_work
from oncefence.storage.phases.list_work import LIVE, WorkFilter, list_work
from oncefence.storage.phases.reclaim_work import reclaim_work
from oncefence.storage.phases.replay_work import replay_work
from oncefence.storage.phases.show_work import show_work

router = APIRouter(prefix="/v1/operator/work")

WorkInPath = Annotated[UUID, Path(description="a work item")]
WordInQuery = Annotated[
    str | None,
    # No text in the database holds U+0000.
    Query(min_length=1, max_length=200, pattern=r"^[^\x00]*$"),
]
CursorInQuery = Annotated[
    str | None, Query(max_length=100, description="`next_after` of the page before")
]
StatesInQuery = Annotated[
    str | None, Query(max_length=200, description="states with commas between; else the live ones")
]
_BODY: Final = takes("application/json", WorkActRequest.model_json_schema())


@router.get("", responses=answers(401, 403, 422, 503, s200=WorkRows))
async def read_work(
    doors: DoorsHere,
    operator: OperatorHere,
    *,
    org: AnyOrgInQuery = None,
    states: StatesInQuery = None,
    family: WordInQuery = None,
    provider: WordInQuery = None,
    definition: WordInQuery = None,
    failure_class: WordInQuery = None,
    after: CursorInQuery = None,
    limit: LimitInQuery = PAGE_ROWS,
) -> Response:
    """Items, the youngest first, with what keeps each of them as far as one read tells."""
    which = WorkFilter(
        orgs=orgs_asked(operator, org),
        states=_states(states),
        family=family,
        provider=provider,
        definition=definition,
        failure_class=failure_class,
    )
    rows = await list_work(doors.engine, which, limit=limit, after=position_of(after))
    return says(WorkRows.of(rows, by="made_at", limit=limit))


@router.get("/{work}", responses=answers(401, 403, 404, 422, 503, s200=WorkMessage))
async def read_item(
    work: WorkInPath, doors: DoorsHere, operator: OperatorHere, org: OrgInQuery
) -> Response:
    """One item with its version, which every act on it asks for, and its line of replays."""
    require(operator, Act.READ, org)
    with found_here():
        page = await show_work(doors.engine, org, WorkId(work))
    return says(WorkMessage.of(page))


@router.post(
    "/{work}/replay",
    status_code=HTTPStatus.CREATED,
    responses=answers(400, 401, 403, 404, 409, 413, 415, 422, 503, s201=ReplayReport),
    openapi_extra=_BODY,
)
async def replay(
    work: WorkInPath, request: Request, doors: DoorsHere, operator: OperatorHere
) -> Response:
    """Make the ended item anew, where nothing of it is in doubt (C402, C403, C404)."""
    message = await read_message(request, WorkActRequest)
    require(operator, Act.REPLAY, message.org)
    with found_here():
        replayed = await replay_work(
            doors.engine,
            message.org,
            WorkId(work),
            expected_version=message.expected_version,
            note=message.note,
            actor=operator.actor,
            limits=doors.limits,
        )
    return says(
        ReplayReport.of(replayed),
        HTTPStatus.CREATED,
        BackgroundTask(tell_of, doors, new=[replayed.ref]),
    )


@router.post(
    "/{work}/cancel",
    responses=answers(400, 401, 403, 404, 409, 413, 415, 422, 503, s200=CancelReport),
    openapi_extra=_BODY,
)
async def cancel(
    work: WorkInPath, request: Request, doors: DoorsHere, operator: OperatorHere
) -> Response:
    """End the item where nobody holds it, or ask its holder to (C55, C69)."""
    message = await read_message(request, WorkActRequest)
    require(operator, Act.CANCEL, message.org)
    with found_here():
        end = await cancel_work(
            doors.engine,
            message.org,
            WorkId(work),
            expected_version=message.expected_version,
            note=message.note,
            actor=operator.actor,
        )
    return says(
        CancelReport.of(end),
        background=BackgroundTask(tell_of, doors, ended=(message.org, WorkId(work))),
    )


@router.post(
    "/{work}/reclaim",
    responses=answers(400, 401, 403, 404, 409, 413, 415, 422, 503, s200=ReclaimReport),
    openapi_extra=_BODY,
)
async def reclaim(
    work: WorkInPath, request: Request, doors: DoorsHere, operator: OperatorHere
) -> Response:
    """Take the item back from a holder whose lease has ended (C45, C50)."""
    message = await read_message(request, WorkActRequest)
    require(operator, Act.RECLAIM, message.org)
    with found_here():
        reclaimed = await reclaim_work(
            doors.engine,
            message.org,
            WorkId(work),
            expected_version=message.expected_version,
            note=message.note,
            actor=operator.actor,
        )
    return says(
        ReclaimReport.of(work, reclaimed),
        background=BackgroundTask(tell_of, doors, taken_back=reclaimed.wake),
    )


@contextmanager
def found_here() -> Iterator[None]:
    """
    Answer for an item that the org has not as for any address at which there is nothing.

    Raises:
        RequestRefused: In place of NoSuchTarget.
    """
    try:
        yield
    except NoSuchTarget as error:
        raise RequestRefused(
            status=HTTPStatus.NOT_FOUND, code="not_found", detail=str(error)
        ) from None


def orgs_asked(operator: Operator, org: OrgId | None) -> list[OrgId] | None:
    """
    The orgs that a list is about: the one that was asked for, else all within the scope.

    Raises:
        RequestRefused: The operator may not read there.
    """
    if org is None:
        orgs = None if EVERY_ORG in operator.orgs else sorted(operator.orgs)
    else:
        orgs = None if org == EVERY_ORG else [org]
    for each in orgs or [EVERY_ORG]:
        require(operator, Act.READ, each)
    return orgs


def _states(asked: str | None) -> list[str]:
    if asked is None:
        return list(LIVE)
    states = asked.split(",")
    known = [state.value for state in WorkItemState]
    unknown = sorted(set(states) - set(known))
    if unknown:
        raise RequestRefused(
            status=HTTPStatus.UNPROCESSABLE_ENTITY,
            code="query_invalid",
            detail=f"states: there are {', '.join(known)}",
        )
    return states
