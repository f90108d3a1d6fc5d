"""What an administrator makes: registrations, bindings, links, views and staged bytes."""

from dataclasses import replace

import asyncpg
import pytest

from oncefence.domain.errors import NoSuchTarget
from oncefence.domain.handoff import payload_digest
from oncefence.domain.redaction import Secret
from oncefence.storage.phases.add_principal_binding import BindingNameTaken, add_principal_binding
from oncefence.storage.phases.adopt_link import LinkTaken, adopt_link
from oncefence.storage.phases.authenticate import authenticate
from oncefence.storage.phases.erase_staged import erase_staged
from oncefence.storage.phases.publish_view import publish_view
from oncefence.storage.phases.register_runtime import ScopeTaken, register_runtime
from oncefence.storage.phases.stage_payload import stage_payload
from tests.storage.racing import all_at_once
from tests.support.world import (
    INSTALLATION,
    OPERATION,
    PRINCIPAL,
    World,
    example_view,
    scope_of,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def acts(world: World) -> list[str]:
    rows = await world.sql("SELECT act FROM oncefence.audit WHERE org_id = :org ORDER BY audit_id")
    return [row.act for row in rows]


async def test_every_act_leaves_its_audit_row(world: World) -> None:
    """Who made this world can be read in it."""
    await world.link("lead-1")

    assert await acts(world) == [
        "runtime.register",
        "catalog.publish",
        "catalog.activate",
        "binding.add",
        "link.adopt",
    ]


class TestACredential:
    async def test_gives_the_scope_that_it_was_registered_for(self, world: World) -> None:
        """The scope comes from the credential alone (C122)."""
        caller = await authenticate(world.engine, world.ring, world.credential)

        assert caller is not None
        assert caller.scope == world.caller.scope
        assert world.credential not in repr(caller)

    @pytest.mark.parametrize("wrong", ["", "ofc1_", "ofc1_wrong", "\udcff", "\x00"])
    async def test_that_is_not_known_gives_none(self, world: World, wrong: str) -> None:
        """Whatever bytes arrive, they are a credential of nobody."""
        assert await authenticate(world.engine, world.ring, wrong) is None

    async def test_is_made_once_for_a_scope(self, world: World) -> None:
        """A second one would make two callers of one scope; nothing is written."""
        before = await acts(world)

        with pytest.raises(ScopeTaken):
            await register_runtime(world.engine, world.ring, world.caller.scope, actor="tests")

        assert await acts(world) == before

    async def test_of_a_second_runtime_shares_the_orgs_key(self, world: World) -> None:
        """Payload addresses are the org's, so that both find the same staged bytes."""
        scope = scope_of(world.org, capability="second")

        credential = await register_runtime(world.engine, world.ring, scope, actor="tests")

        caller = await authenticate(world.engine, world.ring, credential)
        assert caller is not None
        assert caller.scope == scope
        assert caller.org_key.address("ab") == world.caller.org_key.address("ab")


class TestAView:
    async def test_that_says_the_same_is_no_new_revision(self, world: World) -> None:
        """Publishing again by a script changes nothing."""
        again = await publish_view(
            world.engine, world.org, INSTALLATION, example_view(), actor="tests"
        )

        assert (again.revision, again.is_new) == (1, False)

    async def test_that_says_something_else_is_the_next(self, world: World) -> None:
        """Commands keep the revision that they were accepted under (C140)."""
        before = await world.accept_command("lead-1")
        other = example_view(is_sensitive=True)

        published = await publish_view(
            world.engine, world.org, INSTALLATION, other, actor="tests", activate=True
        )
        after = await world.accept_command("lead-2")

        assert (published.revision, published.digest) == (2, other.digest)
        digests = [
            (await world.of_command("commands", each))[0].view_digest for each in (before, after)
        ]
        assert digests == [example_view().digest, other.digest]

    async def test_that_offers_an_operation_twice_is_not_guessed_between(
        self, world: World
    ) -> None:
        """Two bindings with one operation: the handover is refused and the remedy said."""
        twin = example_view().model_copy(update={"name": "twin"})
        await publish_view(world.engine, world.org, INSTALLATION, twin, actor="tests")
        handover = await world.offer()

        with pytest.raises(NoSuchTarget) as refused:
            await world.accept(handover)

        assert refused.value.name == OPERATION
        assert "rename one" in str(refused.value)


class TestAPrincipalBinding:
    async def test_has_a_name_of_its_own(self, world: World) -> None:
        """A second account under one name would be guessed between."""
        with pytest.raises(BindingNameTaken):
            await add_principal_binding(
                world.engine,
                world.ring,
                world.org,
                name=PRINCIPAL,
                provider="hubspot",
                base_url="http://127.0.0.1:2",
                is_local=True,
                token=Secret("another-token"),
                actor="tests",
            )

        assert await world.count("principal_bindings") == 1
        assert await world.count("token_versions") == 1


class TestALink:
    async def adopt(self, world: World, subject: str, remote_id: str) -> object:
        return await adopt_link(
            world.engine,
            world.org,
            binding_name=PRINCIPAL,
            local_object="lead",
            subject=subject,
            remote_object="contact",
            remote_id=remote_id,
            actor="tests",
        )

    async def test_adopted_twice_at_once_is_one(self, world: World) -> None:
        """Two shells, or one that was asked twice, come to the same link and to no fault."""
        found = await all_at_once(
            world.database,
            [self.adopt(world, "lead-1", "7") for _ in range(2)],
            "LOCK TABLE oncefence.remote_links IN EXCLUSIVE MODE",
        )

        assert found[0] == found[1]
        assert (await acts(world)).count("link.adopt") == 1

    async def test_that_was_retired_can_be_made_again(self, world: World) -> None:
        """As another link: what was queued for the old one stays where it was (C4)."""
        world.links["lead-1"] = first = await self.adopt(world, "lead-1", "7")  # type: ignore[assignment]
        await world.change_link("lead-1", "retired")

        again = await self.adopt(world, "lead-1", "7")

        assert again != first
        assert await self.adopt(world, "lead-1", "7") == again

    async def test_adopted_again_is_the_same(self, world: World) -> None:
        """A repeat after a lost answer makes no second link."""
        assert await self.adopt(world, "lead-1", "7") == await self.adopt(world, "lead-1", "7")
        assert await world.count("remote_links") == 1

    @pytest.mark.parametrize(
        ("subject", "remote_id", "taken"),
        [("lead-1", "8", "local subject"), ("lead-2", "7", "remote record")],
    )
    async def test_is_one_on_each_side(
        self, world: World, subject: str, remote_id: str, taken: str
    ) -> None:
        """Identity is never guessed, and never split (C28)."""
        await self.adopt(world, "lead-1", "7")

        with pytest.raises(LinkTaken) as refused:
            await self.adopt(world, subject, remote_id)

        assert refused.value.which == taken

    async def test_makes_room_when_it_is_retired(self, world: World) -> None:
        """The subject and the record may be linked anew, as another link."""
        world.links["lead-1"] = first = await self.adopt(world, "lead-1", "7")  # type: ignore[assignment]
        await world.change_link("lead-1", "retired")

        assert await self.adopt(world, "lead-1", "8") != first

    async def test_needs_its_account(self, world: World) -> None:
        """The message names the verb that makes one."""
        with pytest.raises(NoSuchTarget) as refused:
            await adopt_link(
                world.engine,
                world.org,
                binding_name="nobody",
                local_object="lead",
                subject="lead-1",
                remote_object="contact",
                remote_id="7",
                actor="tests",
            )

        assert "oncefence binding add" in str(refused.value)


class TestStagedBytes:
    async def grow_old(self, world: World) -> None:
        connection = await asyncpg.connect(world.database.admin_url)
        try:
            async with connection.transaction():
                await connection.execute("SET LOCAL session_replication_role = replica")
                await connection.execute(
                    "UPDATE oncefence.staged_payloads SET staged_at = staged_at"
                    " - interval '8 days' WHERE org_id = $1",
                    world.org,
                )
        finally:
            await connection.close()

    async def test_are_kept_once_for_each_digest(self, world: World) -> None:
        """Many commands may set one title."""
        for _ in range(3):
            await world.offer("lead-1", title="same")

        assert await world.count("staged_payloads") == 1

    async def test_are_erased_when_no_handover_came(self, world: World) -> None:
        """After seven days nothing can open them; a handover is told to put them again."""
        handover = await world.offer()
        assert await erase_staged(world.engine) == 0
        await self.grow_old(world)

        assert await erase_staged(world.engine) == 1

        with pytest.raises(NoSuchTarget) as refused:
            await world.accept(handover)
        assert refused.value.kind == "payload"

    async def test_are_taken_again_after_they_were_erased(self, world: World) -> None:
        """The same bytes put once more are there once more."""
        handover = await world.offer(title="again")
        await self.grow_old(world)
        await erase_staged(world.engine)

        again = replace(await world.offer(title="again"), key=handover.key, outbox=handover.outbox)

        assert (await world.accept(again)).is_new

    async def test_do_not_outlive_acceptance_as_the_commands_own(self, world: World) -> None:
        """The command keeps the bytes under its own key, whatever becomes of the staged ones."""
        accepted = await world.accept_command()
        await self.grow_old(world)
        await erase_staged(world.engine)

        assert (await world.start(accepted)).ordinal == 1

    async def test_are_each_orgs_own(self, world: World) -> None:
        """Equal bytes of two orgs have nothing in common in the database (C8)."""
        other = await World.make(world.database)
        digest = payload_digest(b'{"title": "same"}')
        for each in (world, other):
            await stage_payload(each.engine, each.ring, each.caller, digest, b'{"title": "same"}')

        rows = [
            (await each.sql("SELECT * FROM oncefence.staged_payloads WHERE org_id = :org"))[0]
            for each in (world, other)
        ]

        assert rows[0].payload_address != rows[1].payload_address
        assert rows[0].ciphertext != rows[1].ciphertext
