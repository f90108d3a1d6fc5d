"""The route about quota: what is used of which limit, and what is closed (C300)."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from oncefence.app.door_responses import answers, says
from oncefence.app.doors import DoorsHere
from oncefence.app.operator_access import OperatorHere, require
from oncefence.app.operator_queries import AnyOrgInQuery
from oncefence.app.quota_messages import QuotaRow, QuotaRows
from oncefence.domain.operator import Act
from oncefence.storage.phases.list_quota import list_quota

router = APIRouter(prefix="/v1/operator/quota")

KeyInQuery = Annotated[str | None, Query(alias="key", max_length=2_000, description="one count")]
WithIdle = Annotated[bool, Query(description="also those of which nothing is used")]


@router.get("", responses=answers(401, 403, 422, 503, s200=QuotaRows))
async def read_quota(
    doors: DoorsHere,
    operator: OperatorHere,
    *,
    org: AnyOrgInQuery = None,
    key: KeyInQuery = None,
    with_idle: WithIdle = False,
) -> Response:
    """What holds work of these orgs, of a shared account too; none where nothing of theirs is."""
    orgs = operator.orgs if org is None else frozenset((org,))
    for each in orgs:
        require(operator, Act.READ, each)
    found = await list_quota(doors.engine, orgs, key=key, with_idle=with_idle)
    return says(QuotaRows(counts=[QuotaRow.of(each) for each in found]))
