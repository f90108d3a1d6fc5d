"""The mutants as data: which rule each one breaks, by which change, and which tests must see it."""

import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DATA = Path(__file__).with_name("mutants.toml")

CODE_FOLDERS = ("src", "storage", "activities", "workflows")
# What only compares texts sees every change and proves nothing about what the code does.
NO_BEHAVIOUR = ("tests/golden", "tests/tidy", "tests/mutants")

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_CLAUSE = re.compile(r"C[1-9][0-9]*")
_FIELDS = {"name", "clauses", "file", "find", "replace", "tests"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One rule broken by one change of one file, and the tests that are tried, cheapest first."""

    name: str
    clauses: tuple[str, ...]
    file: str
    find: str
    replace: str
    tests: tuple[str, ...]

    def applied_to(self, text: str) -> str:
        """
        The file's text with the rule broken.

        Raises:
            ValueError: The text to change is not there, or there more than once.
        """
        times = text.count(self.find)
        if times != 1:
            raise ValueError(
                f"{self.name}: its `find` occurs {times} times in {self.file}, and must occur once"
            )
        return text.replace(self.find, self.replace)


def read(text: str) -> tuple[Mutant, ...]:
    """
    The mutants that a text in TOML holds.

    Raises:
        ValueError: The first that is not of the form, by its name or number.
    """
    rows = tomllib.loads(text).get("mutant", [])
    return tuple(_mutant(row, number) for number, row in enumerate(rows, 1))


def load() -> tuple[Mutant, ...]:
    """The project's mutants."""
    return read(DATA.read_text(encoding="utf-8"))


def chosen(mutants: Iterable[Mutant], names: Iterable[str] | None) -> tuple[Mutant, ...]:
    """
    Those of these names, or all where none is given.

    Raises:
        ValueError: A name that no mutant has.
    """
    known = {mutant.name: mutant for mutant in mutants}
    if names is None:
        return tuple(known.values())
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"no mutant is called {', '.join(unknown)}; see {DATA.name}")
    return tuple(known[name] for name in dict.fromkeys(names))


def flaws(mutant: Mutant, root: Path = ROOT) -> Iterator[str]:
    """What keeps the mutant from being tried in the tree at `root`."""
    path = root / mutant.file
    if not path.is_file():
        yield f"{mutant.file} is not there"
    else:
        try:
            mutant.applied_to(path.read_text(encoding="utf-8"))
        except ValueError as reason:
            yield str(reason)
    for target in mutant.tests:
        if target.startswith(NO_BEHAVIOUR):
            yield f"{target} compares texts; name a test of behaviour"
        elif not _is_there(target, root):
            yield f"{target} names no test"


def _is_there(target: str, root: Path) -> bool:
    file, *names = target.partition("[")[0].split("::")
    path = root / file
    if path.is_dir():
        return not names
    if not path.is_file():
        return False
    text = path.read_text(encoding="utf-8")
    return all(re.search(rf"^\s*(class|(async )?def) {name}\b", text, re.M) for name in names)


def _mutant(row: dict[str, object], number: int) -> Mutant:
    name = row.get("name")
    called = name if isinstance(name, str) and _NAME.fullmatch(name) else f"mutant {number}"
    if called != name:
        raise ValueError(f"{called}: its name must be lower-case words joined by hyphens")
    if set(row) != _FIELDS:
        wrong = ", ".join(sorted(set(row) ^ _FIELDS))
        raise ValueError(f"{called}: missing or unknown: {wrong}")
    for field in ("file", "find", "replace"):
        if not isinstance(row[field], str):
            raise ValueError(f"{called}: {field} must be a text")
    clauses, tests = _texts(row["clauses"]), _texts(row["tests"])
    if not clauses or not all(_CLAUSE.fullmatch(clause) for clause in clauses):
        raise ValueError(f'{called}: clauses must be a list like ["C53"]')
    if not tests:
        raise ValueError(f"{called}: tests must name at least one")
    if not row["find"] or row["find"] == row["replace"]:
        raise ValueError(f"{called}: it changes nothing")
    if str(row["file"]).split("/")[0] not in CODE_FOLDERS:
        raise ValueError(f"{called}: only the code is changed, never a test or a document")
    return Mutant(
        name=called,
        clauses=clauses,
        file=str(row["file"]),
        find=str(row["find"]),
        replace=str(row["replace"]),
        tests=tests,
    )


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        return ()
    return tuple(value)
