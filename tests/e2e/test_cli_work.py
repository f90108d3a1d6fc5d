"""`oncefence work` and `oncefence dlq` as an operator types them, one screen each."""

from collections.abc import Mapping

import pytest

from oncefence.domain.operator import Role
from tests.e2e.test_operator_work import client_of
from tests.support.command_line import run
from tests.support.doors import OpenDoor
from tests.support.repairs import Repairs
from tests.support.world import World

NOTE = ("--note", "the provider mended its form")
ORG = ("--org", "acme")


@pytest.fixture
def repairs(world: World) -> Repairs:
    return Repairs(world=world)


@pytest.fixture
async def settings(door: OpenDoor, world: World) -> Mapping[str, object]:
    """What an operator's shell has: the doors and a token."""
    client = await client_of(door, *Role, orgs=(world.org,))
    token = client.headers["Authorization"].removeprefix("Bearer ")
    return {"DOORS": door.url, "OPERATOR_TOKEN": token}


class TestWork:
    async def test_is_listed_with_what_keeps_it_and_cancelled_by_what_was_seen(
        self, settings: Mapping[str, object], repairs: Repairs
    ) -> None:
        """List, show, act: the version comes from the page."""
        accepted = await repairs.world.accept_command()

        listed = await run("work", "list", *ORG, settings=settings)
        shown = await run("work", "show", accepted.work, *ORG, "--json", settings=settings)
        version = ("--expected-version", shown.document["item"]["version"])
        cancelled = await run(
            "work", "cancel", accepted.work, *ORG, *version, *NOTE, settings=settings
        )
        again = await run("work", "cancel", accepted.work, *ORG, *version, *NOTE, settings=settings)

        assert listed.code == 0, listed.err
        assert str(accepted.work) in listed.out
        assert "due" in listed.out
        assert cancelled.out == f"{accepted.work} is cancelled\n"
        assert again.code == 1
        assert "look at it again, then decide (version_moved)" in again.message

    async def test_is_replayed_and_shown_with_its_line(
        self, settings: Mapping[str, object], repairs: Repairs
    ) -> None:
        """The new item names the ended one, and the page shows who did that and why."""
        accepted = await repairs.a_refused_command()
        version = ("--expected-version", await repairs.version(accepted.work))

        replayed = await run(
            "work", "replay", accepted.work, *ORG, *version, *NOTE, "--json", settings=settings
        )
        shown = await run("work", "show", replayed.document["new_work_id"], *ORG, settings=settings)

        assert replayed.code == 0, replayed.err
        assert "line of replays" in shown.out
        assert str(accepted.work) in shown.out
        assert NOTE[1] in shown.out

    async def test_that_is_held_is_reclaimed_when_its_lease_has_ended(
        self, settings: Mapping[str, object], repairs: Repairs
    ) -> None:
        """Before that one message says until when its holder may be alive."""
        accepted, _ = await repairs.world.a_running_command()
        version = ("--expected-version", await repairs.version(accepted.work))

        ended = await run(
            "work", "reclaim", accepted.work, *ORG, *version, *NOTE, settings=settings
        )

        await repairs.world.expire_lease(accepted.work)
        lost = await run("work", "reclaim", accepted.work, *ORG, *version, *NOTE, settings=settings)

        assert ended.code == 1
        assert "may be alive until" in ended.message
        assert lost.code == 0, lost.err
        assert "is lost and unknown" in lost.out

    async def test_without_a_note_is_a_wrong_command_line(
        self, settings: Mapping[str, object], repairs: Repairs
    ) -> None:
        """No act is done without saying why (C406)."""
        accepted = await repairs.world.accept_command()

        for note in ((), ("--note", "")):
            ended = await run(
                "work",
                "cancel",
                accepted.work,
                *ORG,
                "--expected-version",
                "x",
                *note,
                settings=settings,
            )
            assert ended.code == 2
            assert "--note" in ended.message


class TestTheQueue:
    async def test_is_listed_shown_planned_and_applied(
        self, settings: Mapping[str, object], repairs: Repairs
    ) -> None:
        """The whole repair of an incident, in four commands (C400, C405)."""
        accepted = await repairs.a_refused_command()
        kept, _, _ = await repairs.world.an_unknown_command("lead-2")

        listed = await run("dlq", "list", *ORG, settings=settings)
        shown = await run("dlq", "show", accepted.work, *ORG, settings=settings)
        planned = await run("dlq", "replay", *ORG, settings=settings)
        (digest,) = [
            line.removeprefix("digest ")
            for line in planned.out.splitlines()
            if line.startswith("digest ")
        ]
        applied = await run("dlq", "replay", *ORG, "--apply", digest, *NOTE, settings=settings)
        left = await run("dlq", "list", *ORG, "--json", settings=settings)

        for ended in (listed, shown, planned, applied, left):
            assert ended.code == 0, ended.err
        assert str(accepted.work) in listed.out
        assert shown.out.startswith("safe_to_replay: ")
        assert "REJECTED" in shown.out
        assert "1 provider calls are to be expected" in planned.out
        assert "1 needs_lookup: wait for its lookups" in planned.out
        assert f"--apply {digest}" in planned.message
        assert "1 replayed, 1 left" in applied.out
        assert [row["work_id"] for row in left.document["rows"]] == [str(kept.work)]

    async def test_applies_nothing_of_a_plan_that_moved(
        self, settings: Mapping[str, object], repairs: Repairs
    ) -> None:
        """One message, and the exit code of a refusal."""
        await repairs.a_refused_command()
        plan = await repairs.plan()
        await repairs.world.change_link("lead-1")

        ended = await run("dlq", "replay", *ORG, "--apply", plan.digest, *NOTE, settings=settings)

        assert ended.code == 1
        assert "version_moved" in ended.message

    async def test_asks_for_digest_and_note_together(self, settings: Mapping[str, object]) -> None:
        """A plan that is only shown needs no note, and one that is applied always does."""
        for words in (("--apply", "1-ab"), NOTE):
            ended = await run("dlq", "replay", *ORG, *words, settings=settings)
            assert ended.code == 2
            assert "--apply and --note together" in ended.message
