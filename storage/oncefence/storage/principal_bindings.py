"""Sole writer of `principal_bindings`: in whose name requests are sent, and to which host."""

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import Row, bindparam, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from oncefence.domain.ids import OrgId, PrincipalBindingId, named_id
from oncefence.storage.tables import principal_bindings

ADD = insert(principal_bindings)
FIND = select(principal_bindings).where(
    principal_bindings.c.org_id == bindparam("of_org"),
    principal_bindings.c.name == bindparam("of_name"),
    principal_bindings.c.subject.is_not_distinct_from(bindparam("of_subject")),
)

OF_NAME = (
    select(principal_bindings.c.kind, principal_bindings.c.provider)
    .where(
        principal_bindings.c.org_id == bindparam("of_org"),
        principal_bindings.c.name == bindparam("of_name"),
    )
    .limit(1)
)
ANOTHER_KIND: Final = "OF069"
"""The SQLSTATE of a binding of another kind or provider than those of its name."""


def binding_id(org: OrgId, name: str, subject: str | None = None) -> PrincipalBindingId:
    """The binding of this name, or that of one of its users; the user comes last."""
    names = (name,) if subject is None else (name, subject)
    return PrincipalBindingId(named_id("principal-binding", org, *names))


async def add(connection: AsyncConnection, values: Mapping[str, Any]) -> None:
    """Add one row."""
    await connection.execute(ADD, values)


async def find(
    connection: AsyncConnection, org: OrgId, name: str, subject: str | None = None
) -> Row[Any] | None:
    """The binding of this name, or that of one of its users, if it is there."""
    found = await connection.execute(FIND, {"of_org": org, "of_name": name, "of_subject": subject})
    return found.one_or_none()


async def kind_of_name(
    connection: AsyncConnection, org: OrgId, name: str
) -> tuple[str, str] | None:
    """Kind and provider of the bindings that are called so, which all of them have in common."""
    found = (await connection.execute(OF_NAME, {"of_org": org, "of_name": name})).one_or_none()
    return None if found is None else (found.kind, found.provider)
