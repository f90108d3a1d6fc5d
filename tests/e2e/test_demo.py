"""The demo from outside: what it proves, what it counts, and that it leaves nothing behind."""

import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from oncefence.app.demo.faults import NEEDS_ATTENTION_SCRIPTED
from oncefence.app.examples import CHANGES, example
from oncefence.app.local_postgres import LocalPostgres
from tests.support.program import command, environment, in_shell, lines_of, processes_of, running
from tests.support.servers import own_folder

KEYS = [
    *("commands", "accepted", "refused", "provider_changes", "duplicates", "lost", "by_status"),
    *("unknowns", "unknowns_settled_by_lookup", "needs_attention", "faults_fired"),
    *("worker_kills", "attempts_in_flight_at_kill", "violations", "violation_rows"),
]
KILL = re.compile(r"SIGKILL\) with (\d+) sends? in flight, (\d+) of them applied and (\d+) not")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run that is over."""

    folder: Path
    code: int
    said: str
    figures: Mapping[str, Any]
    left: list[str]

    @property
    def ledger(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in lines_of(self.folder / "simulator" / "ledger.jsonl")]

    @property
    def titles(self) -> list[str]:
        """The title of every change that the provider made for a request."""
        return [row["properties"]["jobtitle"] for row in self.ledger if row["kind"] == "change"]


def run_demo(place: Path, *words: object) -> Run:
    folder, figures = place / "run", place / "figures.json"
    done = subprocess.run(
        command("demo", *words, "--keep", folder, "--json", figures),
        env=environment(),
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=240,
    )
    assert figures.exists(), done.stdout
    return Run(
        folder=folder,
        code=done.returncode,
        said=done.stdout,
        figures=json.loads(figures.read_text()),
        left=processes_of(place),
    )


@pytest.fixture(scope="module")
def runs() -> Iterator[tuple[Run, Run]]:
    """The example, and the changed one beside it: most of either is waiting."""
    with own_folder() as place, own_folder() as other, ThreadPoolExecutor() as threads:
        plain = threads.submit(run_demo, place)
        changed = threads.submit(run_demo, other, changed_file(other), "--seed", 7)
        yield plain.result(), changed.result()


@pytest.fixture(scope="module")
def example_run(runs: tuple[Run, Run]) -> Run:
    return runs[0]


@pytest.fixture(scope="module")
def changed_run(runs: tuple[Run, Run]) -> Run:
    return runs[1]


def changed_file(folder: Path) -> Path:
    """The example without its first line, with another title in its second, and a bad line more."""
    lines = [json.loads(line) for line in lines_of(example(CHANGES))][1:]
    lines[0]["payload"]["title"] = "A title of our own"
    texts = [json.dumps(line, ensure_ascii=False) for line in lines]
    file = folder / "changed.jsonl"
    file.write_text("\n".join([*texts, '{"outbox_id": "bad"}']) + "\n", encoding="utf-8")
    return file


class TestExample:
    def test_holds_the_invariants(self, example_run: Run) -> None:
        """Through all that breaks, nothing is sent twice and nothing is lost."""
        figures = example_run.figures

        assert example_run.code == 0, example_run.said
        assert (figures["duplicates"], figures["lost"], figures["violations"]) == (0, 0, 0)
        assert (figures["commands"], figures["accepted"], figures["refused"]) == (25, 25, 0)
        assert figures["violation_rows"] == []

    def test_kills_the_worker_with_sends_in_flight(self, example_run: Run) -> None:
        """Of what was in flight something was applied and something was not: no guess is right."""
        kills = [tuple(map(int, found)) for found in KILL.findall(example_run.said)]

        assert example_run.figures["worker_kills"] == len(kills) >= 1
        assert example_run.figures["attempts_in_flight_at_kill"] == sum(kill[0] for kill in kills)
        assert all(applied >= 1 and unapplied >= 1 for _, applied, unapplied in kills)

    def test_settles_unknowns_by_lookup_and_leaves_what_is_scripted(self, example_run: Run) -> None:
        """A system that leaves everything to a person would be safe and useless."""
        figures = example_run.figures

        assert figures["unknowns_settled_by_lookup"] >= 3
        assert figures["needs_attention"] == NEEDS_ATTENTION_SCRIPTED
        assert figures["unknowns"] == (
            figures["unknowns_settled_by_lookup"] + figures["needs_attention"]
        )
        assert figures["by_status"]["needs_attention"] == NEEDS_ATTENTION_SCRIPTED

    def test_breaks_in_every_way_that_it_promises(self, example_run: Run) -> None:
        """A fault that never fired proves nothing."""
        promised = {
            *("lost_answer", "reset_after_commit", "rate_limit_429", "refuse", "reject_400"),
            *("overwritten", "no_effect_hang", "reset_mid_read", "wrong_id", "cut_body", "drip"),
            *("server_error_before_commit", "server_error_after_commit"),
        }

        assert promised <= set(example_run.figures["faults_fired"])

    def test_counts_what_the_ledger_holds(self, example_run: Run) -> None:
        """The figures are read from the provider's own file, which this reads by itself."""
        kinds = Counter(row["kind"] for row in example_run.ledger)
        faults = Counter(row["fault"] for row in example_run.ledger if row["kind"] == "fault")

        assert example_run.figures["provider_changes"] == kinds["change"] > 0
        assert example_run.figures["faults_fired"] == dict(faults)

    def test_writes_figures_that_a_program_can_use(self, example_run: Run) -> None:
        """Counts are integers, and each list and object stands under its own name."""
        figures = example_run.figures
        nested = {"by_status": dict, "faults_fired": dict, "violation_rows": list}

        assert list(figures) == KEYS
        assert {name: type(figures[name]) for name in nested} == nested
        assert {type(figures[name]) for name in KEYS if name not in nested} == {int}
        assert {type(count) for count in figures["faults_fired"].values()} == {int}
        assert {type(count) for count in figures["by_status"].values()} == {int}
        assert sum(figures["by_status"].values()) == figures["commands"]

    def test_says_that_waits_are_shortened_and_where_to_look(self, example_run: Run) -> None:
        """Nobody may take its times for real ones, and everybody finds the page of Temporal."""
        assert "time runs at scale 0.001" in example_run.said
        assert re.search(r"Temporal's page: http://127\.0\.0\.1:\d+", example_run.said)
        assert example_run.said.count("oncefence show") >= 1

    def test_leaves_no_process_behind(self, example_run: Run) -> None:
        """Four servers and three workers were started; whoever watches gets the machine back."""
        assert example_run.left == []

    def test_can_be_looked_at_afterwards(self, example_run: Run) -> None:
        """The command that was refused its connection was sent again, for nothing had left."""
        settings = example_run.folder / "env.sh"
        with LocalPostgres(example_run.folder / "postgres"):
            audit = in_shell(
                settings, "audit", "--ledger", example_run.folder / "simulator" / "ledger.jsonl"
            )
            key = next(
                row["command"]
                for row in example_run.ledger
                if row["kind"] == "change" and row["properties"]["jobtitle"] == "Staff Engineer"
            )
            page = json.loads(in_shell(settings, "show", key, "--json").stdout)

        outcomes = [attempt["outcome"] for attempt in page["attempts"]]
        assert audit.returncode == 0, audit.stdout + audit.stderr
        assert outcomes[-1] == "ACCEPTED"
        assert set(outcomes[:-1]) == {"RETRYABLE_PRE_DISPATCH"}


