"""An account is connected: from an operator's wish over a person's consent to the first write."""

from urllib.parse import parse_qs, urlsplit

import pytest

from tests.connecting.office import NAME, Office
from tests.support.doors import refusal
from tests.support.fault import fault
from tests.support.oauth_server import CLIENT, CLIENT_SECRET

pytestmark = pytest.mark.asyncio(loop_scope="module")


class TestByConsent:
    async def test_an_account_is_connected_and_used(self, office: Office) -> None:
        """Whoever consented is the account; what is written goes there (C280)."""
        begun = await office.connect("club-a")
        accepted = await office.world.rank()
        await office.world.run(accepted)

        shown = (await office.shown())["binding"]
        assert await office.outcome(begun) == ("connected", None)
        assert (shown["state"], shown["account"], shown["grant_state"]) == (
            "connected",
            "club-a",
            "healthy",
        )
        assert await office.world.states(accepted) == ("succeeded", "succeeded")
        assert len(office.provider.sent_to("club-a")) == 1

    async def test_what_the_browser_is_sent_away_with_is_asked_for(self, office: Office) -> None:
        """Scopes, our client, a challenge and no secret; the state is of 256 bits."""
        begun = await office.begun()
        parts = urlsplit(begun["url"])
        asked = {name: values[0] for name, values in parse_qs(parts.query).items()}

        assert f"{parts.scheme}://{parts.netloc}" == office.provider.base_url
        assert asked["response_type"] == "code"
        assert asked["client_id"] == CLIENT
        assert asked["redirect_uri"] == f"{office.door.url}/v1/oauth/callback"
        assert asked["scope"] == "members.read members.write"
        assert asked["code_challenge_method"] == "S256"
        assert len(asked["state"]) >= 43
        assert CLIENT_SECRET not in begun["url"]

    async def test_the_code_is_exchanged_once_with_its_verifier(self, office: Office) -> None:
        """The challenge is checked by the server of these tests, as real ones do."""
        await office.connect()

        (call,) = office.provider.calls_of("/oauth/token")
        assert set(call.form) == {
            *("grant_type", "code", "redirect_uri", "code_verifier"),
            *("client_id", "client_secret"),
        }
        assert call.authorization is None

    async def test_a_client_may_be_proven_in_a_header(self, office: Office) -> None:
        """Then its secret is in no body, and without PKCE there is no challenge to meet."""
        begun = await office.connect(grant="steady")

        (call,) = office.provider.calls_of("/oauth/token")
        assert "code_challenge" not in begun["url"]
        assert set(call.form) == {"grant_type", "code", "redirect_uri"}
        assert (call.authorization or "").startswith("Basic ")

    async def test_the_end_of_the_tokens_is_known(self, office: Office) -> None:
        """As the reply says, or as the pack does; of the refresh token too (C283)."""
        office.provider.reply = {"expires_in": "600"}
        await office.connect(grant="user", user="u-17")
        (row,) = await office.rows(
            "SELECT extract(epoch FROM expires_at - made_at)::int AS access,"
            " extract(epoch FROM refresh_expires_at - made_at)::int AS refresh, made_because"
            " FROM oncefence.token_versions WHERE org_id = $1",
            office.org,
        )

        assert abs(row["access"] - 600) <= 5
        assert abs(row["refresh"] - 1_209_600) <= 5
        assert row["made_because"] == "connected"

    async def test_nothing_secret_is_stored_in_clear(self, office: Office) -> None:
        """State, verifier, code, secret and tokens are hashed or sealed (C296)."""
        begun = await office.connect()
        (call,) = office.provider.calls_of("/oauth/token")
        (family,) = office.provider.families
        state = parse_qs(urlsplit(begun["url"]).query)["state"][0]
        secrets = [state, call.form["code_verifier"], call.form["code"], CLIENT_SECRET]
        secrets += [*family.access, family.refresh or ""]
        stored = ""
        for table in (
            *("authorization_requests", "provider_apps", "binding_generations"),
            *("token_versions", "audit", "authorization_grants"),
        ):
            rows = await office.rows(f"SELECT t::text AS row FROM oncefence.{table} AS t")
            stored += "".join(row["row"] for row in rows)

        assert len(secrets) == 6
        for secret in secrets:
            assert secret not in stored
            assert secret.encode().hex() not in stored

    async def test_each_act_is_in_the_audit_with_its_note(self, office: Office) -> None:
        """Who asked, and for which version; the connection itself is their act too (C406)."""
        await office.connect()
        found = await office.rows(
            "SELECT actor, act, subject_kind, note, expected_version FROM oncefence.audit"
            " WHERE org_id = $1 AND act LIKE 'binding.%' ORDER BY sequence",
            office.org,
        )

        assert [row["subject_kind"] for row in found] == [
            "authorization_request",
            "principal_binding",
        ]
        assert {row["act"] for row in found} == {"binding.connect"}
        assert {row["note"] for row in found} == {"asked for by the sales team"}
        assert {row["expected_version"] for row in found} == {"absent"}
        assert all(row["actor"].startswith("operator:op-") for row in found)


