"""Symptoms of tokens and renewals that people met in the field, each as a test under its id."""

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from oncefence.activities import tokens as token_activity
from oncefence.activities.contracts import Step
from oncefence.catalog.grants import LIFETIME_MAX_S
from oncefence.catalog.view import IntegrationBindingView
from oncefence.domain.ids import PrincipalBindingId
from oncefence.domain.redaction import Secret
from oncefence.storage.generation_change import NewTokens, renew
from oncefence.storage.phases.begin_refresh import unseal_refresh
from oncefence.storage.phases.expire_refreshes import expire_refreshes
from oncefence.storage.sealing import KeyRing
from tests.cases.outbound import cases
from tests.support.clubs import ClubsProcess, ClubsWorld
from tests.support.fault import fault
from tests.support.oauth_server import Family, Fault, OAuthServer, oauth_server
from tests.support.servers import Database
from tests.tokens.claimants import DEADLINE_MS, KEY_ID, LIMITS, in_processes
from tests.tokens.ends import a_refusal

pytestmark = pytest.mark.asyncio(loop_scope="module")

HERE = Path(__file__).read_text(encoding="utf-8")
CASES = cases("oauth")
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def server() -> Iterator[OAuthServer]:
    with oauth_server() as running:
        yield running


def asked(case: str) -> Any:  # a case's own form
    return CASES[case]["input"]


def expected(case: str) -> Any:  # as above
    return CASES[case]["expected"]


def view_with(server: OAuthServer, old: str, new: str) -> IntegrationBindingView:
    """The view over the pack with another declaration."""
    dialect = server.as_provider().dialect
    assert old in dialect.pack_text, "the pack declares it"
    return replace(dialect, pack_text=dialect.pack_text.replace(old, new)).view()


async def refresh_token_of(world: ClubsWorld, subject: str) -> str | None:
    """The refresh token that the next renewal would show."""
    await world.expire_token()
    await world.allow_calls()
    unsealed = unseal_refresh(world.ring, await world.begun(await world.command(subject)))
    assert unsealed is not None
    return None if unsealed.refresh is None else unsealed.refresh.reveal()


async def test_every_case_has_its_test() -> None:
    """A case without a test is a symptom that may come back."""
    missing = [case for case in CASES if f"test_{case.lower().replace('-', '_')}_" not in HERE]

    assert missing == []
    assert len(CASES) == 8


async def test_oau_01_one_call_however_many_workers(store: Database, server: OAuthServer) -> None:
    """One worker renews, the others wait, and all send with what it got (C286)."""
    key = secrets.token_bytes(32)
    world = await ClubsWorld.connected(
        store,
        server,
        limits=LIMITS,
        ring=KeyRing({KEY_ID: key}),
        view=server.as_provider().dialect.view(local_ms=DEADLINE_MS),
    )
    commands = [
        await world.command(f"lead-{number}") for number in range(asked("OAU-01")["workers"])
    ]

    ends = await in_processes(
        world, key, [each.work for each in commands], processes=asked("OAU-01")["processes"]
    )

    grant = await world.grant_row()
    assert ends == ["succeeded"] * len(commands)
    assert world.token_calls() == expected("OAU-01")["calls"]
    assert (grant.token_version, grant.state) == (
        expected("OAU-01")["version"],
        expected("OAU-01")["state"],
    )


@fault("stale claimant", at="before begin_refresh", then="it never calls the token endpoint")
async def test_oau_02_a_stale_worker_never_calls(store: Database, server: OAuthServer) -> None:
    """Whoever was told of a stale token long ago finds a fresh one, and asks nobody (C287)."""
    world = await ClubsWorld.connected(store, server)
    stale, winner = await world.command("lead-1"), await world.command("lead-2")
    await ClubsProcess(world).run(winner.work)
    before = world.token_calls()

    found = await world.begin(stale)

    assert found is None
    assert world.token_calls() - before == expected("OAU-02")["calls_of_a_stale_worker"]


async def test_oau_02_a_late_refusal_ends_nothing(store: Database, server: OAuthServer) -> None:
    """A call that was out when the version moved on says nothing of the new one (C292)."""
    world = await ClubsWorld.connected(store, server)
    slow = await world.begun(await world.command())
    async with world.engine.begin() as connection:
        await renew(
            connection,
            world.ring,
            world.org,
            world.generation,
            binding=PrincipalBindingId(world.binding),
            tokens=NewTokens(access=Secret("A5"), refresh=Secret("R1"), lifetime_s=1800),
        )

    await world.settle_call(slow, a_refusal(asked("OAU-02")["answer"]))

    grant = await world.grant_row()
    assert (grant.state, grant.token_version) == (expected("OAU-02")["state"], 2)