class TestAnotherFile:
    def test_holds_the_invariants_under_faults_by_seed(self, changed_run: Run) -> None:
        """What it proves does not hang on one file and one script."""
        figures = changed_run.figures

        assert changed_run.code == 0, changed_run.said
        assert (figures["duplicates"], figures["lost"], figures["violations"]) == (0, 0, 0)
        assert figures["worker_kills"] >= 1
        assert figures["attempts_in_flight_at_kill"] >= 1

    def test_changes_the_figures_with_its_lines(self, changed_run: Run, example_run: Run) -> None:
        """A demo that printed what it always prints would be no proof."""
        assert changed_run.figures["commands"] == example_run.figures["commands"] - 1
        assert changed_run.figures["accepted"] == 24
        assert changed_run.figures["refused"] == 1
        assert "Head of Procurement" in example_run.titles
        assert "Head of Procurement" not in changed_run.titles
        assert "A title of our own" not in example_run.titles

    def test_tells_which_line_was_bad(self, changed_run: Run) -> None:
        """Whoever wrote the file finds the line by its number and mends it by the reason."""
        assert "line 25 was refused: the line lacks operation, subject, payload" in changed_run.said

    def test_leaves_no_process_behind(self, changed_run: Run) -> None:
        """Whatever the file was."""
        assert changed_run.left == []


def test_an_interrupted_run_stops_everything() -> None:
    """Ctrl-C in the middle of sends ends every process, and says that it was interrupted."""
    with own_folder() as place, running(place, "demo", "--keep", place / "run") as program:
        program.wait_for("another worker has taken its place")
        code = program.interrupt()

        assert code == 130, program.said
        assert "interrupted" in program.said
        assert processes_of(place) == []
