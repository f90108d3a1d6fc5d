"""The routes about the dead-letter queue: what is in it, and planning and applying a replay."""

from fastapi import APIRouter
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response

from oncefence.app.door_reading import read_message
from oncefence.app.door_responses import answers, says, takes
from oncefence.app.doors import Doors, DoorsHere
from oncefence.app.operator_access import OperatorHere, require
from oncefence.app.operator_hints import tell_of
from oncefence.app.operator_messages import PAGE_ROWS
from oncefence.app.operator_queries import AnyOrgInQuery, LimitInQuery, OrgInQuery
from oncefence.app.operator_work import (
    CursorInQuery,
    WordInQuery,
    WorkInPath,
    found_here,
    orgs_asked,
)
from oncefence.app.work_messages import (
    AppliedLine,
    AppliedPlan,
    DeadLetterMessage,
    DeadLetterQuery,
    PlanMessage,
    ReplayEnd,
    ReplayPlanRequest,
    WorkRows,
    position_of,
)
from oncefence.domain.errors import ActRefused, VersionMoved
from oncefence.domain.ids import OrgId, WorkId
from oncefence.domain.operator import Act
from oncefence.domain.replay import ReplayVerdict
from oncefence.storage.dead_letters import DeadLetterFilter
from oncefence.storage.phases.begin_replay import begin_replay
from oncefence.storage.phases.find_work import WorkRef
from oncefence.storage.phases.list_dead_letters import list_dead_letters
from oncefence.storage.phases.plan_replay import plan_replay
from oncefence.storage.phases.replay_work import replay_work
from oncefence.storage.phases.show_dead_letter import show_dead_letter
from oncefence.storage.replay_facts import PlanLine

router = APIRouter(prefix="/v1/operator/dead-letters")


@router.get("", responses=answers(401, 403, 422, 503, s200=WorkRows))
async def read_dead_letters(
    doors: DoorsHere,
    operator: OperatorHere,
    *,
    org: AnyOrgInQuery = None,
    family: WordInQuery = None,
    provider: WordInQuery = None,
    definition: WordInQuery = None,
    failure_class: WordInQuery = None,
    after: CursorInQuery = None,
    limit: LimitInQuery = PAGE_ROWS,
) -> Response:
    """What ended without success and was not replayed; what ended last comes first (C400)."""
    which = DeadLetterFilter(
        family=family, provider=provider, definition=definition, failure_class=failure_class
    )
    rows = await list_dead_letters(
        doors.engine, orgs_asked(operator, org), which, limit=limit, after=position_of(after)
    )
    return says(WorkRows.of(rows, by="changed_at", limit=limit))


@router.get("/{work}", responses=answers(401, 403, 404, 422, 503, s200=DeadLetterMessage))
async def read_dead_letter(
    work: WorkInPath, doors: DoorsHere, operator: OperatorHere, org: OrgInQuery
) -> Response:
    """One ended item with all that it stands on, and what a replay of it would do."""
    require(operator, Act.READ, org)
    with found_here():
        letter = await show_dead_letter(doors.engine, org, WorkId(work), doors.limits)
    return says(DeadLetterMessage.of(letter))


@router.post(
    "/plan",
    responses=answers(400, 401, 403, 413, 415, 422, 503, s200=PlanMessage),
    openapi_extra=takes("application/json", DeadLetterQuery.model_json_schema()),
)
async def plan(request: Request, doors: DoorsHere, operator: OperatorHere) -> Response:
    """What applying a replay to these dead letters would do; nothing is written (C405)."""
    message = await read_message(request, DeadLetterQuery)
    require(operator, Act.READ, message.org)
    found = await plan_replay(doors.engine, message.org, message.filter, doors.limits)
    return says(PlanMessage.of(found))


@router.post(
    "/apply",
    responses=answers(400, 401, 403, 409, 413, 415, 422, 503, s200=AppliedPlan),
    openapi_extra=takes("application/json", ReplayPlanRequest.model_json_schema()),
)
async def apply(request: Request, doors: DoorsHere, operator: OperatorHere) -> Response:
    """
    Replay what the plan of this digest calls safe, each item in a transaction of its own.

    Without an answer, ask again with the same digest: what was replayed is not replayed again.
    """
    message = await read_message(request, ReplayPlanRequest)
    require(operator, Act.REPLAY, message.org)
    begun = await begin_replay(
        doors.engine,
        message.org,
        message.filter,
        message.digest,
        note=message.note,
        actor=operator.actor,
        limits=doors.limits,
    )
    lines: list[AppliedLine] = []
    refs: list[WorkRef] = []
    for line in begun.lines:
        applied, ref = await _apply(doors, message.org, line, message.note, operator.actor)
        lines.append(applied)
        refs += [] if ref is None else [ref]
    return says(
        AppliedPlan(org=message.org, digest=message.digest, lines=lines),
        background=BackgroundTask(tell_of, doors, new=refs),
    )


async def _apply(
    doors: Doors, org: OrgId, line: PlanLine, note: str, actor: str
) -> tuple[AppliedLine, WorkRef | None]:
    if line.verdict is not ReplayVerdict.SAFE_TO_REPLAY:
        detail = f"{line.verdict}: {line.remedy}"
        return AppliedLine(work_id=line.work, end=ReplayEnd.LEFT, detail=detail), None
    try:
        replayed = await replay_work(
            doors.engine,
            org,
            line.work,
            expected_version=line.version,
            note=note,
            actor=actor,
            limits=doors.limits,
        )
    except (ActRefused, VersionMoved) as error:
        before = isinstance(error, ActRefused) and error.verdict == ReplayVerdict.ALREADY_REPLAYED
        end = ReplayEnd.REPLAYED_BEFORE if before else ReplayEnd.REFUSED
        return AppliedLine(
            work_id=line.work, end=end, detail=str(error), new_work_id=line.replayed_as
        ), None
    return AppliedLine(
        work_id=line.work,
        end=ReplayEnd.REPLAYED,
        detail="made anew",
        new_work_id=replayed.ref.work,
    ), replayed.ref
