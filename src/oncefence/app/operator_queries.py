"""What the addresses of an operator's routes may ask for: which org, and which page of rows."""

from typing import Annotated, Final

from fastapi import Query

from oncefence.app.operator_messages import ORG_FORM, PAGE_ROWS_MAX
from oncefence.domain.ids import OrgId

_SEQUENCE_MAX: Final = 2**63 - 1

OrgInQuery = Annotated[
    OrgId, Query(alias="org", pattern=ORG_FORM, description="an org; * is every org")
]
AnyOrgInQuery = Annotated[
    OrgId | None, Query(alias="org", pattern=ORG_FORM, description="an org; else all of yours")
]
LimitInQuery = Annotated[int, Query(alias="limit", ge=1, le=PAGE_ROWS_MAX, description="rows")]
BeforeInQuery = Annotated[
    int | None, Query(ge=1, le=_SEQUENCE_MAX, description="a sequence; the rows before it")
]
