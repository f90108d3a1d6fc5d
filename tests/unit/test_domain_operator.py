"""Who may do what: the whole table of roles and acts, and the scope of orgs."""

from itertools import combinations

import pytest

from oncefence.domain.ids import OrgId
from oncefence.domain.operator import (
    EVERY_ORG,
    NOTE_LENGTH_MAX,
    Act,
    Operator,
    Role,
    fault_of_note,
    is_operator_name,
)

ACME, OTHER = OrgId("acme"), OrgId("other")
# Written out, and not taken from the code: a role that grows must be seen here.
MAY: dict[str, set[str]] = {
    "viewer": {"read"},
    "operator": {
        *("read", "work.cancel", "work.reclaim", "work.pause", "work.resume"),
        *("breaker.open", "breaker.close"),
    },
    "repairer": {"read", "work.replay"},
    "administrator": {
        "read",
        "operator.add",
        "operator.revoke",
        "views.rebuild",
        "views.drop",
        *("app.add", "binding.connect", "binding.reauthorize"),
        *("binding.disconnect", "binding.rebind"),
    },
}
SCOPES: dict[str, tuple[frozenset[OrgId], set[OrgId]]] = {
    "none": (frozenset(), set()),
    "one": (frozenset((ACME,)), {ACME}),
    "both": (frozenset((ACME, OTHER)), {ACME, OTHER}),
    "every": (frozenset((EVERY_ORG,)), {ACME, OTHER, EVERY_ORG}),
    "every_and_one": (frozenset((EVERY_ORG, ACME)), {ACME, OTHER, EVERY_ORG}),
}


def operator(*roles: Role, orgs: frozenset[OrgId] = frozenset((ACME,))) -> Operator:
    return Operator(name="ada", roles=frozenset(roles), orgs=orgs)


def test_the_table_knows_every_role() -> None:
    """A role that the table here does not name is a role that nobody reviewed."""
    assert set(MAY) == {role.value for role in Role}


@pytest.mark.parametrize("org", [ACME, OTHER, EVERY_ORG])
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("act", Act)
@pytest.mark.parametrize("role", Role)
def test_a_role_allows_its_acts_in_its_scope_alone(
    role: Role, act: Act, scope: str, org: OrgId
) -> None:
    """Every role, act and scope; an act on all orgs needs the scope of all (C401, C407)."""
    orgs, covered = SCOPES[scope]

    assert operator(role, orgs=orgs).may(act, org) is (
        act.value in MAY[role.value] and org in covered
    )


@pytest.mark.parametrize("act", Act)
@pytest.mark.parametrize("roles", list(combinations(Role, 2)))
def test_two_roles_allow_what_either_allows(roles: tuple[Role, Role], act: Act) -> None:
    """Roles add up, and nothing more comes of having two."""
    either = any(act.value in MAY[role.value] for role in roles)

    assert operator(*roles).may(act, ACME) is either


@pytest.mark.parametrize("act", Act)
def test_without_a_role_nothing_is_allowed(act: Act) -> None:
    """A scope alone is no right."""
    assert not operator(orgs=frozenset((EVERY_ORG,))).may(act, ACME)


def test_a_scope_is_covered_as_a_whole_or_not() -> None:
    """Whoever revokes an operator of two orgs must be trusted in both."""
    of_both = operator(Role.ADMINISTRATOR, orgs=frozenset((ACME, OTHER)))
    of_one = operator(Role.ADMINISTRATOR)

    assert of_both.may_everywhere(Act.REVOKE_OPERATOR, (ACME, OTHER))
    assert not of_one.may_everywhere(Act.REVOKE_OPERATOR, (ACME, OTHER))
    assert not of_both.may_everywhere(Act.REVOKE_OPERATOR, (EVERY_ORG,))


def test_an_actor_is_told_from_a_shell() -> None:
    """The audit says which kind of hand it was."""
    assert operator(Role.VIEWER).actor == "operator:ada"


@pytest.mark.parametrize("name", ["ada", "a", "0", "ada.l", "on-call_2", "a" * 63])
def test_a_name_that_can_be_typed_and_read_is_taken(name: str) -> None:
    """It stands in addresses, tables and the audit."""
    assert is_operator_name(name)


@pytest.mark.parametrize(
    "name", ["", "Ada", "-ada", ".ada", "a" * 64, "ada l", "ada\n", "äda", "a/b", "*", "a\x00"]
)
def test_any_other_name_is_not(name: str) -> None:
    """A name that looks like another's or breaks a line could put the blame elsewhere."""
    assert not is_operator_name(name)


@pytest.mark.parametrize("note", ["x", "Kunde bat darum, Grüße", "a" * NOTE_LENGTH_MAX])
def test_a_note_that_can_be_read_is_taken(note: str) -> None:
    """In any language."""
    assert fault_of_note(note) is None


@pytest.mark.parametrize(
    ("note", "fault"),
    [
        ("", "say why"),
        ("   ", "say why"),
        ("a" * (NOTE_LENGTH_MAX + 1), "at most 500"),
        ("two\nlines", "printable"),
        ("bell\a", "printable"),
        ("nul\x00", "printable"),
        ("turned \u202e around", "printable"),
        ("half \ud800", "printable"),
    ],
)
def test_a_note_that_says_nothing_or_forges_a_line_is_refused(note: str, fault: str) -> None:
    """The audit is read in terminals."""
    told = fault_of_note(note)

    assert told is not None
    assert fault in told
