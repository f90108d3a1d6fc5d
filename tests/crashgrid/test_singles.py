"""The crash grid, each point once; `./dev crashgrid --singles` tries each in every way."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    # A process of its own: it forks, and pytest's has loops and threads.
    path = tmp_path_factory.mktemp("crashgrid") / "figures.json"
    done = subprocess.run(
        [sys.executable, "-m", "tests.crashgrid", "--once", "--json", path],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=540,
    )
    assert path.exists(), done.stderr
    read: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return read | {"exit_code": done.returncode, "said": done.stdout[-4000:]}


def test_nothing_is_done_twice_or_lost_at_any_point(figures: dict[str, Any]) -> None:
    """One crash anywhere, with any fault: the promise holds (C1, C2, C3)."""
    assert figures["violation_rows"] == [], figures["said"]
    assert figures["exit_code"] == 0, figures["said"]


def test_every_point_was_reached(figures: dict[str, Any]) -> None:
    """A point that never fired proves nothing about what happens there."""
    assert figures["points_unfired"] == []
    assert figures["points_fired"] == figures["points"] >= 20
    assert figures["cells"] >= 150


def test_records_were_made(figures: dict[str, Any]) -> None:
    """Creates that come to nothing would keep every promise about records (C342)."""
    assert figures["records_made"] >= 40


def test_where_nothing_went_wrong_nothing_is_unknown(figures: dict[str, Any]) -> None:
    """A system that parks everything is safe and useless."""
    assert figures["faultless_cells"] >= 8
    assert figures["unknown_rate_faultless"] == 0


def test_unknowns_are_settled_by_lookup(figures: dict[str, Any]) -> None:
    """Where the provider can be asked, the answer settles it and not a person."""
    assert figures["lookupable_unknowns"] >= 60
    assert figures["settled_by_lookup"] >= 0.99 * figures["lookupable_unknowns"]
