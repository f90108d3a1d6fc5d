"""What the demo refuses before it starts anything, and how it says so."""

import json
from pathlib import Path

import pytest

from oncefence.app.cli.exits import ExitCode
from oncefence.app.cli.program import main
from oncefence.app.demo import folders
from oncefence.app.demo.run import LINES_MAX

LINE = json.dumps(
    {
        "outbox_id": "one",
        "operation": "lead.title.push",
        "subject": "lead:1",
        "payload": {"title": "Buyer"},
    }
)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refusal(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The one message of a run that is refused before anything was made."""
    code = main(["demo", *map(str, words)])
    assert code == ExitCode.REFUSED
    assert not Path(".oncefence").exists()
    return capsys.readouterr().err


def test_a_file_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong name is told at once, and not after servers were started for it."""
    assert "absent.jsonl: cannot be read (No such file" in refusal(capsys, "absent.jsonl")


def test_a_folder_in_place_of_a_file_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder is no list of commands."""
    assert "cannot be read (Is a directory)" in refusal(capsys, tmp_path)


def test_an_empty_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """There is nothing to show."""
    (tmp_path / "empty.jsonl").write_text("\n \n")

    assert "holds no line" in refusal(capsys, "empty.jsonl")


def test_a_huge_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It would run for hours; the message names the way that has no such bound."""
    (tmp_path / "huge.jsonl").write_text(f"{LINE}\n" * (LINES_MAX + 1))

    message = refusal(capsys, "huge.jsonl")

    assert f"more than {LINES_MAX} lines" in message
    assert "oncefence submit" in message


def test_figures_that_could_not_be_written_are_refused_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A minute of work must not end without its result."""
    assert "--json: " in refusal(capsys, "--json", Path("no") / "such" / "folder.json")


def test_a_data_folder_that_holds_something_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each run has data of its own, and nobody's files are mixed with it."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")

    assert "is not an empty folder" in refusal(capsys, "--keep", "mine")


@pytest.mark.parametrize("scale", ["0", "2", "nan"])
def test_a_time_scale_that_cannot_be_is_refused(
    scale: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Time can be shortened, and neither stopped nor stretched."""
    code = main(["demo", "--time-scale", scale])

    assert code in (ExitCode.USAGE, ExitCode.REFUSED)
    assert not Path(".oncefence").exists()


class TestFolders:
    def test_of_earlier_runs_are_forgotten_beyond_the_newest(self) -> None:
        """A cluster each time would fill a disk; the last few stay to be looked at."""
        for day in range(10, 19):
            old = Path(".oncefence") / f"demo-202601{day}-120000"
            old.mkdir(parents=True)
            (old / "stack.json").write_text("{}")

        fresh = folders.fresh_folder()

        kept = sorted(folder.name for folder in Path(".oncefence").iterdir())
        assert len(kept) == folders.KEPT
        assert fresh.name in kept
        assert kept[0] == "demo-20260115-120000"

    def test_of_other_things_are_left_alone(self) -> None:
        """Only what a run has made itself is ever removed."""
        names = ("up", "demo-notes", *(f"demo-2026010{day}-120000" for day in range(1, 9)))
        for name in names:
            (Path(".oncefence") / name).mkdir(parents=True)

        folders.fresh_folder()

        assert set(names) <= {folder.name for folder in Path(".oncefence").iterdir()}

    def test_of_one_second_have_different_names(self) -> None:
        """Two runs that begin together do not meet."""
        assert folders.fresh_folder() != folders.fresh_folder()