class TestForAUser:
    async def test_each_has_an_account_of_their_own(self, office: Office) -> None:
        """One name, and under it one binding for each user who consented (C281)."""
        await office.connect("club-a", grant="user", user="u-17")
        await office.connect("club-b", grant="user", user="u-18")

        first = (await office.shown(user="u-17"))["binding"]
        second = (await office.shown(user="u-18"))["binding"]
        assert (first["account"], second["account"]) == ("club-a", "club-b")
        assert first["kind"] == second["kind"] == "per_user"
        assert first["binding_id"] != second["binding_id"]

    @pytest.mark.parametrize(("grant", "user"), [("app", "u-17"), ("user", None)])
    async def test_the_pack_says_for_whom_a_grant_is(
        self, office: Office, grant: str, user: str | None
    ) -> None:
        """A person's consent is not the organisation's, nor the reverse (C281)."""
        answer = await office.ask_to_connect(grant=grant, user=user)

        assert refusal(answer) == (409, "act_refused")
        assert "user" in answer.json()["detail"]

    async def test_one_name_is_not_of_both_kinds(self, office: Office) -> None:
        """A view names a principal: whether a user belongs to it must not depend on luck."""
        await office.connect("club-a")

        answer = await office.ask_to_connect(grant="user", user="u-17")

        assert refusal(answer) == (409, "act_refused")

    async def test_of_two_kinds_at_once_the_first_has_the_name(self, office: Office) -> None:
        """Both may be asked for while nothing is there; the second changes nothing."""
        shared = await office.begun()
        of_user = await office.begun(grant="user", user="u-17")
        first = await office.come_back(await office.consent(shared))
        second = await office.come_back(await office.consent(of_user))

        assert (first.status_code, second.status_code) == (200, 400)
        assert await office.outcome(of_user) == ("moved", "name_taken")
        assert [row[1] for row in await office.generations()] == ["current"]


