"""Wrapping stored keys anew: everything opens before, during and after it."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import text

from oncefence.app.key_rotation import GENERATIONS, Rotated, rotate, standing
from oncefence.domain.errors import ConfigurationRefused
from oncefence.storage import execution_keys
from oncefence.storage.key_file import add_key, make_current
from oncefence.storage.phases.authenticate import authenticate
from oncefence.storage.phases.check_keys import IN_USE, check_keys
from oncefence.storage.phases.rewrap_generation import (
    GenerationRef,
    Rewrapped,
    find_generations_to_rewrap,
    rewrap_generation,
)
from oncefence.storage.phases.rewrap_keys import KINDS, rewrap_keys
from oncefence.storage.phases.start_attempt import unseal
from oncefence.storage.sealing import KeyRing
from tests.support.sealed import a_request, contents, give_tokens, stocked
from tests.support.servers import Database
from tests.support.world import World

OLD, NEW = {"old": b"o" * 32}, {"new": b"n" * 32}
BEFORE = KeyRing(OLD)
BOTH = KeyRing(NEW | OLD)
AFTER = KeyRing(NEW)


async def rotated(database: Database, ring: KeyRing = BOTH) -> Rotated:
    return await rotate(database.app_engine, ring, actor="tests", tell=lambda *_: None)


async def generation_of(world: World) -> GenerationRef:
    (row,) = await world.sql(
        "SELECT generation_id FROM oncefence.binding_generations WHERE org_id = :org"
    )
    return GenerationRef(org=world.org, generation=row.generation_id)


async def stand(world: World, what: str, **values: object) -> None:
    """The world's grant stands otherwise, whatever the guards would say."""
    async with world.database.migrator_engine.begin() as connection:
        await connection.execute(text("SET LOCAL ROLE oncefence_owner"))
        grants = "oncefence.authorization_grants"
        await connection.execute(text(f"ALTER TABLE {grants} DISABLE TRIGGER USER"))
        await connection.execute(
            text(f"UPDATE {grants} SET {what} WHERE org_id = :org"), {"org": world.org, **values}
        )
        await connection.execute(text(f"ALTER TABLE {grants} ENABLE TRIGGER USER"))


