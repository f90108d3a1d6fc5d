"""An account is disconnected here at once, and at its provider as its pack says (C295)."""

import asyncio
import threading
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pytest

from oncefence.domain.errors import NoSuchTarget
from oncefence.domain.redaction import Secret
from oncefence.storage.phases.rebind_principal import rebind_principal
from tests.connecting.office import NAME, Office
from tests.support.doors import refusal
from tests.support.fault import fault
from tests.support.oauth_server import TOKEN_OF_A_PERSON, Fault

pytestmark = pytest.mark.asyncio(loop_scope="module")

REVOKE = "/oauth/revoke"


async def disconnected(office: Office, **body: object) -> Mapping[str, Any]:
    """What disconnecting came to."""
    given: dict[str, object] = {"expected_version": "1.current"} | body
    answer = await office.ask("disconnect", **given)
    assert answer.status_code == 200, answer.text
    document: Mapping[str, Any] = answer.json()
    return document


class TestDisconnecting:
    async def test_ends_it_here_and_there(self, office: Office) -> None:
        """The newest refresh token is revoked, and the generation's key is gone."""
        await office.connect()
        (family,) = office.provider.families
        refresh = family.refresh
        ended = await disconnected(office)

        (call,) = office.provider.calls_of(REVOKE)
        shown = (await office.shown())["binding"]
        assert (ended["revocation"], ended["version"], ended["is_new"]) == (
            "revoked",
            "1.retired",
            True,
        )
        assert call.form["token"] == refresh
        assert call.form["token_type_hint"] == "refresh_token"
        assert family.is_revoked
        assert (shown["state"], shown["grant_state"], shown["has_key"]) == (
            "disconnected",
            "revoked",
            False,
        )
        assert shown["retired_because"] == "disconnected"

    @fault("disconnect", at="work accepted", then="it ends, and nothing is sent")
    async def test_ends_what_waits_and_sends_nothing(self, office: Office) -> None:
        """A command for an account that is gone has a clear end (C284)."""
        await office.connect()
        waiting = await office.world.rank()
        office.door.announced.clear()
        await disconnected(office)
        await office.announced(waiting.work)
        await office.world.run(waiting)

        assert await office.world.states(waiting) == ("cancelled", "failed")
        assert (await office.world.execution(waiting)).failure_class == "binding_generation_stale"
        assert office.provider.sent_to("club-a") == []

    async def test_leaves_what_is_on_the_wire_to_its_end(self, office: Office) -> None:
        """Its mark came first; its answer is the truth."""
        await office.connect()
        running = await office.world.rank()
        started = await office.world.start(running)
        await disconnected(office)

        assert await office.world.states(running) == ("processing", "running")
        assert started.fence.work == running.work

    async def test_and_connecting_again_is_another_generation(self, office: Office) -> None:
        """However the same the account is (C282)."""
        await office.connect("club-a")
        await disconnected(office)
        await office.reconnect("club-a")

        assert await office.generations() == [
            (1, "retired", "club-a", "disconnected"),
            (2, "current", "club-a", None),
        ]

    async def test_tells_where_a_pack_declares_no_end(self, office: Office) -> None:
        """Then the person ends it at the provider, and our own tokens never open again."""
        await office.connect(grant="steady")
        ended = await disconnected(office)

        assert (ended["revocation"], ended["has_key"]) == ("not_declared", False)
        assert office.provider.calls_of(REVOKE) == []

    async def test_without_revoking_is_for_whoever_says_so(self, office: Office) -> None:
        """The tokens are good at the provider still, and here they never open again."""
        await office.connect()
        ended = await disconnected(office, without_revocation=True)
        again = await disconnected(office, expected_version="1.retired")

        assert (ended["revocation"], ended["has_key"]) == ("not_wanted", False)
        assert (again["revocation"], again["is_new"]) == ("done_before", False)
        assert office.provider.calls_of(REVOKE) == []

    async def test_is_in_the_audit(self, office: Office) -> None:
        """Each time with its note and the version that was looked at (C406)."""
        await office.connect()
        await disconnected(office)
        (row,) = await office.rows(
            "SELECT note, expected_version FROM oncefence.audit"
            " WHERE org_id = $1 AND act = 'binding.disconnect'",
            office.org,
        )

        assert row == {"note": "asked for by the sales team", "expected_version": "1.current"}

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            ({"expected_version": "2.current"}, (409, "version_moved")),
            ({"name": "other"}, (422, "no_such_target")),
            ({"note": " "}, (422, "body_invalid")),
        ],
    )
    async def test_that_is_refused_changes_nothing(
        self, office: Office, change: dict[str, object], told: tuple[int, str]
    ) -> None:
        """One message, and the account goes on."""
        await office.connect()
        answer = await office.ask("disconnect", **({"expected_version": "1.current"} | change))

        assert refusal(answer) == told
        assert await office.version() == "1.current"


