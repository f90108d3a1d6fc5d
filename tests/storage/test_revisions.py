"""Revisions of a binding: published ahead, made current, rolled back, and never mixed."""

import asyncpg
import pytest

from oncefence.catalog.view import IntegrationBindingView
from oncefence.domain.errors import ActRefused, NoSuchTarget, VersionMoved
from oncefence.domain.ids import InstallationId, OrgId, ViewId
from oncefence.domain.replay import ReplayVerdict
from oncefence.storage.phases.activate_view import Activation, activate_view
from oncefence.storage.phases.list_views import ListedView, ViewState, list_views
from oncefence.storage.phases.publish_view import Publication, publish_view
from oncefence.storage.phases.read_revisions import read_revisions
from oncefence.storage.phases.read_view import RevisionMixed, ViewShelf
from tests.storage.guard_answers import refusal
from tests.storage.guard_statements import FOREIGN_KEY, ORG, copy, item
from tests.storage.racing import all_at_once
from tests.support.repairs import Repairs
from tests.support.world import INSTALLATION, OPERATION, Accepted, World, example_view

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAME = "lead-title"
TABLES = ("binding_views", "view_activations", "audit")


def another_view() -> IntegrationBindingView:
    return example_view(is_sensitive=True)


async def publish(
    world: World,
    view: IntegrationBindingView | None = None,
    *,
    activate: bool = False,
    note: str | None = None,
    expected_current: int | None = None,
) -> Publication:
    return await publish_view(
        world.engine,
        world.org,
        INSTALLATION,
        view or another_view(),
        actor="tests",
        activate=activate,
        note=note,
        expected_current=expected_current,
    )


async def activate(
    world: World, revision: int, *, expecting: int, name: str = NAME, note: str = "why"
) -> Activation:
    return await activate_view(
        world.engine,
        world.org,
        INSTALLATION,
        name,
        revision,
        expected_current=expecting,
        actor="ann",
        note=note,
    )


async def revision_of(world: World, accepted: Accepted) -> int:
    return int((await world.item(accepted.work)).view_revision)


async def counts(world: World) -> list[int]:
    return [await world.count(table) for table in TABLES]


async def states(world: World) -> dict[int, ViewState]:
    return {each.revision: each.state for each in await list_views(world.engine, world.org)}


class TestPublishing:
    async def test_makes_the_first_revision_of_a_name_current(self, world: World) -> None:
        """A world can be made and used without another verb."""
        published = await publish(world, example_view().model_copy(update={"name": "twin"}))

        assert (published.revision, published.is_current) == (1, True)

    async def test_leaves_new_commands_with_the_revision_that_is_current(
        self, world: World
    ) -> None:
        """A revision may be published ahead of the hour at which it is to be used (C561)."""
        published = await publish(world)

        assert (published.revision, published.current_revision) == (2, 1)
        assert await revision_of(world, await world.accept_command()) == 1
        assert await states(world) == {1: ViewState.CURRENT, 2: ViewState.PUBLISHED}

    async def test_can_make_it_current_at_once(self, world: World) -> None:
        """Where nothing is to be looked at in between, one verb is enough."""
        published = await publish(world, activate=True, note="as agreed")

        assert published.is_current
        assert await revision_of(world, await world.accept_command()) == 2
        (newest,) = (await list_views(world.engine, world.org))[:1]
        assert (newest.activation_note, newest.activated_by) == ("as agreed", "tests")

    async def test_of_the_same_content_only_activates_it(self, world: World) -> None:
        """What was published ahead can be activated by the file that it was published from."""
        await publish(world)

        again = await publish(world, activate=True)

        assert (again.is_new, again.revision, again.is_current) == (False, 2, True)
        assert await world.count("binding_views") == 2

    async def test_does_not_bring_back_what_was_rolled_back(self, world: World) -> None:
        """A script that publishes on each deploy would undo what a person did in an emergency."""
        await publish(world, activate=True)
        await activate(world, 1, expecting=2)
        before = await counts(world)

        with pytest.raises(ActRefused, match="oncefence catalog activate") as refused:
            await publish(world, activate=True)
        unasked = await publish(world)

        assert refused.value.verdict == "rolled_back"
        assert (unasked.is_new, unasked.current_revision) == (False, 1)
        assert await counts(world) == before

    @pytest.mark.parametrize("activating", [True, False])
    async def test_is_refused_where_another_revision_is_current_than_expected(
        self, world: World, activating: bool
    ) -> None:
        """Two people who publish at once do not overwrite each other unseen (C406)."""
        await publish(world, activate=True)
        before = await counts(world)

        with pytest.raises(VersionMoved, match="at version 2 and not at 1"):
            await publish(world, example_view(), activate=activating, expected_current=1)

        assert await counts(world) == before

    async def test_goes_on_from_the_revision_before_it(self, world: World) -> None:
        """From any view one can go back, digest by digest, to the files that it was made of."""
        await publish(world)
        await publish(world, example_view())

        third, second, first = await list_views(world.engine, world.org)

        assert [first.follows_digest, second.follows_digest, third.follows_digest] == [
            None,
            first.digest,
            second.digest,
        ]
        assert third.digest == first.digest == example_view().digest
        assert (third.pack_digest, third.binding_digest) == (
            example_view().pack_digest,
            example_view().binding_digest,
        )
        assert second.binding_digest != first.binding_digest
        assert third.published_by == "tests"