@pytest.mark.parametrize("number", range(len(asked("OAU-04")["replies"])))
async def test_oau_04_a_reply_without_a_refresh_token_keeps_the_old_one(
    store: Database, server: OAuthServer, number: int
) -> None:
    """Left out, null and empty all mean that it stays as it is (C283)."""
    reply, after = asked("OAU-04")["replies"][number], expected("OAU-04")["refresh_after"][number]
    world = await ClubsWorld.connected(store, server)
    old = world.family.refresh
    server.reply["refresh_token"] = None
    server.literal |= reply

    await ClubsProcess(world).run((await world.command()).work)

    assert await world.outcomes() == ["activated"]
    assert (await world.grant_row()).token_version == 2
    kept = await refresh_token_of(world, "lead-next")
    assert kept == (old if after == asked("OAU-04")["old"] else after)


@pytest.mark.parametrize("number", range(len(asked("OAU-05")["values"])))
async def test_oau_05_a_life_is_read_for_what_it_is(
    store: Database, server: OAuthServer, number: int
) -> None:
    """No text is added to a time, and nothing makes a token permanent (C283)."""
    view = view_with(server, "access_ttl_s = 1800\nnot_applied", "access_ttl_s = 7200\nnot_applied")
    world = await ClubsWorld.connected(store, server, view=view)
    server.literal["expires_in"] = asked("OAU-05")["values"][number]

    result = await ClubsProcess(world).run((await world.command()).work)

    (row,) = await world.ledger()
    (token,) = await world.sql(
        "SELECT expires_at FROM oncefence.token_versions WHERE generation_id = :generation"
        " AND version = 2 AND org_id = :org",
        generation=world.generation,
    )
    seconds = expected("OAU-05")["seconds"][number]
    life = LIFETIME_MAX_S if seconds == "capped" else seconds
    assert token.expires_at - row.started_at == timedelta(seconds=life)
    assert result.item_state == "succeeded"
    assert world.token_calls() == 1


def long_token(length: int) -> str:
    """A token of that length, of all the signs that tokens are made of."""
    signs = asked("OAU-07")["signs"]
    return "".join(secrets.choice(signs) for _ in range(length))


async def test_oau_07_a_long_token_is_kept_and_sent_byte_for_byte(
    store: Database, server: OAuthServer
) -> None:
    """No column cuts it, and no encoding changes a sign of it."""
    access = long_token(asked("OAU-07")["access_length"])
    refresh = long_token(asked("OAU-07")["refresh_length"])
    world = await ClubsWorld.connected(store, server)
    server.reply |= {"access_token": access, "refresh_token": refresh}
    world.family.access.add(access)
    process = ClubsProcess(world)

    await process.run((await world.command("lead-1")).work)
    world.family.refresh = refresh
    await world.expire_token()
    await world.allow_calls()
    await process.run((await world.command("lead-2")).work)

    (first, _) = [call for call in server.calls if call.method == "PATCH"]
    (_, second_refresh) = server.calls_of("/oauth/token")
    assert first.authorization == f"Bearer {access}"
    assert second_refresh.form["refresh_token"] == refresh
    assert await world.outcomes() == ["activated", "activated"]


