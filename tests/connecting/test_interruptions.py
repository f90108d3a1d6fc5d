"""Whoever connects an account may die at any step: nothing stands half made or is sent twice."""

from urllib.parse import parse_qs, urlsplit

import pytest

from oncefence.activities.account_calls import exchange_code
from oncefence.activities.authorizing import end_of_exchange, grant_of
from oncefence.domain.authorization import RequestOutcome
from oncefence.domain.redaction import Secret
from oncefence.storage.phases.settle_authorization import (
    Authorized,
    NotAuthorized,
    settle_authorization,
)
from oncefence.storage.phases.take_authorization import TakenAuthorization, take_authorization
from tests.connecting.office import Office
from tests.support.fault import fault

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def taken(office: Office, address: str) -> TakenAuthorization:
    """A request that is marked, by a process that goes no further unless the test says so."""
    state = parse_qs(urlsplit(address).query)["state"][0]
    found = await take_authorization(office.door.engine, office.door.ring, state)
    assert found is not None, "it is open"
    return found


async def exchanged(taken: TakenAuthorization, address: str) -> Authorized | NotAuthorized:
    """What the token endpoint gave."""
    grant = grant_of(taken)
    assert grant.oauth2 is not None
    code = Secret(parse_qs(urlsplit(address).query)["code"][0])
    answer = await exchange_code(taken, grant.oauth2, code, None)
    return end_of_exchange(taken, grant, grant.oauth2, answer)


class TestADeath:
    @fault("crash", at="between mark and code exchange", then="the code is shown no more")
    async def test_after_the_mark_costs_the_person_another_link(self, office: Office) -> None:
        """The code may be spent, so nobody shows it again; a new request connects (C288)."""
        begun = await office.begun()
        address = await office.consent(begun)
        await taken(office, address)
        under_way = await office.outcome(begun)
        page = await office.come_back(address)
        await office.pass_time(begun)

        assert (page.status_code, under_way) == (400, ("under_way", None))
        assert await office.outcome(begun) == ("lost", None)
        assert office.provider.calls_of("/oauth/token") == []
        assert await office.generations() == []
        await office.connect()

    @fault("crash", at="between code exchange and settlement", then="nothing stands; start again")
    async def test_after_the_exchange_leaves_nothing_here(self, office: Office) -> None:
        """What the provider gave is in nobody's hands, and the next consent gives other tokens."""
        address = await office.consent(await office.begun())
        await exchanged(await taken(office, address), address)
        page = await office.come_back(address)
        await office.connect()

        assert page.status_code == 400
        assert len(office.provider.calls_of("/oauth/token")) == 2
        assert [row[:2] for row in await office.generations()] == [(1, "current")]

    async def test_before_its_answer_to_the_settlement_changes_nothing_more(
        self, office: Office
    ) -> None:
        """Whoever settles again after a lost answer finds what was written (C184)."""
        address = await office.consent(await office.begun())
        request = await taken(office, address)
        end = await exchanged(request, address)
        store, ring = office.door.engine, office.door.ring
        first = await settle_authorization(store, ring, request.org, request.request, end)
        again = await settle_authorization(store, ring, request.org, request.request, end)

        assert first == again
        assert first.outcome is RequestOutcome.CONNECTED
        assert len(await office.generations()) == 1
        assert len(await office.rows_of("token_versions")) == 1
        assert len(await office.rows_of("authorization_grants")) == 1


class TestTheLastWord:
    async def test_of_two_ends_the_first_stands(self, office: Office) -> None:
        """A late success does not connect what was told to have failed."""
        begun = await office.begun()
        address = await office.consent(begun)
        request = await taken(office, address)
        end = await exchanged(request, address)
        store, ring = office.door.engine, office.door.ring
        failed = NotAuthorized(outcome=RequestOutcome.LOST, failure_class="lost")
        await settle_authorization(store, ring, request.org, request.request, failed)
        late = await settle_authorization(store, ring, request.org, request.request, end)

        assert late.outcome is RequestOutcome.LOST
        assert await office.outcome(begun) == ("lost", "lost")
        assert await office.generations() == []

    async def test_an_exchanged_secret_of_our_app_is_used_at_once(self, office: Office) -> None:
        """Between asking and coming back the secret may be exchanged; the client is the same."""
        address = await office.consent(await office.begun())
        office.provider.clients = {"client-of-the-tests": "another-secret"}
        await office.exchange_secret("another-secret")

        page = await office.come_back(address)

        assert page.status_code == 200