class TestActivating:
    async def test_gives_new_commands_the_revision_and_leaves_old_ones_theirs(
        self, world: World
    ) -> None:
        """Two revisions live side by side while old work finishes (C561)."""
        before = await world.accept_command("lead-1")
        await publish(world)

        done = await activate(world, 2, expecting=1)
        after = await world.accept_command("lead-2")

        assert (done.revision, done.replaced_revision, done.is_new) == (2, 1, True)
        assert [await revision_of(world, each) for each in (before, after)] == [1, 2]
        assert (await world.start(before)).view_digest == example_view().digest
        assert (await world.start(after)).view_digest == another_view().digest

    async def test_goes_back_to_an_older_revision(self, world: World) -> None:
        """The way back is the way forth, and both are on record."""
        await publish(world, activate=True)

        await activate(world, 1, expecting=2, note="2 is wrong")

        assert await revision_of(world, await world.accept_command()) == 1
        assert await states(world) == {1: ViewState.CURRENT, 2: ViewState.SUPERSEDED}
        rows = await world.sql(
            "SELECT actor, act, note, expected_version FROM oncefence.audit WHERE org_id = :org"
            " AND act = 'catalog.activate' ORDER BY sequence"
        )
        assert [tuple(row) for row in rows] == [
            ("tests", "catalog.activate", "the first revision of its name", None),
            ("tests", "catalog.activate", "activated when it was published", "1"),
            ("ann", "catalog.activate", "2 is wrong", "2"),
        ]

    async def test_is_refused_where_another_one_is_current_than_was_looked_at(
        self, world: World
    ) -> None:
        """Whoever decides on what stood an hour ago decides on nothing (C406)."""
        await publish(world)
        await publish(world, example_view(), activate=True)
        before = await counts(world)

        with pytest.raises(VersionMoved, match="binding lead-title is at version 3 and not at 1"):
            await activate(world, 2, expecting=1)

        assert await counts(world) == before

    async def test_of_a_revision_that_is_not_there_says_what_is(self, world: World) -> None:
        """One message with the way to the right word."""
        with pytest.raises(NoSuchTarget, match="no revision of lead-title '7': its newest is 1"):
            await activate(world, 7, expecting=1)
        with pytest.raises(NoSuchTarget, match="no published binding 'other'"):
            await activate(world, 1, expecting=1, name="other")

    async def test_again_after_a_lost_answer_is_the_same_act(self, world: World) -> None:
        """It is on record once, and whoever repeats it is not told that it failed."""
        await publish(world)
        await activate(world, 2, expecting=1)
        before = await counts(world)

        again = await activate(world, 2, expecting=1)
        as_it_is = await activate(world, 2, expecting=2)

        assert (again.replaced_revision, again.is_new, as_it_is.is_new) == (1, False, False)
        assert await counts(world) == before

    async def test_by_two_at_once_is_done_by_one(self, world: World) -> None:
        """Both looked at the same revision; the second one is told that it moved."""
        await publish(world)
        await publish(world, example_view())

        ends = await all_at_once(
            world.database,
            [activate(world, revision, expecting=1) for revision in (2, 3)],
            "SELECT pg_advisory_xact_lock(hashtextextended('publish:' || $1, 0))",
            world.org,
        )

        assert sorted(type(end).__name__ for end in ends) == ["Activation", "VersionMoved"]
        assert await world.count("view_activations") == 2


