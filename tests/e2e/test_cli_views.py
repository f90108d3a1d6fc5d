"""`oncefence views`: what waits, of when it is, and who may have it counted anew (C26, C406)."""

from collections.abc import Mapping

import pytest

from oncefence.domain.ids import OrgId
from oncefence.domain.operator import EVERY_ORG, Role
from oncefence.storage.phases.add_operator import add_operator
from tests.support.command_line import Ended, run
from tests.support.doors import OpenDoor
from tests.support.world import World

VIEW = "work_pressure"


async def settings_of(
    door: OpenDoor, *roles: Role, org: OrgId = EVERY_ORG, name: str = "ann"
) -> Mapping[str, str]:
    """The settings of an operator with these roles at this door."""
    added = await add_operator(
        door.engine,
        name=name,
        roles=frozenset(roles),
        orgs=frozenset((org,)),
        actor="tests",
        note="for a test",
    )
    return {"DOORS": door.url, "OPERATOR_TOKEN": added.token.reveal()}


@pytest.fixture
async def administrator(door: OpenDoor) -> Mapping[str, str]:
    return await settings_of(door, Role.ADMINISTRATOR)


async def acted(verb: str, version: str, settings: Mapping[str, str]) -> Ended:
    words = ("views", verb, VIEW, "--expected-version", version, "--note", "looks odd")
    return await run(*words, "--json", settings=settings)


async def test_what_waits_is_shown_with_its_revision_and_age(
    world: World, administrator: Mapping[str, str]
) -> None:
    """A figure that does not say of when it is gets taken for one of now."""
    await world.accept_command("waits")
    await world.an_unknown_command("doubt")
    before = await run("views", "pressure", "--json", settings=administrator)

    built = await acted("rebuild", "0", administrator)

    assert (before.document["rows"], before.document["reading"]["is_built"]) == (None, False)
    assert (built.code, built.document["version"], built.document["is_built"]) == (0, "1", True)
    shown = await run("views", "pressure", "--org", "acme", "--json", settings=administrator)
    assert shown.document["reading"]["version"] == "1"
    assert 0 <= shown.document["reading"]["age_seconds"] < 60
    assert {
        (row["org"], row["family"], row["provider"], row["state"]): row["depth"]
        for row in shown.document["rows"]
    } == {
        ("acme", "effect.dispatch", "hubspot", "pending"): 1,
        ("acme", "effect.dispatch", "hubspot", "dead"): 1,
        ("acme", "effect.lookup", "hubspot", "pending"): 1,
    }
    table = await run("views", "pressure", settings=administrator)
    assert "work_pressure: version 1, counted" in table.out
    assert "effect.lookup" in table.out


async def test_a_dropped_view_says_so_until_it_is_rebuilt(
    world: World, administrator: Mapping[str, str]
) -> None:
    """Nothing waits, and nobody counted, are two answers; the acts are in the audit."""
    await world.accept_command()
    await acted("rebuild", "0", administrator)

    dropped = await acted("drop", "1", administrator)

    assert (dropped.code, dropped.document["is_built"]) == (0, False)
    shown = await run("views", "pressure", settings=administrator)
    assert shown.out == "work_pressure: not built (version 2)\n"
    listed = await run("views", "list", settings=administrator)
    assert listed.out == shown.out
    assert (await acted("rebuild", "2", administrator)).document["version"] == "3"
    rows = await world.sql(
        "SELECT actor, act, note, expected_version FROM oncefence.audit"
        " WHERE :org <> '' AND subject_kind = 'view' ORDER BY sequence"
    )
    assert [tuple(row) for row in rows] == [
        ("operator:ann", "views.rebuild", "looks odd", "0"),
        ("operator:ann", "views.drop", "looks odd", "1"),
        ("operator:ann", "views.rebuild", "looks odd", "2"),
    ]


async def test_an_act_on_a_version_that_moved_is_refused(administrator: Mapping[str, str]) -> None:
    """Whoever looked at something else decides about something else."""
    await acted("rebuild", "0", administrator)

    stale = await acted("rebuild", "0", administrator)

    assert stale.code == 1
    assert "at version 1 and not at 0" in stale.message


async def test_an_operator_of_one_org_sees_that_one_alone(
    world: World, door: OpenDoor, administrator: Mapping[str, str]
) -> None:
    """How much of another org waits is that org's business."""
    other = await World.make(world.database, org="other", ring=door.ring)
    await world.accept_command()
    await other.accept_command()
    await acted("rebuild", "0", administrator)
    theirs = await settings_of(door, Role.VIEWER, org=OrgId("acme"), name="bob")

    shown = await run("views", "pressure", "--json", settings=theirs)
    refused = await run("views", "pressure", "--org", "other", settings=theirs)

    assert {row["org"] for row in shown.document["rows"]} == {"acme"}
    assert refused.code == 1
    assert "other" not in refused.message


@pytest.mark.parametrize("verb", ["rebuild", "drop"])
async def test_who_is_no_administrator_of_every_org_rebuilds_and_drops_nothing(
    door: OpenDoor, verb: str
) -> None:
    """The view is of every org at once, and so is the right to it."""
    operator = await settings_of(door, Role.OPERATOR)
    of_one_org = await settings_of(door, Role.ADMINISTRATOR, org=OrgId("acme"), name="bob")

    refused = [await acted(verb, "0", settings) for settings in (operator, of_one_org)]

    assert [ended.code for ended in refused] == [1, 1]
    listed = await run("views", "list", "--json", settings=operator)
    assert [view["version"] for view in listed.document["views"]] == ["0"]


async def test_a_view_that_is_not_there_is_named_one_that_is(
    administrator: Mapping[str, str],
) -> None:
    """The message says what to do (C12)."""
    words = ("views", "rebuild", "no_such", "--expected-version", "0", "--note", "try")

    refused = await run(*words, settings=administrator)

    assert refused.code == 1
    assert VIEW in refused.message