class TestAnInstallation:
    async def test_is_connected_without_a_person(self, office: Office) -> None:
        """Our key says who we are; the reply, which account it is."""
        begun = await office.begun(grant="install", installation="club-a")
        accepted = await office.world.rank()
        await office.world.run(accepted)

        shown = (await office.shown())["binding"]
        assert (begun["url"], begun["outcome"]) == (None, "connected")
        assert (shown["flow"], shown["account"], shown["installation"]) == (
            "mint",
            "club-a",
            "club-a",
        )
        assert len(office.provider.sent_to("club-a")) == 1

    async def test_of_another_id_is_another_generation(self, office: Office) -> None:
        """Even where it is the same account: what it may do is another consent (C282)."""
        await office.begun(grant="install", installation="club-a")
        office.provider.minted_scope = {"club": "club-a"}

        await office.begun(
            grant="install", installation="club-a2", expected_version=await office.version()
        )

        assert await office.generations() == [
            (1, "retired", "club-a", "reconnected"),
            (2, "current", "club-a", None),
        ]

    @fault("uninstall and reinstall", at="work accepted", then="it ends; the new one sees nothing")
    async def test_that_was_removed_and_made_anew_is_another(self, office: Office) -> None:
        """Its id is another one, and what was accepted for the old one goes nowhere (C282)."""
        await office.begun(grant="install", installation="club-a")
        old = await office.world.rank()
        await office.ask("disconnect", expected_version="1.current")
        again = await office.begun(
            grant="install", installation="club-a2", expected_version="1.retired"
        )
        office.world.links.clear()
        new = await office.world.rank()
        await office.world.run(old)
        await office.world.run(new)

        assert again["outcome"] == "connected"
        assert await office.world.states(old) == ("cancelled", "failed")
        assert await office.world.states(new) == ("succeeded", "succeeded")
        assert office.provider.sent_to("club-a") == []
        assert len(office.provider.sent_to("club-a2")) == 1

    @pytest.mark.parametrize(
        ("scope", "failure"),
        [
            ({"token": None}, "no_access_token"),
            ({"club": None}, "no_account"),
            ({"api": "https://evil.example/v1"}, "host_not_admitted"),
            ({"api": "http://eu.clubs.example/v1"}, "host_not_admitted"),
        ],
    )
    async def test_that_cannot_be_used_is_not_connected(
        self, office: Office, scope: dict[str, object], failure: str
    ) -> None:
        """A reply could send every later token anywhere; its host is held to the pack's list."""
        office.provider.minted_scope = scope

        begun = await office.begun(grant="install", installation="club-a")

        assert (begun["outcome"], begun["failure_class"]) == ("unfit", failure)
        assert await office.generations() == []

    @pytest.mark.parametrize(
        "body",
        [{"grant": "install"}, {"grant": "app", "installation": "club-a"}],
        ids=["without its id", "where none belongs"],
    )
    async def test_goes_with_a_minted_grant_alone(
        self, office: Office, body: dict[str, str]
    ) -> None:
        """Either would be asked for in vain."""
        assert refusal(await office.ask_to_connect(**body)) == (409, "act_refused")


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("change", "told"),
        [
            ({"grant": "key"}, (409, "act_refused")),
            ({"grant": "none-such"}, (422, "no_such_target")),
            ({"provider": "none-such"}, (422, "no_such_target")),
            ({"base_url": "https://api.clubs.example/v3"}, (409, "act_refused")),
            ({"base_url": "http://127.0.0.1:1", "local": False}, (409, "act_refused")),
            ({"name": "Main"}, (422, "body_invalid")),
            ({"user": "two words"}, (422, "body_invalid")),
            ({"grant": "install", "installation": "../x"}, (422, "body_invalid")),
            ({"note": ""}, (422, "body_invalid")),
            ({"expected_version": "1.current"}, (409, "version_moved")),
            ({"more": 1}, (422, "body_invalid")),
        ],
    )
    async def test_is_told_and_leaves_nothing(
        self, office: Office, change: dict[str, object], told: tuple[int, str]
    ) -> None:
        """One message, and no request that could be used."""
        answer = await office.ask_to_connect(**change)

        assert refusal(answer) == told
        assert await office.requests() == []

    async def test_an_app_is_needed(self, office: Office) -> None:
        """Without one the provider would not know who asks."""
        await office.database_as_owner(
            "UPDATE oncefence.provider_apps SET retired_at = clock_timestamp() WHERE org_id = $1",
            office.org,
        )

        answer = await office.ask_to_connect()

        assert refusal(answer) == (422, "no_such_target")
        assert "oncefence app add" in answer.json()["detail"]

    async def test_a_binding_keeps_its_origin(self, office: Office) -> None:
        """Its links name records of that host."""
        await office.connect()

        answer = await office.ask_to_connect(
            base_url="http://127.0.0.1:9", expected_version=await office.version()
        )

        assert refusal(answer) == (409, "act_refused")

    async def test_the_secret_of_an_app_is_shown_nowhere(self, office: Office) -> None:
        """Neither to operators nor in what they list."""
        await office.connect()
        listed = await office.operator.get("/v1/operator/bindings", params={"org": office.org})
        shown = await office.operator.get(
            f"/v1/operator/bindings/{NAME}", params={"org": office.org}
        )
        (family,) = office.provider.families

        for text in (listed.text, shown.text):
            assert NAME in text
            for secret in (CLIENT_SECRET, family.refresh or "", *family.access):
                assert secret not in text
