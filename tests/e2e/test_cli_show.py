"""`oncefence show`: one page that answers whether a command was sent (C408)."""

import json

import asyncpg
import pytest

from oncefence.domain.effect import Outcome
from oncefence.domain.lookup import Verdict
from oncefence.storage.phases.read_command import SECTIONS, CommandAmbiguous, read_command
from tests.support.command_line import run
from tests.support.servers import Database
from tests.support.world import Accepted, World, an_end

TITLE = "Very Private Title"


@pytest.fixture
async def world(database: Database) -> World:
    return await World.make(database, org="acme")


async def an_eventful_command(world: World) -> Accepted:
    """Lost, told late, looked up, and offered again with another payload."""
    accepted = await world.accept_command("lead-1", title=TITLE, outbox="o-1")
    started = await world.start(accepted)
    lookup_work = await world.lose(started)
    await world.look(lookup_work, Verdict.INCONCLUSIVE)
    await world.tell(started, an_end(Outcome.ACCEPTED, response_status=200))
    await world.look(lookup_work, Verdict.APPLIED)
    return accepted


async def test_the_page_has_everything_and_nothing_that_is_sealed(world: World) -> None:
    """Every section is filled from facts; payload, token and ciphertext are in none."""
    accepted = await an_eventful_command(world)
    settings = {"DATABASE_URL": world.database.app_url}

    ended = await run("show", accepted.command, "--json", settings=settings)

    assert (ended.code, ended.err) == (0, "")
    page = ended.document
    assert set(page) == {"org", "command_id", *SECTIONS}
    assert (page["org"], page["command_id"]) == ("acme", str(accepted.command))
    assert page["handoff"][0]["handoff_key"] == str(accepted.handover.key)
    assert page["execution"][0]["status"] == "succeeded"
    assert [item["family"] for item in page["items"]] == ["effect.dispatch", "effect.lookup"]
    assert [attempt["outcome"] for attempt in page["attempts"]] == ["OUTCOME_UNKNOWN"]
    assert [evidence["kind"] for evidence in page["evidence"]] == ["answer"]
    assert [lookup["verdict"] for lookup in page["lookups"]] == ["inconclusive", "applied"]
    assert page["link"][0]["remote_id"] == "1000"
    assert page["binding"][0]["generation"] == 1
    assert [each["status"] for each in page["completions"]] == ["succeeded"]
    assert {row["act"] for row in page["audit"]} == {
        "binding.add",
        "link.adopt",
        "catalog.publish",
        "catalog.activate",
    }
    for hidden in (TITLE, "token-of-the-tests", "ciphertext", "wrapped_key", "lease_token"):
        assert hidden not in ended.out


async def test_the_page_reads_as_text(world: World) -> None:
    """For whoever is on call: the same facts, a line each."""
    accepted = await an_eventful_command(world)

    ended = await run("show", accepted.command, settings={"DATABASE_URL": world.database.app_url})

    assert (ended.code, ended.err) == (0, "")
    for words in ("succeeded", "OUTCOME_UNKNOWN", "lead.title.push", "lead-1", "inconclusive"):
        assert words in ended.out
    assert TITLE not in ended.out


async def test_every_name_leads_to_the_same_page(world: World) -> None:
    """People find one of these in a log, a ledger or the Temporal page."""
    accepted, started = await world.a_running_command()
    names = [
        accepted.command,
        accepted.execution,
        accepted.work,
        started.attempt,
        accepted.handover.key,
        str(accepted.command).upper(),
    ]

    pages = [await read_command(world.engine, str(name), org=None) for name in names]

    assert {page.command for page in pages} == {accepted.command}


async def test_a_subject_cannot_act_on_the_screen(world: World) -> None:
    """What came from outside is shown with its control characters visible."""
    accepted = await world.accept_command(outbox="o-\x1b[2J\n-forged")

    ended = await run("show", accepted.command, settings={"DATABASE_URL": world.database.app_url})

    assert "\x1b" not in ended.out
    assert "o-\\x1b[2J\\n-forged" in ended.out


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "no command 'nothing': give the id of a command, execution, item or attempt"),
        ("6f8e34c1-0000-8000-8000-000000000000", "no command '6f8e34c1-"),
        ("ehk1.acme.crm.outbox." + "ab" * 32 + ".o-9", "it is undecided: hand it over again"),
    ],
)
async def test_a_name_of_nothing_is_told(world: World, name: str, message: str) -> None:
    """A key without admission is undecided, never rejected (C132)."""
    ended = await run("show", name, settings={"DATABASE_URL": world.database.app_url})

    assert (ended.code, ended.out) == (1, "")
    assert message in ended.message


async def test_a_rejected_handoff_says_that_it_was_rejected(world: World) -> None:
    """There is no command and never will be."""
    handover = await world.offer(outbox="o-1")
    await world.reject(handover, reason="withdrawn by hand")

    ended = await run("show", handover.key, settings={"DATABASE_URL": world.database.app_url})

    assert ended.code == 1
    assert ended.message.endswith("because: withdrawn by hand")


async def test_another_org_has_no_such_command(world: World) -> None:
    """With --org the page is that org's or nobody's (C8)."""
    accepted = await world.accept_command()
    settings = {"DATABASE_URL": world.database.app_url}

    theirs = await run("show", accepted.command, "--org", "other", settings=settings)
    ours = await run("show", accepted.command, "--org", "acme", "--json", settings=settings)

    assert (theirs.code, ours.code) == (1, 0)
    assert theirs.message.startswith("no command ")
    assert json.loads(ours.out)["org"] == "acme"


async def test_a_name_in_several_orgs_needs_the_org(world: World) -> None:
    """Identities are computed, so this takes somebody's hand; then nobody guesses."""
    accepted = await world.accept_command()
    other = await World.make(world.database, org="other")
    theirs = await other.accept_command()
    connection = await asyncpg.connect(world.database.admin_url)
    try:
        async with connection.transaction():
            await connection.execute("SET LOCAL session_replication_role = replica")
            await connection.execute(
                "UPDATE oncefence.commands SET command_id = $1 WHERE command_id = $2",
                accepted.command,
                theirs.command,
            )
    finally:
        await connection.close()

    with pytest.raises(CommandAmbiguous, match="each of acme, other; say which with --org"):
        await read_command(world.engine, str(accepted.command), org=None)

    page = await read_command(world.engine, str(accepted.command), org=world.org)
    assert page.org == "acme"
