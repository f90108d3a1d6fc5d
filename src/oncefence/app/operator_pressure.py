"""The routes about what waits, and about the read model that they read it from (C26)."""

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Final

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from oncefence.app.door_reading import read_message
from oncefence.app.door_responses import answers, says, takes
from oncefence.app.doors import DoorsHere
from oncefence.app.operator_access import OperatorHere, require
from oncefence.app.operator_messages import ActRequest, OperatorAnswer
from oncefence.app.operator_queries import AnyOrgInQuery
from oncefence.app.problems import RequestRefused
from oncefence.domain.operator import EVERY_ORG, Act, Operator
from oncefence.storage.phases.drop_pressure import drop_pressure
from oncefence.storage.phases.read_pressure import Pressure, Waiting, read_pressure
from oncefence.storage.phases.rebuild_pressure import ViewOrder, rebuild_pressure
from oncefence.storage.work_pressure import VIEW


class WaitingRow(OperatorAnswer):
    """How much waits in one state, how much of it is due, and for how long the oldest has."""

    org: str
    family: str
    provider: str | None
    state: str
    depth: int
    due: int
    oldest_due_seconds: float | None
    oldest_seconds: float

    @classmethod
    def of(cls, found: Waiting) -> "WaitingRow":
        """The row of `found`."""
        return cls(
            org=found.org,
            family=found.family,
            provider=found.provider or None,
            state=found.state,
            depth=found.depth,
            due=found.due,
            oldest_due_seconds=found.oldest_due_seconds,
            oldest_seconds=found.oldest_made_seconds,
        )


class ViewState(OperatorAnswer):
    """A read model: its revision, and the moment of its source that it tells of."""

    view: str
    version: str
    is_built: bool
    source_time: datetime | None
    source_snapshot: str | None
    age_seconds: float | None

    @classmethod
    def of(cls, found: Pressure) -> "ViewState":
        """The state of the reading `found`."""
        return cls(
            view=VIEW,
            version=found.version,
            is_built=found.waiting is not None,
            source_time=found.source_time,
            source_snapshot=found.source_snapshot,
            age_seconds=found.age_seconds,
        )


class ViewStates(OperatorAnswer):
    """The read models that there are."""

    views: list[ViewState]


class PressureReport(OperatorAnswer):
    """The reading; without one, `rows` is null, which is not the same as nothing waits."""

    reading: ViewState
    rows: list[WaitingRow] | None

    @classmethod
    def of(cls, found: Pressure) -> "PressureReport":
        """The report of `found`."""
        rows = None if found.waiting is None else [WaitingRow.of(each) for each in found.waiting]
        return cls(reading=ViewState.of(found), rows=rows)


router: Final = APIRouter(prefix="/v1/operator")

ViewInPath = Annotated[str, Path(pattern="^[a-z_]{1,63}$", description="as `GET views` lists it")]


@router.get("/pressure", responses=answers(401, 403, 422, 503, s200=PressureReport))
async def read(doors: DoorsHere, operator: OperatorHere, org: AnyOrgInQuery = None) -> Response:
    """Depth and age of what waits, by org, family, provider and state, as last counted."""
    orgs = operator.orgs if org is None else frozenset((org,))
    for each in orgs:
        require(operator, Act.READ, each)
    return says(PressureReport.of(await read_pressure(doors.engine, orgs)))


@router.get("/views", responses=answers(401, 403, 503, s200=ViewStates))
async def read_views(doors: DoorsHere, operator: OperatorHere) -> Response:
    """The read models: what they are called, and of when they are."""
    for each in operator.orgs:
        require(operator, Act.READ, each)
    found = await read_pressure(doors.engine, ())
    return says(ViewStates(views=[ViewState.of(found)]))


@router.post(
    "/views/{view}/rebuild",
    responses=answers(400, 401, 403, 404, 409, 413, 415, 422, 503, s200=ViewState),
    openapi_extra=takes("application/json", ActRequest.model_json_schema()),
)
async def rebuild(
    view: ViewInPath, request: Request, doors: DoorsHere, operator: OperatorHere
) -> Response:
    """Count anew, from the items; claims go on meanwhile."""
    order = await _order(view, request, operator, Act.REBUILD_VIEWS)
    await rebuild_pressure(doors.engine, order)
    return says(ViewState.of(await read_pressure(doors.engine, ())))


@router.post(
    "/views/{view}/drop",
    responses=answers(400, 401, 403, 404, 409, 413, 415, 422, 503, s200=ViewState),
    openapi_extra=takes("application/json", ActRequest.model_json_schema()),
)
async def drop(
    view: ViewInPath, request: Request, doors: DoorsHere, operator: OperatorHere
) -> Response:
    """Have no reading, until somebody rebuilds it; the sweep leaves it alone."""
    order = await _order(view, request, operator, Act.DROP_VIEWS)
    await drop_pressure(doors.engine, order)
    return says(ViewState.of(await read_pressure(doors.engine, ())))


async def _order(view: str, request: Request, operator: Operator, act: Act) -> ViewOrder:
    # It is of every org at once, and so is the right to it.
    require(operator, act, EVERY_ORG)
    message = await read_message(request, ActRequest)
    if view != VIEW:
        raise RequestRefused(
            status=HTTPStatus.NOT_FOUND,
            code="no_such_view",
            detail=f"there is no such read model; there is {VIEW}",
        )
    return ViewOrder(
        actor=operator.actor, note=message.note, expected_version=message.expected_version
    )