@fault("lost refresh answer", at="settle_refresh", then="parked as a lost answer")
async def test_oau_07_a_storage_error_after_the_exchange_is_a_lost_answer(
    store: Database,
    server: OAuthServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The new token is gone with the process; the old one is spent, and nobody shows it again."""
    world = await ClubsWorld.connected(store, server)
    accepted = await world.command()

    async def fails(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(token_activity, "settle_refresh", fails)
    with pytest.raises(Exception, match="OSError"):
        await ClubsProcess(world).run(accepted.work)
    monkeypatch.undo()
    await world.end_refresh_lease()
    await expire_refreshes(world.engine)

    assert (await world.grant_row()).state == expected("OAU-07")["after_a_storage_error"]
    result = await ClubsProcess(world).run(accepted.work)
    assert (result.step, world.token_calls()) == (Step.BLOCKED, 1)
    for secret in world.family.access | world.own_refresh_tokens():
        assert secret not in caplog.text


def meet(server: OAuthServer, told: Sequence[Any] | str) -> None:
    """The endpoint's next call meets what the case tells."""
    if told == "read":
        server.meet(Fault.HANG)
    elif not isinstance(told, str):
        status, error = told
        server.token_answers.append((status, {"error": error} if error else {}))


@pytest.mark.parametrize("number", range(len(asked("OAU-08")["answers"])))
async def test_oau_08_only_a_final_answer_asks_for_a_person(
    store: Database, server: OAuthServer, number: int
) -> None:
    """What passes by itself, and what is our own fault, leaves the account connected (C289)."""
    told, state = asked("OAU-08")["answers"][number], expected("OAU-08")["states"][number]
    world = await ClubsWorld.connected(
        store, server, base_url=NOWHERE if told == "connect" else None
    )
    accepted = await world.command()
    meet(server, told)

    result = await ClubsProcess(world).run(accepted.work)

    item = await world.item(accepted.work)
    assert (await world.grant_row()).state == state
    assert result.verdict == "credential_held"
    assert (item.state, item.attempt, item.claims_lost, world.writes()) == ("retry", 0, 0, 0)
    assert (await world.execution(accepted)).status == "accepted"


async def test_oau_10_a_401_is_answered_by_one_renewal_and_one_attempt(
    store: Database, server: OAuthServer
) -> None:
    """Each PATCH is an attempt that is on record, and the second refusal is the end (C293)."""
    world = await ClubsWorld.connected(store, server, is_fresh=True)
    accepted = await world.command()
    server.member_answers.extend(asked("OAU-10")["answers"])
    process = ClubsProcess(world)

    await process.run(accepted.work)
    result = await process.run(accepted.work)

    attempts = await world.attempts(accepted)
    assert len(attempts) == expected("OAU-10")["attempts"]
    assert [each.outcome for each in attempts] == expected("OAU-10")["outcomes"]
    assert (result.item_state, result.execution_status) == ("dead", "failed")
    assert result.failure_class == expected("OAU-10")["failure_class"]
    assert (world.writes(), world.token_calls()) == (
        expected("OAU-10")["sent"],
        expected("OAU-10")["calls"],
    )
    assert (await world.grant_row()).state == "needs_reauthorization"


async def test_oau_10_an_undeclared_401_proves_nothing(
    store: Database, server: OAuthServer
) -> None:
    """A gateway may say it after the provider has applied the change (C245)."""
    view = view_with(server, "not_applied = [401, 429]", "not_applied = [429]")
    world = await ClubsWorld.connected(store, server, is_fresh=True, view=view)
    accepted = await world.command()
    server.member_answers.append(401)
    process = ClubsProcess(world)

    first = await process.run(accepted.work)
    looking = await world.lookup_work(accepted)
    assert looking is not None
    found = await process.run(looking)

    undeclared = expected("OAU-10")["undeclared"]
    assert first.outcome == undeclared["outcome"]
    assert world.writes() == undeclared["sent"]
    assert found.execution_status == "succeeded"
    assert [row.because for row in await world.ledger()] == ["suspect"]


@fault("reconnect", at="queued work", then="it ends as stale, and nothing goes to the new account")
@pytest.mark.parametrize("then", asked("OAU-11")["then"])
async def test_oau_11_a_reconnect_takes_no_queued_work_along(
    store: Database, server: OAuthServer, then: str
) -> None:
    """Whoever connects anew, the same account too, gets none of the old one's work (C282, C284)."""
    world = await ClubsWorld.connected(store, server, is_fresh=True)
    accepted = await world.command()
    is_other = then == "another account"
    family = Family(
        account="club-b" if is_other else world.family.account,
        client=world.family.client,
        scopes="",
        refresh="refresh-of-the-new-one",
        access={f"access-{secrets.token_urlsafe(16)}"},
    )
    server.families.append(family)
    scopes = frozenset({"members.all"}) if then == "another scope alone" else frozenset[str]()
    await world.reconnect(family=family, scopes=scopes)

    result = await ClubsProcess(world).run(accepted.work)
    after = await ClubsProcess(world).run((await world.command("lead-2")).work)

    assert (result.execution_status, result.failure_class) == (
        "failed",
        expected("OAU-11")["failure_class"],
    )
    assert await world.attempts(accepted) == []
    assert after.item_state == "succeeded", "an explicit new command goes to the new account"
    assert world.writes() - 1 == expected("OAU-11")["sent"]
