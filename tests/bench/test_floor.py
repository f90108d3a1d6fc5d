"""The benchmark measures what it says: its own checks hold, and its report is whole."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.measuring import percentile

_ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """A run too short for its figures to mean anything."""
    target = tmp_path_factory.mktemp("bench") / "floor.json"
    # In a process of its own, as `./dev bench` runs it: it starts servers and patches verbs.
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench", "floor", "--seconds", "1", "--json", str(target)],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, object] = json.loads(target.read_text(encoding="utf-8"))
    return found


def test_a_short_run_ends_with_the_three_cases(report: dict[str, object]) -> None:
    """A run only ends well if every effect was settled and sent once, and started eagerly."""
    cases = report["cases"]
    assert isinstance(cases, list)

    assert [case["name"] for case in cases] == ["local", "regular", "local_eager_floor"]
    for case in cases:
        assert case["ours"] > 0
        assert case["floor"] > 0
        assert case["ratio"] == pytest.approx(case["ours"] / case["floor"], rel=0.01)


def test_the_parts_of_an_effect_are_all_of_it(report: dict[str, object]) -> None:
    """A part that is missing would make every other one look larger than it is."""
    parts = report["where_the_time_goes"]
    assert isinstance(parts, list)

    assert [part["part"] for part in parts] == [
        "accept: read the view, freeze, seal",
        "accept: SQL",
        "Temporal: start, and on to the activity",
        "mark: SQL",
        "open request and token",
        "HTTP",
        "read and seal the answer",
        "settle: SQL",
        "successors: SQL",
        "Temporal: end of the activity, until the caller knows",
    ]
    assert sum(part["share"] for part in parts) == pytest.approx(1, abs=0.01)


def test_an_effect_costs_the_events_that_it_should(report: dict[str, object]) -> None:
    """Every further event of a history is paid for by the Temporal server, in each effect."""
    events = report["history_events_each"]
    assert isinstance(events, dict)

    assert len(events["local"]) <= 7
    assert len(events["regular"]) <= 12
    assert "activity_task_scheduled" not in events["local"]
    assert events["bare"] == events["bare_eager"]


def test_a_percentile_is_a_value_that_was_measured() -> None:
    """Between two values nothing was measured."""
    values = [float(number) for number in range(100, 0, -1)]

    assert percentile(values, 0.50) == 50.0
    assert percentile(values, 0.95) == 95.0
    assert percentile([7.0], 0.95) == 7.0
