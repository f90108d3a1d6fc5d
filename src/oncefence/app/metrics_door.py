"""
The door for scrapers: everything that this process measures, in the text form of Prometheus.

It tells how much of whose work waits, so it is for operators of every org alone (C8).
"""

from http import HTTPStatus
from typing import Final

from fastapi import APIRouter
from starlette.responses import Response

from oncefence.app.door_responses import answers
from oncefence.app.doors import DoorsHere
from oncefence.app.operator_access import OperatorHere, require
from oncefence.app.problems import no_such_thing
from oncefence.domain.operator import EVERY_ORG, Act
from oncefence.storage.phases.list_breakers import count_breakers
from oncefence.storage.phases.read_pressure import read_pressure

router: Final = APIRouter()


@router.get(
    "/metrics",
    responses={
        HTTPStatus.OK: {"description": "OK", "content": {"text/plain": {}}},
        **answers(401, 403, 404, 503),
    },
)
async def metrics(doors: DoorsHere, operator: OperatorHere) -> Response:
    """Counts and durations of this process, with the deployment's pressure and breakers (C461)."""
    require(operator, Act.READ, EVERY_ORG)
    if doors.metrics is None:
        raise no_such_thing()
    text = doors.metrics.text(
        await read_pressure(doors.engine, [EVERY_ORG]), await count_breakers(doors.engine)
    )
    return Response(
        text, media_type=doors.metrics.media_type, headers={"Cache-Control": "no-store"}
    )