class TestARotation:
    async def test_leaves_everything_as_it_was_under_the_new_key_alone(
        self, database: Database
    ) -> None:
        """The old key can go, and nothing that was sealed is lost by it (C297)."""
        worlds = [await stocked(database, BEFORE) for _ in range(2)]
        expected = await contents(database.app_engine, BEFORE)

        ended = await rotated(database)

        assert await contents(database.app_engine, AFTER) == expected
        assert ended.rewrapped == {
            "org_keys": 2,
            "provider_apps": 2,
            "staged_payloads": 6,
            "execution_keys": 4,
            "binding_generations": 2,
        }
        assert (ended.before.under_other_keys, ended.after.under_other_keys) == (16, 0)
        await check_keys(database.app_engine, AFTER)
        with pytest.raises(ConfigurationRefused):
            await check_keys(database.app_engine, BEFORE)
        # And what begins now goes on with the new key: a Runtime comes in, and a command is sent.
        caller = await authenticate(database.app_engine, AFTER, worlds[0].credential)
        assert caller is not None
        started = await worlds[0].start(await worlds[0].accept_command("next", title="next title"))
        with pytest.raises(ConfigurationRefused):
            unseal(AFTER, started)
        assert unseal(BOTH, started).token.reveal() == f"access of {worlds[0].org}"

    async def test_makes_a_new_version_of_each_token(self, database: Database) -> None:
        """The version says why it is there, and what it is good for stays (C283, C297)."""
        world = await stocked(database, BEFORE)
        ends = datetime(2090, 1, 1, tzinfo=UTC), datetime(2091, 1, 1, tzinfo=UTC)
        await give_tokens(world, BEFORE, *ends)
        ref = await generation_of(world)

        assert await rewrap_generation(world.engine, BOTH, ref, actor="tests") is Rewrapped.DONE
        assert await rewrap_generation(world.engine, BOTH, ref, actor="tests") is Rewrapped.HELD

        versions = await world.sql(
            "SELECT version, made_because, expires_at, refresh_expires_at"
            " FROM oncefence.token_versions WHERE org_id = :org ORDER BY version DESC LIMIT 1"
        )
        generation = await world.sql(
            "SELECT token_version, key_id FROM oncefence.binding_generations WHERE org_id = :org"
        )
        assert tuple(versions[0]) == (4, "rewrap", *ends)
        assert tuple(generation[0]) == (4, "new")

    async def test_is_taken_up_wherever_it_was_left(self, database: Database) -> None:
        """After each single step everything opens, and another run does the rest (C297)."""
        world = await stocked(database, BEFORE)
        await a_request(world, BEFORE)
        engine = database.app_engine
        expected = await contents(engine, BEFORE)
        steps = 0

        for kind in KINDS:
            while await rewrap_keys(engine, BOTH, kind, actor="tests", rows_max=1):
                steps += 1
                assert await contents(engine, BOTH) == expected
                await check_keys(engine, BOTH)

        assert steps == 1 + 1 + 3 + 2
        # The token, and what waits: the request.
        assert (await standing(engine, BOTH)).under_other_keys == 2
        ended = await rotated(database)
        assert ended.rewrapped == {"binding_generations": 1}
        assert (ended.after.under_other_keys, ended.after.waiting) == (1, 1)
        await world.sql(
            "UPDATE oncefence.authorization_requests SET wrapped_key = NULL WHERE org_id = :org"
        )
        assert (await rotated(database)).after.under_other_keys == 0

    async def test_of_two_at_once_wraps_each_key_once(self, database: Database) -> None:
        """Who else is at it is passed over and never waited for."""
        for _ in range(4):
            await stocked(database, BEFORE)
        expected = await contents(database.app_engine, BEFORE)

        ended = await asyncio.gather(*(rotated(database) for _ in range(3)))

        done = [sum(each.rewrapped.values()) for each in ended]
        assert sum(done) == 4 * 8
        assert await contents(database.app_engine, AFTER) == expected

    async def test_goes_on_while_commands_are_sent(
        self, database: Database, tmp_path: Path
    ) -> None:
        """Nothing stands still for it, and what runs takes the new keys by itself (C297)."""
        path = tmp_path / "keys.json"
        KeyRing.make_file(path)
        # The ring of a process that runs all the while.
        world = await stocked(database, KeyRing.load(path))
        is_over = asyncio.Event()

        async def send() -> list[str]:
            tokens = []
            while len(tokens) < 3 or not is_over.is_set():
                started = await world.start(await world.accept_command(f"lead-{len(tokens)}"))
                tokens.append(unseal(world.ring, started).token.reveal())
            return tokens

        async def turn() -> None:
            try:
                for _ in range(5):
                    make_current(path, add_key(path))
                    ended = await rotated(database, KeyRing.load(path))
                    assert ended.rewrapped["binding_generations"] == 1
            finally:
                is_over.set()

        async with asyncio.TaskGroup() as group:
            sending = group.create_task(send())
            group.create_task(turn())

        assert set(sending.result()) == {f"access of {world.org}"}
        last = await rotated(database, KeyRing.load(path))
        assert last.after.under_other_keys == 0

    async def test_leaves_erased_keys_erased(self, database: Database) -> None:
        """What was forgotten on purpose does not come back, and needs no key any more (C440)."""
        world = await stocked(database, BEFORE)
        for table in ("execution_keys", "staged_payloads"):
            await world.sql(f"UPDATE oncefence.{table} SET wrapped_key = NULL WHERE org_id = :org")

        ended = await rotated(database)

        assert ended.rewrapped == {"org_keys": 1, "provider_apps": 1, "binding_generations": 1}
        await check_keys(database.app_engine, AFTER)
        kept = await world.sql(
            "SELECT key_id, wrapped_key FROM oncefence.execution_keys WHERE org_id = :org"
        )
        assert {tuple(row) for row in kept} == {("old", None)}

    async def test_is_in_the_audit(self, database: Database) -> None:
        """Who wrapped how many under which key, in the transaction in which it was done."""
        world = await stocked(database, BEFORE)

        await rotated(database)

        async with database.app_engine.connect() as connection:
            acts = await connection.execute(
                text(
                    "SELECT org_id, actor, subject_kind, subject_id, note FROM oncefence.audit"
                    " WHERE act = 'keys.rewrap' ORDER BY org_id, note"
                )
            )
            rows = [tuple(row) for row in acts]
        assert rows == [
            ("*", "tests", "key", "new", "1 of org_keys"),
            ("*", "tests", "key", "new", "1 of provider_apps"),
            ("*", "tests", "key", "new", "2 of execution_keys"),
            ("*", "tests", "key", "new", "3 of staged_payloads"),
            (
                world.org,
                "tests",
                "generation",
                str((await generation_of(world)).generation),
                "under key new",
            ),
        ]

    async def test_needs_the_key_that_something_is_under(self, database: Database) -> None:
        """Half a ring must not begin what it cannot end."""
        await stocked(database, BEFORE)

        with pytest.raises(ConfigurationRefused, match="the ring has no key 'old'"):
            await rotated(database, AFTER)

        assert await contents(database.app_engine, BEFORE)


