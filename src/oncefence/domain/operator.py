"""Operators: who may do what, and for which orgs."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from oncefence.domain.ids import OrgId

EVERY_ORG: Final = OrgId("*")
"""As an operator's scope, every org; as the org of a pause or an audit row, all of them."""

NOTE_LENGTH_MAX: Final = 500
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


class Role(StrEnum):
    """What an operator is trusted with. Roles do not contain each other."""

    VIEWER = "viewer"
    """Reads."""

    OPERATOR = "operator"
    """Reads, and stops and starts what runs: pause, resume, cancel, reclaim, breakers."""

    REPAIRER = "repairer"
    """Reads, and makes new work from ended work: replay."""

    ADMINISTRATOR = "administrator"
    """Makes and revokes operators, connects accounts, and rebuilds and drops read models."""


class Act(StrEnum):
    """What an operator does; also the word in the audit row."""

    READ = "read"
    CANCEL = "work.cancel"
    RECLAIM = "work.reclaim"
    PAUSE = "work.pause"
    RESUME = "work.resume"
    REPLAY = "work.replay"
    OPEN_BREAKER = "breaker.open"
    CLOSE_BREAKER = "breaker.close"
    ADD_OPERATOR = "operator.add"
    REVOKE_OPERATOR = "operator.revoke"
    REBUILD_VIEWS = "views.rebuild"
    DROP_VIEWS = "views.drop"
    ADD_APP = "app.add"
    CONNECT_BINDING = "binding.connect"
    REAUTHORIZE_BINDING = "binding.reauthorize"
    DISCONNECT_BINDING = "binding.disconnect"
    REBIND_BINDING = "binding.rebind"


_ALLOWED: Final[Mapping[Role, frozenset[Act]]] = {
    Role.VIEWER: frozenset((Act.READ,)),
    Role.OPERATOR: frozenset(
        (
            *(Act.READ, Act.CANCEL, Act.RECLAIM, Act.PAUSE, Act.RESUME),
            *(Act.OPEN_BREAKER, Act.CLOSE_BREAKER),
        )
    ),
    Role.REPAIRER: frozenset((Act.READ, Act.REPLAY)),
    Role.ADMINISTRATOR: frozenset(
        (
            *(Act.READ, Act.ADD_OPERATOR, Act.REVOKE_OPERATOR, Act.REBUILD_VIEWS, Act.DROP_VIEWS),
            *(Act.ADD_APP, Act.CONNECT_BINDING, Act.REAUTHORIZE_BINDING),
            *(Act.DISCONNECT_BINDING, Act.REBIND_BINDING),
        )
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """A person or a script that acts, as its token proves it (C407)."""

    name: str
    roles: frozenset[Role]
    orgs: frozenset[OrgId]

    @property
    def actor(self) -> str:
        """Who acts, as audit rows name it."""
        return f"operator:{self.name}"

    def may(self, act: Act, org: OrgId) -> bool:
        """Whether a role allows the act and the scope holds the org; EVERY_ORG needs all."""
        in_scope = EVERY_ORG in self.orgs or org in self.orgs
        return in_scope and any(act in _ALLOWED[role] for role in self.roles)

    def may_everywhere(self, act: Act, orgs: Iterable[OrgId]) -> bool:
        """Whether the act is allowed in each of `orgs`, as of another operator's whole scope."""
        return all(self.may(act, org) for org in orgs)


def is_operator_name(text: str) -> bool:
    """Whether an operator may be called so."""
    return _NAME.fullmatch(text) is not None


def fault_of_note(note: str) -> str | None:
    """What is wrong with the note of an act, if anything is."""
    if not note.strip():
        return "must say why, in 1 to 500 characters"
    if len(note) > NOTE_LENGTH_MAX:
        return f"may have at most {NOTE_LENGTH_MAX} characters"
    # No line of a log, a table or a terminal is forged by a note.
    if not note.isprintable():
        return "may hold printable characters alone, on one line"
    return None
