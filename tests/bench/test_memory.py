"""What `./dev bench memory` says, on too few effects for the figures to mean anything."""

import json
import subprocess
import sys
from pathlib import Path

from tests.bench import memory

_ROOT = Path(__file__).parents[2]


def test_a_short_run_ends_with_ten_samples(tmp_path: Path) -> None:
    """It ends only if every effect was settled and sent once; what is held grows, but is read."""
    target = tmp_path / "memory.json"

    # In a process of its own: it is the process that is measured.
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench", "memory", "--effects", "20", "--json", str(target)],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    # A process that has only begun still grows; whether it did so too much is in the report.
    assert done.returncode in (0, 1), done.stderr[-2000:]
    report = json.loads(target.read_text(encoding="utf-8"))
    assert [sample["effects"] for sample in report["samples"]] == list(range(2, 21, 2))
    assert all(sample["mib"] > 10 for sample in report["samples"])
    assert done.returncode == (1 if report["ratio"] > memory.RATIO_MAX else 0)


def test_what_grows_too_much_is_a_fault() -> None:
    """A bound that nothing can break guards nothing."""
    plan = memory.Plan(effects=20)
    samples = [{"effects": 2, "mib": 100.0}, {"effects": 20, "mib": 120.0}]

    assert memory.report_of(plan, samples)["faults"] == []
    samples[-1]["mib"] = 121.0
    assert len(memory.report_of(plan, samples)["faults"]) == 1