class TestAGeneration:
    @pytest.mark.parametrize("standing_as", ["open", "refresh_unknown"])
    async def test_waits_for_the_answer_of_a_renewal(
        self, database: Database, standing_as: str
    ) -> None:
        """It is for the version that the renewal began with, and may hold the only token (C291)."""
        world = await stocked(database, BEFORE)
        ref = await generation_of(world)
        await stand(world, "rotation = 'rotating'")
        if standing_as == "open":
            await open_renewal(world)
        else:
            await stand(world, "state = 'refresh_unknown'")

        ended = await rotated(database)

        assert "binding_generations" not in ended.rewrapped
        assert (ended.after.under_other_keys, ended.after.waiting) == (1, 1)
        assert await rewrap_generation(world.engine, BOTH, ref, actor="tests") is Rewrapped.AWAITED
        assert await contents(database.app_engine, BOTH)
        if standing_as == "open":
            await world.transaction(
                "UPDATE oncefence.token_refreshes SET settled_at = clock_timestamp(),"
                " settled_token = lease_token, outcome = 'answered' WHERE org_id = :org",
                "UPDATE oncefence.authorization_grants SET open_refresh = NULL WHERE org_id = :org",
            )
            assert (await rotated(database)).rewrapped == {"binding_generations": 1}

    async def test_that_somebody_holds_is_passed_over(self, database: Database) -> None:
        """A mark that is being made is not held up."""
        world = await stocked(database, BEFORE)
        ref = await generation_of(world)
        async with world.engine.begin() as connection:
            await connection.execute(
                text("SELECT 1 FROM oncefence.binding_generations WHERE org_id = :org FOR SHARE"),
                {"org": world.org},
            )
            held = await rewrap_generation(world.engine, BOTH, ref, actor="tests")

        assert held is Rewrapped.HELD
        assert await rewrap_generation(world.engine, BOTH, ref, actor="tests") is Rewrapped.DONE

    async def test_keeps_what_is_known_of_its_token(self, database: Database) -> None:
        """A token that was refused is refused under another key as well (C293)."""
        world = await stocked(database, BEFORE)
        await stand(world, "rotation = 'rotating', suspect_version = 2")

        await rotated(database)

        (grant,) = await world.sql(
            "SELECT suspect_version FROM oncefence.authorization_grants WHERE org_id = :org"
        )
        assert grant.suspect_version == 3
        (told,) = await world.sql(
            "SELECT obstacle FROM oncefence.token_obstacle(:org, :generation)",
            generation=(await generation_of(world)).generation,
        )
        assert told.obstacle == "token_stale"

    async def test_that_was_refused_while_it_was_wrapped_anew_is_refused(
        self, database: Database
    ) -> None:
        """The answer is to the version before, and of the same secret (C293)."""
        world = await stocked(database, BEFORE)
        await stand(world, "rotation = 'rotating'")

        await rotated(database)
        ref = await generation_of(world)
        told = [
            (
                await world.sql(
                    "SELECT oncefence.note_credential_refused(:org, :generation, :version, false)",
                    generation=ref.generation,
                    version=version,
                )
            )[0][0]
            for version in (1, 2)
        ]

        (grant,) = await world.sql(
            "SELECT suspect_version FROM oncefence.authorization_grants WHERE org_id = :org"
        )
        # The first was exchanged by a person, and says nothing of the newest any more.
        assert (told, grant.suspect_version) == ([False, False], 3)

    async def test_is_found_in_pages_without_a_gap(self, database: Database) -> None:
        """What waits is passed over, and what comes behind it is not."""
        worlds = [await stocked(database, BEFORE) for _ in range(5)]
        expected = {await_ref.generation for await_ref in [await generation_of(w) for w in worlds]}
        found: list[GenerationRef] = []

        while page := await find_generations_to_rewrap(
            database.app_engine, BOTH, found[-1] if found else None, rows_max=2
        ):
            found.extend(page)

        assert len(found) == 5
        assert {each.generation for each in found} == expected


