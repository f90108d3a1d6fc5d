"""Reconnecting never retargets: what was accepted for one account is sent to no other (OAU-11)."""

import asyncio
import threading

import pytest

from oncefence.domain.errors import NoSuchTarget
from oncefence.storage.claims import NotStarted
from oncefence.storage.phases.start_attempt import Started
from tests.connecting.office import NAME, Office
from tests.support.fault import fault

pytestmark = pytest.mark.asyncio(loop_scope="module")

STALE = "binding_generation_stale"


class TestQueuedWork:
    @fault("reconnect", at="work accepted", then="it ends, and nothing goes to either account")
    @pytest.mark.parametrize("account", ["club-b", "club-a"])
    async def test_oau_11_ends_and_goes_nowhere(self, office: Office, account: str) -> None:
        """Also of the same account: who reconnects decides for what comes after (C282, C284)."""
        await office.connect("club-a")
        old = await office.world.rank()
        await office.reconnect(account)
        await office.world.run(old)
        execution = await office.world.execution(old)

        assert await office.world.states(old) == ("cancelled", "failed")
        assert execution.failure_class == STALE
        assert office.provider.sent_to("club-a") == []
        assert office.provider.sent_to("club-b") == []
        assert await office.generations() == [
            (1, "retired", "club-a", "reconnected"),
            (2, "current", account, None),
        ]

    async def test_oau_11_ends_where_only_the_scopes_are_wider(self, office: Office) -> None:
        """What it may do is another authority (C282)."""
        await office.connect("club-a")
        old = await office.world.rank()
        office.provider.reply = {"scope": "members.read members.write members.delete"}
        await office.reconnect("club-a")
        await office.world.run(old)

        assert await office.world.states(old) == ("cancelled", "failed")
        assert office.provider.sent_to("club-a") == []

    async def test_oau_11_of_after_goes_to_the_new_account(self, office: Office) -> None:
        """A new command is accepted for whoever is connected then."""
        await office.connect("club-a")
        old = await office.world.rank()
        await office.reconnect("club-b")
        await office.world.run(old)
        # What was linked is a record of the account before.
        office.world.links.clear()
        new = await office.world.rank()
        await office.world.run(new)

        assert await office.world.states(new) == ("succeeded", "succeeded")
        assert office.provider.sent_to("club-a") == []
        assert len(office.provider.sent_to("club-b")) == 1

    @fault("reconnect", at="a new command", then="no record of the old account is looked for in it")
    async def test_a_link_is_of_the_account_that_it_was_made_in(self, office: Office) -> None:
        """Under the same id the other account has another record, or none (C282)."""
        await office.connect("club-a")
        await office.world.run(await office.world.rank())
        await office.reconnect("club-b")

        with pytest.raises(NoSuchTarget, match="link adopt"):
            await office.world.rank()

        assert office.provider.sent_to("club-b") == []

    async def test_the_same_account_keeps_its_links(self, office: Office) -> None:
        """Its records are what they were, so a new command is done."""
        await office.connect("club-a")
        await office.world.run(await office.world.rank())
        await office.reconnect("club-a")
        new = await office.world.rank()
        await office.world.run(new)

        assert await office.world.states(new) == ("succeeded", "succeeded")

    @fault("reconnect", at="outcome unknown", then="a person decides; the new account is not read")
    async def test_oau_11_that_may_have_been_sent_is_not_told_to_have_failed(
        self, office: Office
    ) -> None:
        """Its outcome stays unknown, and no lookup reads the new account instead."""
        await office.connect("club-a")
        old = await office.world.rank()
        started = await office.world.start(old)
        lookup = await office.world.lose(started)
        await office.reconnect("club-b")
        await office.world.look_up(old)

        assert await office.world.states(old) == ("dead", "needs_attention")
        assert (await office.world.item(lookup)).state == "succeeded"
        assert office.provider.sent_to("club-b") == []

    async def test_is_woken_to_its_end(self, office: Office) -> None:
        """Nothing waits for a connection that never comes back."""
        await office.connect("club-a")
        old = await office.world.rank()
        office.door.announced.clear()

        await office.reconnect("club-b")
        await office.announced(old.work)


