"""Making an operator: its name, its roles, its orgs and the hash of its token (C407)."""

import secrets
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.domain.errors import ActRefused
from oncefence.domain.ids import OperatorId, OrgId
from oncefence.domain.operator import EVERY_ORG, Act, Role, is_operator_name
from oncefence.domain.redaction import Secret
from oncefence.storage import audit, operators
from oncefence.storage.engine import constraint_name, run_phase

TOKEN_PREFIX: Final = "ofo1_"  # noqa: S105  # a mark that is the same for all
_NOBODY: Final = "absent"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedOperator:
    """The new operator, and its token, which is nowhere stored."""

    operator: OperatorId
    token: Secret


async def add_operator(
    engine: AsyncEngine,
    *,
    name: str,
    roles: frozenset[Role],
    orgs: frozenset[OrgId],
    actor: str,
    note: str,
) -> AddedOperator:
    """
    Make the operator that nobody of this name is; every org of its scope has it in its audit.

    After a lost answer nobody has the token: revoke the operator, and make it again.

    Raises:
        ActRefused: There is a live operator of this name.
    """
    assert is_operator_name(name), "checked where it came in"
    assert roles, "an operator without a role can do nothing"
    assert orgs, "an operator without an org can do nothing"
    scope = [EVERY_ORG] if EVERY_ORG in orgs else sorted(orgs)
    token = Secret(TOKEN_PREFIX + secrets.token_urlsafe(32))
    operator = OperatorId(uuid4())

    async def transaction() -> None:
        async with engine.begin() as connection:
            await operators.add(
                connection,
                {
                    "operator_id": operator,
                    "name": name,
                    "token_hash": operators.token_hash(token),
                    "roles": sorted(role.value for role in roles),
                    "orgs": scope,
                },
            )
            # In the order of their names: each locks the end of its chain.
            for org in scope:
                await audit.add(
                    connection,
                    org,
                    actor=actor,
                    act=Act.ADD_OPERATOR,
                    subject_kind="operator",
                    subject_id=f"{name}/{operator}",
                    note=note,
                    expected_version=_NOBODY,
                )

    try:
        await run_phase("add_operator", transaction)
    except Exception as error:
        if constraint_name(error) == "one_live_operator_per_name":
            raise ActRefused(
                act=Act.ADD_OPERATOR,
                subject=f"operator {name}",
                verdict="the name is taken",
                remedy="revoke that operator first, or choose another name",
            ) from None
        raise
    return AddedOperator(operator=operator, token=token)
