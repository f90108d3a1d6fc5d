"""The routes about pauses: what is held back, one more, and one less (C57)."""

from http import HTTPStatus
from typing import Annotated
from uuid import UUID

import structlog
from fastapi import APIRouter, Path, Query
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response

from oncefence.app.door_reading import read_message
from oncefence.app.door_responses import answers, says, takes
from oncefence.app.doors import Doors, DoorsHere
from oncefence.app.operator_access import OperatorHere, require
from oncefence.app.operator_queries import AnyOrgInQuery
from oncefence.app.pause_messages import (
    PauseReport,
    PauseRequest,
    PauseRow,
    PauseRows,
    ResumeRequest,
)
from oncefence.domain.ids import OrgId, PauseId
from oncefence.domain.operator import Act
from oncefence.storage.phases.list_pauses import find_held_classes, list_pauses
from oncefence.storage.phases.pause_work import pause_work
from oncefence.storage.phases.resume_work import resume_work

log = structlog.get_logger("oncefence.doors")

router = APIRouter(prefix="/v1/operator/pauses")

PauseInPath = Annotated[UUID, Path(description="a pause")]
WithEnded = Annotated[bool, Query(description="also those that are over")]


@router.get("", responses=answers(401, 403, 422, 503, s200=PauseRows))
async def read_pauses(
    doors: DoorsHere,
    operator: OperatorHere,
    *,
    org: AnyOrgInQuery = None,
    with_ended: WithEnded = False,
) -> Response:
    """What holds something of these orgs back, and how many items of theirs it holds."""
    orgs = operator.orgs if org is None else (org,)
    for each in orgs:
        require(operator, Act.READ, each)
    listed = await list_pauses(doors.engine, orgs, with_ended=with_ended)
    return says(PauseRows(pauses=[PauseRow.of_listed(each) for each in listed]))


@router.post(
    "",
    status_code=HTTPStatus.CREATED,
    responses=answers(400, 401, 403, 409, 413, 415, 422, 503, s200=PauseReport, s201=PauseReport),
    openapi_extra=takes("application/json", PauseRequest.model_json_schema()),
)
async def pause(request: Request, doors: DoorsHere, operator: OperatorHere) -> Response:
    """Hold back what fits; 200 where exactly that is held back already."""
    message = await read_message(request, PauseRequest)
    require(operator, Act.PAUSE, message.org)
    given = await pause_work(doors.engine, message.scope, actor=operator.actor, note=message.note)
    report = PauseReport(pause=PauseRow.of(given.pause), is_new=given.is_new)
    return says(report, HTTPStatus.CREATED if given.is_new else HTTPStatus.OK)


@router.post(
    "/{pause_id}/resume",
    responses=answers(400, 401, 403, 409, 413, 415, 422, 503, s200=PauseReport),
    openapi_extra=takes("application/json", ResumeRequest.model_json_schema()),
)
async def resume(
    pause_id: PauseInPath, request: Request, doors: DoorsHere, operator: OperatorHere
) -> Response:
    """Let go what the pause holds, at once or slowly; a window of each class is woken."""
    message = await read_message(request, ResumeRequest)
    require(operator, Act.RESUME, message.org)
    resumed = await resume_work(
        doors.engine,
        message.org,
        PauseId(pause_id),
        ramp_seconds=message.ramp_seconds,
        actor=operator.actor,
        note=message.note,
        expected_version=message.expected_version,
    )
    return says(
        PauseReport(pause=PauseRow.of(resumed.pause), is_new=resumed.is_new),
        # A repeat wakes too: the process that did the act may have died before it woke anybody.
        background=BackgroundTask(_wake_held, doors, message.org, resumed.pause.pause),
    )


async def _wake_held(doors: Doors, org: OrgId, pause: PauseId) -> None:
    """Open what the pause held; after its COMMIT, so that whoever came meanwhile is seen."""
    try:
        for of_org, queue_class in await find_held_classes(doors.engine, org, pause):
            await doors.window.open(of_org, queue_class)
    except Exception as error:  # noqa: BLE001  # logged; the sweep repairs a missed hint
        log.warning("announce_failed", error=type(error).__name__)