class TestARevocationThatFails:
    @fault("revocation fails", at="revocation call", then="disconnected here; it can be repeated")
    @pytest.mark.parametrize(
        ("met", "outcome"),
        [
            (Fault.LOST, "lost"),
            (Fault.ERROR, "refused"),
            (Fault.TOO_MANY, "refused"),
        ],
    )
    async def test_is_told_and_can_be_repeated(
        self, office: Office, met: Fault, outcome: str
    ) -> None:
        """It is disconnected here all the same; its key is kept, to try again."""
        await office.connect()
        office.provider.meet(met)
        first = await disconnected(office)
        state = (await office.shown())["binding"]
        second = await disconnected(office, expected_version=first["version"])

        assert (first["revocation"], first["has_key"]) == (outcome, True)
        assert (state["state"], state["revocation"]) == ("disconnected", outcome)
        assert (second["revocation"], second["is_new"], second["has_key"]) == (
            "revoked",
            False,
            False,
        )
        assert office.provider.families[0].is_revoked
        assert len(office.provider.calls_of(REVOKE)) == 2

    async def test_that_the_provider_refuses_can_be_given_up(self, office: Office) -> None:
        """The operator says so, and the tokens never open again."""
        await office.connect()
        office.provider.revocation_status = 400
        first = await disconnected(office)
        second = await disconnected(office, expected_version="1.retired", without_revocation=True)

        assert (first["revocation"], first["failure_class"]) == ("refused", "status_400")
        assert (second["revocation"], second["has_key"]) == ("not_wanted", False)

    @fault("crash", at="between mark and revocation", then="it is made again, and ends it")
    async def test_that_died_in_between_is_made_again(self, office: Office) -> None:
        """Its row is open for ever, and what it may have ended stays ended."""
        await office.connect()
        await office.die_before_revoking()
        again = await disconnected(office, expected_version="1.retired")
        found = await office.rows(
            "SELECT outcome FROM oncefence.revocations WHERE org_id = $1 ORDER BY started_at",
            office.org,
        )

        assert again["revocation"] == "revoked"
        assert [row["outcome"] for row in found] == [None, "revoked"]


class TestWithARenewalOut:
    @fault("disconnect", at="token call", then="what the answer brings is revoked, nothing is sent")
    async def test_waits_with_the_revocation_for_its_answer(self, office: Office) -> None:
        """What it brings is what has to be revoked; nothing is sent with it (C287)."""
        await office.connect()
        waiting = await office.world.rank()
        await office.expire_token()
        office.provider.gate = gate = threading.Event()
        running = asyncio.create_task(office.world.run(waiting))
        await office.until(lambda: office.provider.waiting == 1)
        office.provider.gate = None
        held = await disconnected(office)
        gate.set()
        await running
        await office.world.run(waiting)
        ended = await disconnected(office, expected_version="1.retired")

        (family,) = office.provider.families
        assert (held["revocation"], held["has_key"]) == ("held", True)
        assert datetime.fromisoformat(held["until"]).tzinfo is not None
        assert ended["revocation"] == "revoked"
        assert family.is_revoked
        assert await office.world.states(waiting) == ("cancelled", "failed")
        assert office.provider.sent_to("club-a") == []

    @fault("reconnect", at="token call", then="the answer is dropped; the new tokens stay")
    async def test_a_reconnection_drops_what_it_brings(self, office: Office) -> None:
        """Its generation is gone, with its key; the new account's tokens stay as they are."""
        await office.connect("club-a")
        waiting = await office.world.rank()
        await office.expire_token()
        office.provider.gate = gate = threading.Event()
        running = asyncio.create_task(office.world.run(waiting))
        await office.until(lambda: office.provider.waiting == 1)
        office.provider.gate = None
        await office.reconnect("club-b")
        gate.set()
        await running
        await office.world.run(waiting)

        versions = await office.rows(
            "SELECT g.ordinal, t.version FROM oncefence.token_versions AS t"
            " JOIN oncefence.binding_generations AS g USING (org_id, generation_id)"
            " WHERE org_id = $1 ORDER BY 1, 2",
            office.org,
        )
        (ledger,) = await office.rows(
            "SELECT outcome FROM oncefence.token_refreshes WHERE org_id = $1", office.org
        )
        assert [tuple(row.values()) for row in versions] == [(1, 1), (2, 1)]
        assert ledger["outcome"] == "superseded"
        assert await office.world.states(waiting) == ("cancelled", "failed")
        assert office.provider.sent_to("club-b") == []
        assert (await office.shown())["binding"]["grant_state"] == "healthy"


class TestRebinding:
    async def test_is_another_generation(self, office: Office) -> None:
        """A token that was handed over proves nothing about whose it is (C282)."""
        await office.add_by_hand()
        old = await office.world.rank()
        await rebind_principal(
            office.door.engine,
            office.door.ring,
            office.world.org,
            NAME,
            subject=None,
            pack_grant="key",
            token=Secret(TOKEN_OF_A_PERSON),
            expected_version="1.current",
            actor="tests",
            note="another person's",
        )
        office.world.links.clear()
        new = await office.world.rank()
        await office.world.run(old)
        await office.world.run(new)

        assert await office.world.states(old) == ("cancelled", "failed")
        assert await office.world.states(new) == ("succeeded", "succeeded")
        assert await office.generations() == [
            (1, "retired", None, "rebound"),
            (2, "current", None, None),
        ]

    @pytest.mark.parametrize("is_same_account", [False, True])
    async def test_keeps_links_where_somebody_says_that_it_is_the_same_account(
        self, office: Office, is_same_account: bool
    ) -> None:
        """A token is exchanged by hand more often than an account, and nothing shows which."""
        await office.add_by_hand()
        await office.world.run(await office.world.rank())
        await rebind_principal(
            office.door.engine,
            office.door.ring,
            office.world.org,
            NAME,
            subject=None,
            pack_grant="key",
            token=Secret(TOKEN_OF_A_PERSON),
            expected_version="1.current",
            actor="tests",
            note="exchanged",
            is_same_account=is_same_account,
        )
        if is_same_account:
            new = await office.world.rank()
            await office.world.run(new)
            assert await office.world.states(new) == ("succeeded", "succeeded")
        else:
            with pytest.raises(NoSuchTarget, match="link adopt"):
                await office.world.rank()
