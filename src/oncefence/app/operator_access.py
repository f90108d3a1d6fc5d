"""Who stands at an operator's door, and whether what is asked for is theirs to ask (C401, C407)."""

from http import HTTPStatus
from typing import Annotated, Final

from fastapi import Depends
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from oncefence.app.doors import DoorsHere
from oncefence.app.problems import RequestRefused
from oncefence.domain.ids import OrgId
from oncefence.domain.operator import Act, Operator
from oncefence.domain.redaction import Secret
from oncefence.storage.phases.authenticate_operator import authenticate_operator

# A scheme of its own: the credential of a Runtime opens no operator's door, nor the reverse.
_bearer: Final = HTTPBearer(
    auto_error=False,
    scheme_name="OperatorToken",
    description="What `oncefence operator add` printed.",
)


async def _operator(
    doors: DoorsHere, shown: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> Operator:
    if shown is not None and shown.credentials:
        # The database is asked each time, so a revoked token ends at once.
        operator = await authenticate_operator(doors.engine, Secret(shown.credentials))
        if operator is not None:
            return operator
    raise RequestRefused(
        status=HTTPStatus.UNAUTHORIZED,
        code="operator_unknown",
        detail="give an operator's token of this deployment: Authorization: Bearer <token>, "
        "as `oncefence operator add` printed it",
        headers={"WWW-Authenticate": 'Bearer realm="oncefence"'},
    )


OperatorHere = Annotated[Operator, Depends(_operator)]


def require(operator: Operator, act: Act, org: OrgId) -> None:
    """
    Return where the operator may do `act` to what is of `org`; EVERY_ORG needs the scope of all.

    Raises:
        RequestRefused: It may not. The words do not depend on the org, nor on whether there is
            one of that name (C8).
    """
    if not operator.may(act, org):
        raise RequestRefused(
            status=HTTPStatus.FORBIDDEN,
            code="act_not_allowed",
            detail=f"the roles or the orgs of this operator do not allow {act.value} there; "
            "an administrator can make an operator who may",
        )