class TestTheList:
    async def test_counts_what_still_pins_a_revision(self, world: World) -> None:
        """It says when nothing of an old revision is left to be done."""
        old = await world.accept_command("lead-1")
        done, _ = await world.a_running_command("lead-2")
        await world.an_unknown_command("lead-3")
        await publish(world, activate=True)
        await world.accept_command("lead-4")

        def live(views: list[ListedView]) -> dict[int, int]:
            return {each.revision: each.live_commands for each in views}

        before = live(list(await list_views(world.engine, world.org)))
        await world.sql(
            "UPDATE oncefence.work_items SET state = 'cancelled', via = 'cancel'"
            " WHERE org_id = :org AND work_id = :work",
            work=old.work,
        )
        await world.sql(
            "UPDATE oncefence.executions SET status = 'cancelled', settlements = 1,"
            " via = 'cancel_before_first_attempt' WHERE org_id = :org AND execution_id = :it",
            it=old.execution,
        )

        assert before == {1: 3, 2: 1}
        assert live(list(await list_views(world.engine, world.org))) == {1: 2, 2: 1}
        assert done is not None

    async def test_can_be_of_one_name_or_installation(self, world: World) -> None:
        """An org may have many."""
        await publish(world, example_view().model_copy(update={"name": "twin"}))

        of_twin = await list_views(world.engine, world.org, name="twin")
        elsewhere = await list_views(
            world.engine, world.org, installation=InstallationId("elsewhere")
        )

        assert [each.name for each in of_twin] == ["twin"]
        assert elsewhere == []

    async def test_of_an_org_that_nobody_made_is_refused(self, world: World) -> None:
        """A misspelt org must not read as one that has nothing."""
        with pytest.raises(NoSuchTarget, match="no org 'nowhere'"):
            await list_views(world.engine, OrgId("nowhere"))


class TestAReplay:
    async def test_is_judged_by_the_revision_that_is_current(self, world: World) -> None:
        """Not by one that waits, nor by the newest after a rollback (C402)."""
        repairs = Repairs(world=world)
        refused = (await repairs.a_refused_command()).work
        await publish(world, without_the_operation())
        verdicts = [await repairs.verdict(refused)]

        for revision, expecting in ((2, 1), (1, 2)):
            await activate(world, revision, expecting=expecting)
            verdicts.append(await repairs.verdict(refused))

        assert verdicts == [
            ReplayVerdict.SAFE_TO_REPLAY,
            ReplayVerdict.OPERATION_GONE,
            ReplayVerdict.SAFE_TO_REPLAY,
        ]

    async def test_that_was_planned_says_what_it_pins_and_what_is_current(
        self, world: World
    ) -> None:
        """And is planned anew where another revision has become current since (C405)."""
        repairs = Repairs(world=world)
        await repairs.a_refused_command()
        await publish(world, activate=True)

        plan = await repairs.plan()
        await activate(world, 1, expecting=2)

        (line,) = plan.lines
        assert (line.pinned_revision, line.current_revision) == (1, 2)
        assert (line.pinned_digest, line.current_digest) == (
            example_view().digest,
            another_view().digest,
        )
        with pytest.raises(VersionMoved):
            await repairs.begin(plan.digest)


class TestReadingRevisions:
    async def test_gives_them_in_the_order_that_was_asked_for(self, world: World) -> None:
        """The current one by no number at all."""
        await publish(world)

        second, current = await read_revisions(
            world.engine, world.org, INSTALLATION, None, [2, None]
        )

        assert (second.listed.revision, second.content) == (2, another_view())
        assert (current.listed.revision, current.content) == (1, example_view())

    async def test_needs_a_name_where_there_are_several(self, world: World) -> None:
        """It is never guessed which one was meant."""
        await publish(world, example_view().model_copy(update={"name": "twin"}))

        with pytest.raises(NoSuchTarget, match="it has lead-title, twin; say which"):
            await read_revisions(world.engine, world.org, INSTALLATION, None, [None])
        with pytest.raises(NoSuchTarget, match="no revision of twin '2'"):
            await read_revisions(world.engine, world.org, INSTALLATION, "twin", [2])
        with pytest.raises(NoSuchTarget, match="no published binding 'other'"):
            await read_revisions(world.engine, world.org, INSTALLATION, "other", [None])


