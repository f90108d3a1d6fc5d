"""That every mutant can still be tried: its text is there once, and its tests and clauses exist."""

import ast
from pathlib import Path

import pytest

from tests.mutants.mutant import chosen, flaws, load, read
from tests.mutants.trial import Outcomes, Trial, Verdict, confirmed, judged
from tests.tidy import tree
from tests.tidy.test_documents import CONTRACT, defined_in

LEAST = 40

A_MUTANT = """
[[mutant]]
name = "a-rule"
clauses = ["C1"]
file = "src/a.py"
find = "a = 1"
replace = "a = 2"
tests = ["tests/unit/test_a.py::TestA::test_b"]
"""


def tried_in(folder: Path, source: str, test: str) -> list[str]:
    """The flaws of the mutant above in a tree that holds these two files."""
    for name, text in (("src/a.py", source), ("tests/unit/test_a.py", test)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return list(flaws(read(A_MUTANT)[0], folder))


def test_every_mutant_can_be_tried() -> None:
    """One whose text has moved breaks nothing, and the rule that it stood for is not tried."""
    found = [flaw for mutant in load() for flaw in flaws(mutant)]

    assert found == [], "change the mutant along with the code; see docs/contributing.md"


def test_there_are_enough_of_them_and_each_has_a_name() -> None:
    """Two of one name are one in every report."""
    names = [mutant.name for mutant in load()]

    assert len(names) >= LEAST
    assert sorted(set(names)) == sorted(names), "give each mutant a name of its own"


def test_every_mutant_breaks_a_clause_of_the_contract() -> None:
    """A change that breaks no rule may well survive, and tells nothing."""
    clauses = {f"C{number}" for number in defined_in(tree.text(CONTRACT))}

    unknown = {
        mutant.name: sorted(missing)
        for mutant in load()
        if (missing := set(mutant.clauses) - clauses)
    }

    assert unknown == {}, f"name a clause that {CONTRACT} defines"


def test_every_mutant_of_python_is_python() -> None:
    """What does not even parse is refused by every test, and proves none of them."""
    for mutant in load():
        if mutant.file.endswith(".py"):
            ast.parse(mutant.applied_to(tree.text(mutant.file)), mutant.name)


@pytest.mark.parametrize(
    ("source", "test"),
    [
        ("a = 3\n", "class TestA:\n    def test_b(self): ...\n"),
        ("a = 1\na = 1\n", "class TestA:\n    def test_b(self): ...\n"),
        ("a = 1\n", "class TestA:\n    def test_c(self): ...\n"),
    ],
)
def test_a_flaw_is_seen(tmp_path: Path, source: str, test: str) -> None:
    """A rule that cannot fail guards nothing."""
    assert tried_in(tmp_path, "a = 1\n", "class TestA:\n    def test_b(self): ...\n") == []
    assert len(tried_in(tmp_path, source, test)) == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"C1"', '"1"'),
        ('clauses = ["C1"]', "clauses = []"),
        ("src/a.py", "tests/a.py"),
        ("a-rule", "A rule"),
        ('tests = ["tests/unit/test_a.py::TestA::test_b"]', "tests = []"),
        ('find = "a = 1"', 'found = "a = 1"'),
    ],
)
def test_a_mutant_of_another_form_is_refused(old: str, new: str) -> None:
    """What is misspelt would be tried as something else, or not at all."""
    with pytest.raises(ValueError, match=r"mutants\.toml"):
        read(A_MUTANT.replace(old, new))


def test_a_name_that_no_mutant_has_is_refused() -> None:
    """Nothing tried is nothing killed, and must not look like success."""
    with pytest.raises(ValueError, match="no-such"):
        chosen(read(A_MUTANT), ["no-such"])


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (Outcomes(failed=("t",)), Verdict.KILLED),
        (Outcomes(failed=("t",), errors=("u",)), Verdict.KILLED),
        (Outcomes(passed=frozenset({"t"}), errors=("u",)), Verdict.INVALID),
        (Outcomes(trouble="not over"), Verdict.INVALID),
        (Outcomes(), Verdict.INVALID),
        (Outcomes(passed=frozenset({"t"})), Verdict.SURVIVED),
    ],
)
def test_only_a_test_that_fails_kills(found: Outcomes, verdict: Verdict) -> None:
    """Code that does not import, or breaks a fixture, is noticed by any test whatever."""
    assert judged(found)[0] is verdict


def test_a_test_that_fails_anyway_kills_nobody() -> None:
    """It would fail with every mutant; a parameter that the code made may be called otherwise."""
    trial = Trial(
        mutant=read(A_MUTANT)[0],
        verdict=Verdict.KILLED,
        killed_by="tests/a.py::test_b[x]",
        reason=None,
        seconds=1.0,
    )

    def verdict(passed: set[str], failed: tuple[str, ...] = ()) -> Verdict:
        return confirmed(trial, Outcomes(passed=frozenset(passed), failed=failed)).verdict

    assert verdict({"tests/a.py::test_b[y]"}) is Verdict.KILLED
    assert verdict({"tests/a.py::test_b[y]"}, ("tests/a.py::test_b[x]",)) is Verdict.INVALID
    assert verdict(set()) is Verdict.INVALID
