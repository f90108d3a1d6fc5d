"""The way back from a provider's page: a state that is ours, unused and in time, or nothing."""

from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest

from oncefence.domain.operator import Role
from tests.connecting.office import CALLBACK, Office, an_office, operator_of
from tests.support.doors import refusal
from tests.support.fault import fault
from tests.support.oauth_server import Fault

NOT_VALID = "This link is not valid"


def parts_of(address: str) -> dict[str, str]:
    """What an address asks for."""
    return {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}


async def nothing_changed(office: Office) -> None:
    """Nothing is connected, and the provider was asked for no token."""
    assert await office.generations() == []
    assert office.provider.calls_of("/oauth/token") == []


pytestmark = pytest.mark.asyncio(loop_scope="module")


class TestAState:
    async def test_is_used_once(self, office: Office) -> None:
        """Who comes back twice is told that it is over; the code is not shown again (C287)."""
        begun = await office.begun()
        address = await office.consent(begun)
        first = await office.come_back(address)
        again = await office.come_back(address)

        assert (first.status_code, again.status_code) == (200, 400)
        assert NOT_VALID in again.text
        assert len(office.provider.calls_of("/oauth/token")) == 1
        assert not office.provider.families[0].is_revoked

    async def test_that_was_never_made_is_refused(self, office: Office) -> None:
        """A browser that was sent here by somebody else connects nothing (CSRF)."""
        begun = await office.begun()
        parts = parts_of(await office.consent(begun)) | {"state": "made-up"}

        page = await office.come_back(f"{CALLBACK}?{urlencode(parts)}")

        assert (page.status_code, NOT_VALID in page.text) == (400, True)
        await nothing_changed(office)

    async def test_that_has_expired_is_refused(self, office: Office) -> None:
        """A link that lies around in a mailbox connects nothing next week."""
        begun = await office.begun()
        address = await office.consent(begun)
        await office.expire(begun)

        page = await office.come_back(address)

        assert (page.status_code, NOT_VALID in page.text) == (400, True)
        assert await office.outcome(begun) == ("expired", None)
        await nothing_changed(office)

    async def test_of_another_person_does_not_take_this_ones_code(self, office: Office) -> None:
        """A code is bound to the request that it was asked for with, by its challenge (PKCE)."""
        mine, theirs = await office.begun(), await office.begun(name="other")
        code = parts_of(await office.consent(theirs))["code"]
        parts = parts_of(await office.consent(mine)) | {"code": code}

        page = await office.come_back(f"{CALLBACK}?{urlencode(parts)}")

        assert page.status_code == 400
        assert await office.outcome(mine) == ("refused", "invalid_grant")
        assert await office.generations() == []

    async def test_belongs_to_the_org_that_asked(self, office: Office) -> None:
        """Another org's operator can neither see the request nor come to have the account."""
        other = await an_office(office.database, office.door, office.provider)
        begun = await office.connect()

        path = f"/v1/operator/authorizations/{begun['request_id']}"
        theirs = await other.operator.get(path, params={"org": other.org})
        forbidden = await other.operator.get(path, params={"org": office.org})

        assert refusal(theirs) == (404, "not_found")
        assert refusal(forbidden) == (403, "act_not_allowed")
        assert await other.generations() == []
        assert [row[2] for row in await office.generations()] == ["club-a"]

    async def test_that_two_bring_at_once_connects_once(self, office: Office) -> None:
        """A browser that sends its request twice spends the code once (C286)."""
        begun = await office.begun()
        address = await office.consent(begun)

        pages = await office.at_once(
            office.come_back(address),
            office.come_back(address),
            lock="authorization_requests",
        )

        assert sorted(page.status_code for page in pages) == [200, 400]
        assert len(office.provider.calls_of("/oauth/token")) == 1
        assert len(await office.generations()) == 1


class TestWhatComesBack:
    @pytest.mark.parametrize(
        "change",
        [
            {"state": None},
            {"code": None},
            {"error": "access_denied"},
            {"code": ""},
            {"code": "x" * 4_097},
        ],
        ids=["no state", "nothing", "both", "an empty code", "a code too long"],
    )
    async def test_in_another_form_leaves_the_request_open(
        self, office: Office, change: dict[str, str | None]
    ) -> None:
        """It is no answer of a provider; the person may still come back with one."""
        begun = await office.begun()
        address = await office.consent(begun)
        given = {**parts_of(address), **change}
        spoilt = urlencode({name: value for name, value in given.items() if value is not None})

        page = await office.come_back(f"{CALLBACK}?{spoilt}")
        after = await office.come_back(address)

        assert (page.status_code, after.status_code) == (400, 200)

    async def test_twice_in_one_address_is_refused(self, office: Office) -> None:
        """Two codes are one too many: which one counts is not for us to guess."""
        address = await office.consent(await office.begun())

        page = await office.come_back(f"{address}&code=another")

        assert page.status_code == 400
        await nothing_changed(office)

    @pytest.mark.parametrize(
        ("word", "kept", "told"),
        [
            ("access_denied", "access_denied", "left without consent"),
            ("temporarily_unavailable", "temporarily_unavailable", "try again later"),
            ("<script>alert(1)</script>", "another_error", "with a word that no standard has"),
        ],
    )
    async def test_as_an_error_is_told_plainly(
        self, office: Office, word: str, kept: str, told: str
    ) -> None:
        """In our own words: nothing that came is repeated, and nothing of it is kept."""
        office.provider.denies = word
        begun = await office.begun()

        page = await office.come_back(await office.consent(begun))

        assert (page.status_code, told in page.text) == (400, True)
        assert page.headers["content-type"] == "text/plain; charset=utf-8"
        assert not any(sign in page.text for sign in ("<", "script", "<b>"))
        assert await office.outcome(begun) == ("denied", kept)
        await nothing_changed(office)

    @pytest.mark.parametrize("issuer", ["https://evil.example", "http://127.0.0.1:1", "::", ""])
    async def test_from_another_issuer_is_not_exchanged(self, office: Office, issuer: str) -> None:
        """Its code would be shown to a server that it is not of (RFC 9207)."""
        begun = await office.begun()
        parts = parts_of(await office.consent(begun)) | {"iss": issuer}

        page = await office.come_back(f"{CALLBACK}?{urlencode(parts)}")

        assert page.status_code == 400
        await nothing_changed(office)

    async def test_without_an_issuer_is_taken(self, office: Office) -> None:
        """Most servers do not say it yet."""
        begun = await office.begun()
        parts = parts_of(await office.consent(begun))
        del parts["iss"]

        page = await office.come_back(f"{CALLBACK}?{urlencode(parts)}")

        assert page.status_code == 200

    async def test_is_kept_by_nobody(self, office: Office) -> None:
        """The address holds code and state: no cache, no frame, no referrer."""
        page = await office.come_back(await office.consent(await office.begun()))

        assert page.headers["cache-control"] == "no-store"
        assert page.headers["referrer-policy"] == "no-referrer"
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
        assert page.headers["x-content-type-options"] == "nosniff"


