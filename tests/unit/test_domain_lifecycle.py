"""Both state machines, held against the contract's own data, row by row."""

import contextlib
import json
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from oncefence.domain.errors import InvalidTransition
from oncefence.domain.execution import EXECUTION, ExecutionStatus
from oncefence.domain.lifecycle import Lifecycle
from oncefence.domain.lookup import WAITS_SECONDS
from oncefence.domain.work_item import ACTIVE, NON_EXECUTABLE, WORK_ITEM, WorkItemState

CONTRACT: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "data" / "transitions.json").read_text(encoding="utf-8")
)
BOTH = pytest.mark.parametrize("lifecycle", [EXECUTION, WORK_ITEM], ids=lambda each: each.name)


@BOTH
class TestBothLifecycles:
    def test_have_the_moves_of_the_contract(self, lifecycle: Lifecycle) -> None:
        """Row by row, in its order: source, target, trigger and who may move (C45, C62)."""
        contract = [
            (row["source"], row["target"], row["trigger"], row["actor"])
            for row in CONTRACT[lifecycle.name]["transitions"]
        ]

        assert contract == [
            (row.source, row.target, row.trigger, row.actor) for row in lifecycle.transitions
        ]

    def test_have_the_states_of_the_contract(self, lifecycle: Lifecycle) -> None:
        """First state, all states and the states that end it (C44, C61)."""
        contract = CONTRACT[lifecycle.name]

        assert list(lifecycle.states) == contract["states"]
        assert lifecycle.initial == contract["initial"]
        assert sorted(lifecycle.final) == sorted(contract.get("settled") or contract["terminal"])

    def test_know_a_move_by_source_target_and_trigger(self, lifecycle: Lifecycle) -> None:
        """Two rows of one key could not be told apart."""
        keys = Counter((row.source, row.target, row.trigger) for row in lifecycle.transitions)

        assert [key for key, count in keys.items() if count > 1] == []

    def test_say_what_each_guard_means(self, lifecycle: Lifecycle) -> None:
        """A guard without a meaning is a name; a meaning without a guard is a leftover."""
        used = {row.guard for row in lifecycle.transitions}

        assert used == set(lifecycle.guards)
        assert all(
            meaning.endswith(".") and "\n" not in meaning for meaning in lifecycle.guards.values()
        )
        assert len(set(lifecycle.guards.values())) == len(lifecycle.guards)

    def test_name_guards_in_words_of_their_own(self, lifecycle: Lifecycle) -> None:
        """A predicate's name can be used in code; a sentence of the contract cannot."""
        assert all(name.isidentifier() and name.islower() for name in lifecycle.guards)

    def test_let_through_exactly_the_listed_moves(self, lifecycle: Lifecycle) -> None:
        """Checked before each write, over the whole product of states and triggers (C46, C63)."""
        listed = {(row.source, row.target, row.trigger) for row in lifecycle.transitions}
        triggers = {row.trigger for row in lifecycle.transitions} | {"create", "made_up"}
        passed = set()
        for move in product(lifecycle.states, lifecycle.states, triggers):
            with contextlib.suppress(InvalidTransition):
                row = lifecycle.check(*move)
                assert (row.source, row.target, row.trigger) == move
                passed.add(tuple(map(str, move)))

        assert passed == listed

    def test_say_which_move_they_refuse(self, lifecycle: Lifecycle) -> None:
        """An alarm without the move in it would be searched for in the dark."""
        with pytest.raises(InvalidTransition) as refused:
            lifecycle.check(lifecycle.initial, lifecycle.initial, "made_up")

        assert (refused.value.lifecycle, refused.value.trigger) == (lifecycle.name, "made_up")
        assert str(refused.value).startswith(f"{lifecycle.name}: no move ")

    def test_build_the_where_of_a_move_from_its_sources(self, lifecycle: Lifecycle) -> None:
        """The statement may find the row in no state that the lifecycle does not name."""
        for row in lifecycle.transitions:
            sources = lifecycle.sources(row.target, row.trigger)

            assert row.source in sources
            assert all(lifecycle.check(each, row.target, row.trigger) for each in sources)
        assert lifecycle.sources(lifecycle.initial, "made_up") == ()

    def test_are_left_from_every_state_that_is_not_final(self, lifecycle: Lifecycle) -> None:
        """Nothing is ever silently idle: a state without a way out would hold work for good."""
        left = {row.source for row in lifecycle.transitions}

        assert set(map(str, lifecycle.states)) - left <= set(lifecycle.final)


def refused_pairs(lifecycle: Lifecycle) -> int:
    return sum(
        source != target and not lifecycle.permits(source, target)
        for source, target in product(lifecycle.states, repeat=2)
    )


def test_112_pairs_of_different_states_are_refused() -> None:
    """36 of executions and 76 of items: the number is part of the contract."""
    assert (refused_pairs(EXECUTION), refused_pairs(WORK_ITEM)) == (36, 76)


class TestExecutions:
    @pytest.mark.parametrize(("source", "target"), CONTRACT["execution"]["refused_by_name"])
    def test_refuse_what_the_contract_names(self, source: str, target: str) -> None:
        """These five would break the promise itself (C63)."""
        assert not EXECUTION.permits(source, target)

    def test_never_leave_success_or_cancellation(self) -> None:
        """What a caller was told as final stays, but for a retry that a person orders."""
        left = {row.source for row in EXECUTION.transitions} & EXECUTION.final

        assert left == {"failed"}
        assert EXECUTION.sources("retrying", "operator_retry") == (ExecutionStatus.FAILED,)


class TestWorkItems:
    def test_are_never_left_once_terminal(self) -> None:
        """A replay makes a new item (C48)."""
        assert {row.source for row in WORK_ITEM.transitions} & WORK_ITEM.final == set()

    def test_that_wait_for_the_old_owner_are_active_and_never_claimed(self) -> None:
        """They hold the one place of their command, and nobody runs them (C52)."""
        assert frozenset(CONTRACT["work_item"]["non_executable"]) == NON_EXECUTABLE
        assert frozenset(map(str, WorkItemState)) - WORK_ITEM.final == ACTIVE
        assert not any(
            row.target == "processing"
            for row in WORK_ITEM.transitions
            if row.source in NON_EXECUTABLE
        )


def test_the_waits_of_lookups_are_those_of_the_contract() -> None:
    """Five tries over 7.2 hours, then a person."""
    assert list(WAITS_SECONDS) == CONTRACT["execution"]["lookup_waits_seconds"]
