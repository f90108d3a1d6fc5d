"""A grant is repaired within its generation, by the same account and by no other (C282, C291)."""

import pytest

from tests.connecting.office import Office
from tests.support.doors import refusal

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def broken(office: Office, *, grant: str = "app", state: str = "refresh_unknown") -> None:
    """A connected account whose tokens can no longer be renewed."""
    await office.connect("club-a", grant=grant)
    await office.database_as_owner(
        "UPDATE oncefence.authorization_grants SET state = $2, failure_class = 'lost'"
        " WHERE org_id = $1",
        office.org,
        state,
    )


async def reauthorized(office: Office, account: str) -> str:
    """What the page says to a person of this account."""
    office.provider.consents_as = account
    answer = await office.ask("reauthorize", expected_version=await office.version())
    assert answer.status_code == 201, answer.text
    page = await office.come_back(await office.consent(answer.json()))
    return page.text


class TestByTheSameAccount:
    @pytest.mark.parametrize("state", ["refresh_unknown", "needs_reauthorization"])
    async def test_what_waits_goes_on(self, office: Office, state: str) -> None:
        """The generation is the one that it was accepted for."""
        await broken(office, state=state)
        waiting = await office.world.rank()
        await office.world.run(waiting)
        before = await office.world.states(waiting)
        office.door.announced.clear()

        assert "authorised again" in await reauthorized(office, "club-a")
        await office.announced(waiting.work)
        await office.world.run(waiting)

        shown = (await office.shown())["binding"]
        assert before == ("pending", "accepted")
        assert await office.world.states(waiting) == ("succeeded", "succeeded")
        assert (shown["grant_state"], shown["token_version"]) == ("healthy", 2)
        assert shown["token_made_because"] == "reauthorized"
        assert [row[:2] for row in await office.generations()] == [(1, "current")]

    async def test_no_attempt_was_spent_on_waiting(self, office: Office) -> None:
        """A credential that a person must mend is no fault of the command (C294)."""
        await broken(office)
        waiting = await office.world.rank()
        for _ in range(3):
            await office.world.run(waiting)

        item = await office.world.item(waiting.work)
        assert (item.attempt, item.claims_lost) == (0, 0)
        assert office.provider.sent_to("club-a") == []


class TestByAnother:
    @pytest.mark.parametrize(
        ("reply", "failure"),
        [
            ({"club_id": "club-b"}, "another_account"),
            ({"scope": "members.read members.write members.delete"}, "another_scopes"),
        ],
    )
    async def test_changes_nothing(
        self, office: Office, reply: dict[str, object], failure: str
    ) -> None:
        """What waits was accepted for the account as it was: the operator connects instead."""
        await broken(office)
        waiting = await office.world.rank()
        office.provider.reply = reply

        page = await reauthorized(office, "club-a")
        await office.world.run(waiting)

        (request,) = [row for row in await office.requests() if row["act"] == "reauthorize"]
        shown = (await office.shown())["binding"]
        assert "another account, or other permissions" in page
        assert (request["outcome"], request["failure_class"]) == ("unfit", failure)
        assert (shown["grant_state"], shown["token_version"]) == ("refresh_unknown", 1)
        assert await office.world.states(waiting) == ("pending", "accepted")
        assert office.provider.sent_to("club-b") == []

    async def test_that_cannot_be_told_changes_nothing(self, office: Office) -> None:
        """A reply without an account proves nothing, however equal the rest is."""
        office.provider.reply = {"api_url": "https://eu.clubs.example/v1"}
        await broken(office, grant="hosted")

        await reauthorized(office, "club-a")

        (request,) = [row for row in await office.requests() if row["act"] == "reauthorize"]
        assert (request["outcome"], request["failure_class"]) == ("unfit", "account_not_proven")


class TestWhatIsRefused:
    async def test_of_a_binding_that_is_not_there(self, office: Office) -> None:
        """It is connected first."""
        answer = await office.ask("reauthorize", expected_version="1.current")

        assert refusal(answer) == (422, "no_such_target")

    async def test_of_one_that_is_disconnected(self, office: Office) -> None:
        """What ended never comes back (C284)."""
        await office.connect()
        await office.ask("disconnect", expected_version="1.current")

        answer = await office.ask("reauthorize", expected_version="1.retired")

        assert refusal(answer) == (409, "act_refused")

    async def test_of_a_token_that_was_handed_over(self, office: Office) -> None:
        """Nothing proves whose the next one is."""
        await office.add_by_hand()

        answer = await office.ask("reauthorize", expected_version="1.current")

        assert refusal(answer) == (409, "act_refused")
        assert "rebind" in answer.json()["detail"]

    async def test_of_another_version(self, office: Office) -> None:
        """It was looked at before somebody else connected it (C406)."""
        await office.connect()

        answer = await office.ask("reauthorize", expected_version="2.current")

        assert refusal(answer) == (409, "version_moved")