class TestTheExchange:
    @fault("answer lost or useless", at="code exchange", then="nothing is half made; start again")
    @pytest.mark.parametrize(
        ("met", "outcome", "failure"),
        [
            (Fault.LOST, "lost", "lost"),
            (Fault.CUT, "lost", "lost"),
            (Fault.ERROR, "refused", "temporarily_unavailable"),
            (Fault.TOO_MANY, "refused", "temporarily_unavailable"),
            (Fault.NOT_JSON, "unfit", "no_access_token"),
        ],
    )
    async def test_that_fails_is_made_once_and_leaves_nothing(
        self, office: Office, met: Fault, outcome: str, failure: str
    ) -> None:
        """A code is single use: a lost answer is not asked for again; the person starts anew."""
        office.provider.meet(met)
        begun = await office.begun()
        address = await office.consent(begun)
        page = await office.come_back(address)
        again = await office.come_back(address)
        second = await office.connect()

        assert (page.status_code, again.status_code) == (400, 400)
        assert await office.outcome(begun) == (outcome, failure)
        assert await office.outcome(second) == ("connected", None)
        assert len(office.provider.calls_of("/oauth/token")) == 2
        assert [row[:2] for row in await office.generations()] == [(1, "current")]

    @pytest.mark.parametrize(
        ("reply", "failure"),
        [
            ({"access_token": None}, "no_access_token"),
            ({"access_token": "two words"}, "no_access_token"),
            ({"club_id": None}, "no_account"),
            ({"scope": "members.read"}, "scopes_missing"),
        ],
    )
    async def test_that_gives_what_cannot_be_used_connects_nothing(
        self, office: Office, reply: dict[str, object], failure: str
    ) -> None:
        """Told now, and not by a write that is refused months later."""
        office.provider.reply = reply
        begun = await office.begun()

        page = await office.come_back(await office.consent(begun))

        assert page.status_code == 400
        assert await office.outcome(begun) == ("unfit", failure)
        assert await office.generations() == []

    async def test_says_which_scopes_were_granted(self, office: Office) -> None:
        """More than was asked for is kept as what the generation may do (C282)."""
        office.provider.reply = {"scope": "members.write,members.read extra"}
        await office.connect()

        shown = (await office.shown())["binding"]
        assert shown["scopes"] == ["extra", "members.read", "members.write"]

    @pytest.mark.parametrize(
        ("url", "outcome"),
        [
            ("https://eu.clubs.example/v1", ("connected", None)),
            ("https://eu.clubs.example.evil.example/v1", ("unfit", "host_not_admitted")),
            ("https://eu.clubs.example@evil.example/v1", ("unfit", "host_not_admitted")),
            (None, ("unfit", "host_not_admitted")),
        ],
    )
    async def test_holds_the_host_to_the_packs_list(
        self, office: Office, url: str | None, outcome: tuple[str, str | None]
    ) -> None:
        """Whoever could name any host would be sent every later token."""
        office.provider.reply = {"api_url": url}
        begun = await office.begun(grant="hosted")

        await office.come_back(await office.consent(begun))

        assert await office.outcome(begun) == outcome


class TestWhoMay:
    @pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR, Role.REPAIRER])
    @pytest.mark.parametrize("verb", ["connect", "reauthorize", "disconnect"])
    async def test_change_accounts_is_an_administrator(
        self, office: Office, role: Role, verb: str
    ) -> None:
        """Whoever connects an account decides whose records are changed (C407)."""
        somebody = await operator_of(office.door, office.org, role)
        office.operator = somebody

        if verb == "connect":
            answer = await office.ask_to_connect()
        else:
            answer = await office.ask(verb, expected_version="1.current")

        assert refusal(answer) == (403, "act_not_allowed")

    async def test_come_back_is_anybody_with_the_state(self, office: Office) -> None:
        """The person at the browser has no credential of ours; what they may is in the state."""
        bare = office.door.client(None)

        page: httpx.Response = await bare.get(await office.consent(await office.begun()))

        assert page.status_code == 200