class TestAProcess:
    async def test_refuses_to_start_without_a_key_that_is_in_use(self, database: Database) -> None:
        """At its first command it would fail; at its start it says which key, and what to do."""
        world = await stocked(database, BEFORE)
        await rewrap_keys(world.engine, BOTH, execution_keys.WRAPPED, actor="tests", rows_max=1)

        with pytest.raises(ConfigurationRefused) as refused:
            await check_keys(database.app_engine, KeyRing({"x": b"x" * 32}))

        said = str(refused.value)
        assert "the ring has no keys 'new', 'old', with which stored data is sealed" in said
        assert "ONCEFENCE_KEY_FILE" in said
        await check_keys(database.app_engine, BOTH)

    async def test_looks_at_every_kind_of_key(self, database: Database) -> None:
        """A single row under a lost key is data that is lost."""
        world = await stocked(database, BEFORE)
        await a_request(world, BEFORE)
        tables = [*(kind.table for kind in KINDS), GENERATIONS, "authorization_requests"]
        told = []

        for table in tables:
            await put_under(database, table, "lost")
            try:
                await check_keys(database.app_engine, BEFORE)
            except ConfigurationRefused as refused:
                told.append((table, "'lost'" in str(refused)))
            await put_under(database, table, "old")

        assert told == [(table, True) for table in tables]
        await check_keys(database.app_engine, BEFORE)

    async def test_does_not_read_every_execution_for_it(self, database: Database) -> None:
        """There are as many as there ever were, and a start must not wait for them."""
        world = await stocked(database, BEFORE)
        async with world.engine.begin() as connection:
            await connection.execute(text("SET LOCAL enable_seqscan = off"))
            plan = (await connection.execute(text(f"EXPLAIN {IN_USE.text}"))).scalars()
            told = "\n".join(plan)

        assert "execution_keys_by_wrapping_key" in told
        assert "Seq Scan on execution_keys" not in told


async def put_under(database: Database, table: str, key_id: str) -> None:
    """One row of a table is under another key, whatever the guards would say."""
    async with database.migrator_engine.begin() as connection:
        await connection.execute(text("SET LOCAL ROLE oncefence_owner"))
        await connection.execute(text(f"ALTER TABLE oncefence.{table} DISABLE TRIGGER USER"))
        await connection.execute(
            text(
                f"UPDATE oncefence.{table} SET key_id = :key_id WHERE ctid ="
                f" (SELECT ctid FROM oncefence.{table} WHERE key_id <> :key_id LIMIT 1)"
            ),
            {"key_id": key_id},
        )
        await connection.execute(text(f"ALTER TABLE oncefence.{table} ENABLE TRIGGER USER"))


async def open_renewal(world: World) -> None:
    """A renewal whose answer is out, by the live claimant of an item."""
    _, started = await world.a_running_command("renewing")
    refresh = uuid4()
    await world.transaction(
        "INSERT INTO oncefence.token_refreshes (org_id, refresh_id, generation_id, from_version,"
        " rotation, because, work_id, lease_token, ownership_epoch, lease_owner, lease_until)"
        " SELECT w.org_id, CAST(:refresh AS uuid), g.generation_id, g.token_version, 'rotating',"
        " 'expired', w.work_id, w.lease_token, w.ownership_epoch, w.lease_owner, w.lease_until"
        " FROM oncefence.work_items AS w JOIN oncefence.binding_generations AS g USING (org_id)"
        " WHERE w.org_id = :org AND w.work_id = :work",
        "UPDATE oncefence.authorization_grants SET open_refresh = CAST(:refresh AS uuid)"
        " WHERE org_id = :org",
        refresh=refresh,
        work=started.fence.work,
    )