class TestAMixture:
    @pytest.mark.parametrize("role", ["application", "owner"])
    async def test_of_view_and_digest_cannot_be_pinned(
        self, roles: dict[str, asyncpg.Connection], world: World, role: str
    ) -> None:
        """A row says which view it is of in four columns, and they are of one row (C519)."""
        accepted = await world.accept_command()
        await publish(world)
        ahead = (await list_views(world.engine, world.org))[0]
        known = {"$org": world.org, "$pending": str(accepted.work), "$new": str(accepted.command)}
        answers = {}
        for table, which, columns in (
            (
                "work_items",
                item("pending"),
                {
                    "view_id": str(ahead.view),
                    "view_digest": ahead.digest,
                    "view_revision": 2,
                    "installation": "x",
                },
            ),
            (
                "commands",
                f"WHERE {ORG}",
                {"view_id": str(ahead.view), "view_digest": ahead.digest},
            ),
        ):
            fresh: dict[str, object] = (
                {"work_id": "$new", "family": "x"}
                if table == "work_items"
                else {"command_id": str(accepted.work), "handoff_key": "x"}
            )
            for column, value in columns.items():
                statement = copy(table, which, **fresh, **{column: value})
                for name, known_as in known.items():
                    statement = statement.replace(name, known_as)
                error = await refusal(roles[role], statement)
                answers[table, column] = (error.sqlstate, error.constraint_name)

        assert answers == {
            ("work_items", each): (FOREIGN_KEY, "items_pin_a_whole_view")
            for each in ("view_id", "view_digest", "view_revision", "installation")
        } | {
            ("commands", each): (FOREIGN_KEY, "commands_pin_a_whole_view")
            for each in ("view_id", "view_digest")
        }

    async def test_is_refused_before_anything_is_done_by_it(self, world: World) -> None:
        """What a process holds in its memory is held against what the command pinned (C519)."""
        shelf = ViewShelf(world.engine)
        (listed,) = await list_views(world.engine, world.org)

        with pytest.raises(RevisionMixed, match="nothing is sent by another revision"):
            await shelf.view(world.org, listed.view, another_view().digest)
        known = await shelf.view(world.org, listed.view, listed.digest)
        with pytest.raises(RevisionMixed):
            await shelf.view(world.org, listed.view, another_view().digest)

        assert known == example_view()

    async def test_of_stored_text_and_pinned_digest_is_seen(self, world: World) -> None:
        """Whoever rewrites a view behind its guards changes nothing that is sent (C561)."""
        (listed,) = await list_views(world.engine, world.org)
        await rewrite(world, listed.view, another_view().to_json())

        with pytest.raises(RevisionMixed) as refused:
            await ViewShelf(world.engine).view(world.org, listed.view, listed.digest)

        assert (refused.value.pinned, refused.value.found) == (
            listed.digest,
            another_view().digest,
        )

    async def test_is_not_offered_by_a_revision_that_is_not_current(self, world: World) -> None:
        """An operation that only the next revision has is not accepted yet."""
        await publish(world, without_the_operation())
        await world.accept_command()
        await activate(world, 2, expecting=1)

        with pytest.raises(NoSuchTarget, match=f"no operation '{OPERATION}'.*activate"):
            await world.accept_command("lead-2")


def without_the_operation() -> IntegrationBindingView:
    view = example_view()
    return view.model_copy(update={"operations": {"lead.other": view.operation(OPERATION)}})


async def rewrite(world: World, view: ViewId, content: str) -> None:
    connection = await asyncpg.connect(world.database.admin_url)
    try:
        async with connection.transaction():
            await connection.execute("SET LOCAL session_replication_role = replica")
            await connection.execute(
                "UPDATE oncefence.binding_views SET content = $1"
                " WHERE org_id = $2 AND view_id = $3",
                content,
                world.org,
                view,
            )
    finally:
        await connection.close()
