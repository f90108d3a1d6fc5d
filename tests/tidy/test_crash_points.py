"""Every transaction and every network call is a place where a crash can fall, and is tried."""

import pytest

from tests.crashgrid import points
from tests.tidy import tree

CALLERS = {
    "activities/oncefence/activities/attempt.py": "send",
    "activities/oncefence/activities/lookup.py": "lookup_read",
    "activities/oncefence/activities/tokens.py": "token_call",
}
"""Who calls `http_once`, and what the grid calls that."""

KEEPS_NOTHING = "src/oncefence/app/conform/"
"""Sends to certify a pack and has no rows, so there is nothing that a crash in it could break."""

A_PERSON_WAITS = "activities/oncefence/activities/account_calls.py"
"""Connects and ends accounts under no claim; `tests/connecting` interrupts it between its steps."""

THROUGH_ANOTHER = """
async def f():
    await g(engine, "a")
    await g(engine, "b")

async def g(engine, verb):
    await run_phase(verb, transaction)
"""


def callers_of_the_wire() -> set[str]:
    return {
        name
        for name, source in tree.code().items()
        if "oncefence.activities.http_once.http_once" in tree.imported(source)
        and not name.startswith((KEEPS_NOTHING, A_PERSON_WAITS))
    }


def loose_transactions() -> set[str]:
    return {
        path.stem
        for path in points.PHASES.glob("*.py")
        if points.transactions_outside_of_run_phase(path.read_text(encoding="utf-8"))
    }


def test_every_transaction_is_struck_or_says_why_not() -> None:
    """A transaction that the crash grid does not know is one where a crash was never tried."""
    verbs = points.verbs_in_code()

    unknown = {
        verb: module
        for verb, module in verbs.items()
        if verb not in points.VERBS and verb not in points.NOT_STRUCK
    }

    assert unknown == {}, (
        "give the verb a story in tests/crashgrid (VERBS), or a reason in NOT_STRUCK"
    )


def test_the_grid_names_no_transaction_that_is_gone() -> None:
    """A point of a verb that no longer exists would never fire, and its reason misleads."""
    named = {*points.VERBS, *points.NOT_STRUCK}

    assert named - set(points.verbs_in_code()) == set(), "take it off tests/crashgrid/points.py"


def test_no_transaction_is_both_struck_and_left_out() -> None:
    """One of the two would be untrue."""
    assert set(points.VERBS) & set(points.NOT_STRUCK) == set()


def test_transactions_outside_of_run_phase_say_why() -> None:
    """The grid strikes where `run_phase` is called; what goes around it, it cannot see."""
    assert loose_transactions() == set(points.NO_VERB), (
        "run it by run_phase, or give the reason in NO_VERB of tests/crashgrid/points.py"
    )


def test_every_network_call_is_struck() -> None:
    """A request that the grid does not know is one that was never interrupted."""
    assert callers_of_the_wire() == set(CALLERS), "give the call its points in tests/crashgrid"
    assert set(CALLERS.values()) == set(points.CALLS)


def test_a_transaction_has_four_points_and_a_call_five() -> None:
    """Before, inside, commit lost, after; and each step of a request that can be told apart."""
    assert set(points.points_of("claim")) == {
        "claim.before",
        "claim.inside",
        "claim.commit_lost",
        "claim.after",
    }
    assert len(points.points_of("send")) == 5
    assert len(set(points.POINTS)) == 4 * len(points.VERBS) + 5 * len(points.CALLS)


@pytest.mark.parametrize(
    ("source", "verbs"),
    [
        ("async def f():\n    return await run_phase('claim', transaction)", {"claim"}),
        ("async def f():\n    await engine.run_phase('renew', transaction)", {"renew"}),
        (
            THROUGH_ANOTHER,
            {"a", "b"},
        ),
    ],
)
def test_a_verb_is_seen_in_every_form(source: str, verbs: set[str]) -> None:
    """A rule that cannot fail guards nothing."""
    assert points.verbs_in(source) == verbs


def test_a_verb_that_is_computed_is_refused() -> None:
    """Nobody could say which points it has."""
    with pytest.raises(AssertionError, match="plain verb"):
        points.verbs_in("async def f(name):\n    await run_phase('a' + name, transaction)")


def test_a_transaction_around_run_phase_is_seen() -> None:
    """A rule that cannot fail guards nothing; what `run_phase` runs is no such thing."""
    loose = "async def f(engine):\n    async with engine.begin() as c:\n        await c.go()"
    run = (
        "async def g(engine):\n    async def f():\n        async with engine.begin() as c:\n"
        "            await c.go()\n    await run_phase('go', f)"
    )

    assert points.transactions_outside_of_run_phase(loose) == ["f"]
    assert points.transactions_outside_of_run_phase(run) == []
