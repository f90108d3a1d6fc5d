"""The messages about operators: one to be made, one that is made, and who there is (C407)."""

from datetime import datetime
from typing import Annotated, Final
from uuid import UUID

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from oncefence.app.operator_messages import ORG_FORM, NotedRequest, OperatorAnswer
from oncefence.domain.ids import OrgId
from oncefence.domain.operator import Role, is_operator_name
from oncefence.storage.phases.list_operators import ListedOperator

_ORGS_MAX: Final = 100


def _name(text: str) -> str:
    if not is_operator_name(text):
        raise PydanticCustomError(
            "name", "must be 1 to 63 of a-z, 0-9, '.', _ and -, beginning with a letter or a digit"
        )
    return text


class AddOperatorRequest(NotedRequest):
    """An operator to be made."""

    name: Annotated[str, AfterValidator(_name)]
    roles: Annotated[list[Annotated[Role, Field(strict=False)]], Field(min_length=1)]
    orgs: Annotated[
        list[Annotated[OrgId, Field(pattern=ORG_FORM)]], Field(min_length=1, max_length=_ORGS_MAX)
    ]


class OperatorAdded(OperatorAnswer):
    """A new operator; its token is told here and never again."""

    name: str
    operator_id: UUID
    token: Annotated[str, Field(repr=False)]


class OperatorRevoked(OperatorAnswer):
    """An operator whose token opens nothing any more."""

    name: str
    operator_id: UUID


class OperatorRow(OperatorAnswer):
    """One operator; `version` is what revoking it asks for."""

    name: str
    operator_id: UUID
    version: str
    roles: list[Role]
    orgs: list[str]
    made_at: datetime
    revoked_at: datetime | None

    @classmethod
    def of(cls, found: ListedOperator) -> "OperatorRow":
        """The row of `found`."""
        return cls(
            name=found.name,
            operator_id=found.operator,
            version=str(found.operator),
            roles=sorted(found.roles),
            orgs=sorted(found.orgs),
            made_at=found.made_at,
            revoked_at=found.revoked_at,
        )


class OperatorRows(OperatorAnswer):
    """Operators, by name."""

    operators: list[OperatorRow]
