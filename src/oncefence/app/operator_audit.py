"""The routes about the audit: what was done in an org, and whether its chain is whole (C406)."""

from fastapi import APIRouter
from starlette.responses import Response

from oncefence.app.audit_messages import AuditEntries, AuditEntry, ChainReports
from oncefence.app.door_responses import answers, says
from oncefence.app.doors import DoorsHere
from oncefence.app.operator_access import OperatorHere, require
from oncefence.app.operator_messages import PAGE_ROWS
from oncefence.app.operator_queries import (
    AnyOrgInQuery,
    BeforeInQuery,
    LimitInQuery,
    OrgInQuery,
)
from oncefence.domain.operator import EVERY_ORG, Act
from oncefence.storage.phases.list_audit import list_audit
from oncefence.storage.phases.verify_audit_chain import verify_audit_chain

router = APIRouter(prefix="/v1/operator/audit")


@router.get("", responses=answers(401, 403, 422, 503, s200=AuditEntries))
async def read_audit(
    doors: DoorsHere,
    operator: OperatorHere,
    org: OrgInQuery,
    before: BeforeInQuery = None,
    limit: LimitInQuery = PAGE_ROWS,
) -> Response:
    """The acts of one org; those of `*` are the acts that were done to every org at once."""
    require(operator, Act.READ, org)
    rows = await list_audit(doors.engine, org, rows_max=limit, before=before)
    return says(
        AuditEntries(
            org=org,
            rows=[AuditEntry.of(row) for row in rows],
            next_before=rows[-1].sequence if len(rows) == limit else None,
        )
    )


@router.get("/chain", responses=answers(401, 403, 422, 503, s200=ChainReports))
async def read_chain(
    doors: DoorsHere, operator: OperatorHere, org: AnyOrgInQuery = None
) -> Response:
    """Each chain, with every digest computed anew: of one org, or of all within the scope."""
    if org is None:
        orgs = None if EVERY_ORG in operator.orgs else operator.orgs
    else:
        orgs = frozenset((org,))
    for each in orgs or (EVERY_ORG,):
        require(operator, Act.READ, each)
    return says(ChainReports.of(await verify_audit_chain(doors.engine, orgs)))