class TestWithAClaimOpen:
    @fault("reconnect", at="request on the wire", then="its answer counts, at the old account")
    async def test_what_is_on_the_wire_ends_at_the_account_it_began_with(
        self, office: Office
    ) -> None:
        """Its mark came first, and its answer is kept; the new account sees nothing of it."""
        await office.connect("club-a")
        old = await office.world.rank()
        office.provider.gate = gate = threading.Event()
        running = asyncio.create_task(office.world.run(old))
        await office.until(lambda: office.provider.waiting == 1)
        office.provider.gate = None
        await office.reconnect("club-b")
        gate.set()
        await running

        assert await office.world.states(old) == ("succeeded", "succeeded")
        assert len(office.provider.sent_to("club-a")) == 1
        assert office.provider.sent_to("club-b") == []

    @fault("reconnect", at="dispatch mark", then="it is marked for the old account, or ends")
    async def test_of_a_start_and_a_reconnection_at_once_one_is_first(self, office: Office) -> None:
        """Either it is marked for the old account, or it ends; never is it for the new one."""
        await office.connect("club-a")
        old = await office.world.rank()
        office.provider.consents_as = "club-b"
        begun = await office.begun(expected_version=await office.version())
        address = await office.consent(begun)

        started, page = await office.at_once(
            office.world.try_to_start(old), office.come_back(address), lock="binding_generations"
        )

        assert page.status_code == 200
        if isinstance(started, Started):
            (row,) = await office.rows(
                "SELECT g.account FROM oncefence.effect_attempts AS a"
                " JOIN oncefence.binding_generations AS g USING (org_id, generation_id)"
                " WHERE a.attempt_id = $1",
                started.attempt,
            )
            assert row["account"] == "club-a"
        else:
            assert isinstance(started, NotStarted)
            assert started.failure_class == STALE
        assert office.provider.sent_to("club-b") == []

    @fault("reconnect", at="another reconnection", then="one stands, the other changes nothing")
    async def test_of_two_connections_at_once_one_stands(self, office: Office) -> None:
        """The other is told that the binding moved; no account is connected by accident."""
        await office.connect("club-a")
        version = await office.version()
        office.provider.consents_as = "club-b"
        first = await office.begun(expected_version=version)
        second = await office.begun(expected_version=version)
        ways = [await office.consent(first), await office.consent(second)]

        pages = await office.at_once(
            *(office.come_back(way) for way in ways), lock="binding_generations"
        )

        outcomes = {await office.outcome(first), await office.outcome(second)}
        assert sorted(page.status_code for page in pages) == [200, 400]
        assert outcomes == {("connected", None), ("moved", "moved")}
        assert [row[:3] for row in await office.generations()] == [
            (1, "retired", "club-a"),
            (2, "current", "club-b"),
        ]


class TestAnExpectedVersion:
    async def test_of_one_that_moved_is_refused(self, office: Office) -> None:
        """Whoever acts says what they looked at; a second click connects nothing (C406)."""
        await office.connect("club-a")

        answer = await office.ask_to_connect()

        assert answer.status_code == 409
        assert answer.json()["code"] == "version_moved"
        assert "1.current" in answer.json()["detail"]

    async def test_is_held_until_the_person_is_back(self, office: Office) -> None:
        """Consent takes minutes: what others did meanwhile is not undone by it."""
        await office.connect("club-a")
        begun = await office.begun(expected_version="1.current")
        address = await office.consent(begun)
        await office.ask("disconnect", expected_version="1.current")

        page = await office.come_back(address)

        assert page.status_code == 400
        assert "changed by somebody else" in page.text
        assert (await office.shown(NAME))["binding"]["version"] == "1.retired"
