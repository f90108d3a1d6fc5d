"""Who meets which fault in the demo: written down for the example, and dealt for other files."""

import json
from uuid import UUID, uuid5

import pytest

from oncefence.app.demo.faults import Plan, dealt, scripted
from oncefence.app.examples import CHANGES, example
from oncefence.app.handoff_file import HandoffLine, read_handoff_file
from oncefence.app.local_world import contacts_of
from oncefence.domain.ids import OutboxId
from oncefence.simulator.faults import parse_rules

HANGING = {"no_effect_hang", "overwritten", "reset_before_read"}


def lines(*subjects: str) -> list[HandoffLine]:
    return [
        HandoffLine(
            number=number,
            outbox=OutboxId(f"entry-{number}"),
            operation="lead.title.push",
            subject=subject,
            payload=b'{"title": "Buyer"}',
        )
        for number, subject in enumerate(subjects, start=1)
    ]


def command_of(line: HandoffLine) -> UUID:
    return uuid5(UUID(int=0), line.outbox)


def a_plan(given: list[HandoffLine], *, seed: int = 1) -> Plan:
    return dealt(given, contacts_of([line.subject for line in given]), command_of, seed=seed)


def the_example() -> list[HandoffLine]:
    return [line for line in read_handoff_file(example(CHANGES)) if isinstance(line, HandoffLine)]


class TestScripted:
    def test_knows_every_line_of_the_example_that_it_names(self) -> None:
        """A renamed line would silently lose its fault, and the demo its proof."""
        plan = scripted(the_example(), command_of)

        assert len(plan.rules) == 21
        assert sum(len(batch.lines) for batch in plan.batches) == len(the_example())

    def test_holds_a_change_before_and_one_after_at_each_kill(self) -> None:
        """The worker dies knowing neither; only so is every guess wrong for one of them."""
        plan = scripted(the_example(), command_of)

        for batch in plan.batches[:2]:
            held = [rule for rule in plan.rules if rule.get("hold") == batch.hold]
            assert sorted(str(rule["hold_at"]) for rule in held) == ["commit", "read"]
            assert len(batch.held) == 2

    def test_of_another_file_breaks_nothing(self) -> None:
        """The script names the example's lines, and a line that it does not know goes through."""
        assert scripted(lines("a", "b"), command_of).rules == []


class TestDealt:
    def test_is_the_same_for_the_same_seed_and_file(self) -> None:
        """Whoever sees something odd can see it again."""
        given = lines(*(f"lead:{number}" for number in range(40)))

        assert a_plan(given, seed=3) == a_plan(given, seed=3)
        assert a_plan(given, seed=3) != a_plan(given, seed=4)

    def test_parks_no_account(self) -> None:
        """All lines are of one account, and nobody is there to authorise it anew (C293)."""
        plan = a_plan(lines(*(f"lead:{number}" for number in range(2_000))))

        dealt_ones = {rule.get("fault") for rule in plan.rules}
        assert {"overwritten", "reject_400"} < dealt_ones, "so many lines meet every fault"
        assert "unauthorized_401" not in dealt_ones

    def test_gives_a_position_its_fault_whatever_the_lines_say(self) -> None:
        """The dice know seed and position alone."""
        one = a_plan(lines(*(f"lead:{number}" for number in range(40))))
        other = a_plan(lines(*(f"account:{number}" for number in range(40))))

        assert [rule.get("fault") for rule in one.rules] == [
            rule.get("fault") for rule in other.rules
        ]

    @pytest.mark.parametrize("count", range(1, 6))
    def test_hands_over_every_line_of_a_file_of_any_length(self, count: int) -> None:
        """No line is forgotten at the seam of the two batches."""
        given = lines(*(f"lead:{number}" for number in range(count)))

        handed = [line for batch in a_plan(given).batches for line in batch.lines]

        assert handed == given

    def test_holds_only_what_no_earlier_line_stands_before(self) -> None:
        """A held command that waits for its lane would never be in flight."""
        given = lines(*["lead:1"] * 10, "lead:2", "lead:3")

        held = [line for batch in a_plan(given).batches for line in batch.held]

        assert {line.number for line in held} <= {1, 11, 12}
        assert held

    @pytest.mark.parametrize("seed", range(20))
    def test_leaves_no_lane_standing_before_a_later_line(self, seed: int) -> None:
        """What only a person can settle is dealt to the last line of its subject."""
        given = lines(*["lead:1"] * 30)

        struck = {
            rule["command"]: rule["fault"]
            for rule in a_plan(given, seed=seed).rules
            if rule.get("fault") in HANGING
        }

        assert set(struck) <= {str(command_of(given[-1]))}

    @pytest.mark.parametrize("seed", range(5))
    def test_makes_rules_that_the_simulator_takes(self, seed: int) -> None:
        """A rule that is refused at the start would end the run before it began."""
        given = lines(*(f"lead:{number}" for number in range(200)))

        rules = a_plan(given, seed=seed).rules

        assert len(parse_rules(json.dumps(rules), source="the plan")) == len(rules) > 20
