"""The mutants as data: which rule each one breaks, by which change, and which tests must see it."""

import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

ROOT = Path(__file__).parents[2]
DATA = Path(__file__).with_name("mutants.toml")

CODE_FOLDERS = ("src", "storage", "activities", "workflows")
# What only compares texts sees every change and proves nothing about what the code does.
NO_BEHAVIOUR = ("tests/golden", "tests/tidy", "tests/mutants")

Clause = Annotated[str, StringConstraints(pattern=r"^C[1-9][0-9]*$")]
CodeFile = Annotated[str, StringConstraints(pattern=rf"^({'|'.join(CODE_FOLDERS)})/")]


class Mutant(BaseModel):
    """One rule broken by one change of one file, and the tests that are tried, cheapest first."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    clauses: tuple[Clause, ...] = Field(min_length=1)
    file: CodeFile
    find: str = Field(min_length=1)
    replace: str
    tests: tuple[str, ...] = Field(min_length=1)

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


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    mutant: tuple[Mutant, ...]


def read(text: str) -> tuple[Mutant, ...]:
    """
    The mutants that a text in TOML holds.

    Raises:
        ValueError: What of it is not of the form.
    """
    document = tomllib.loads(text)
    try:
        return _File.model_validate(document).mutant
    except ValidationError as error:
        wrong = error.errors()[0]
        place = ".".join(map(str, wrong["loc"]))
        raise ValueError(f"{DATA.name}: {place}: {wrong['msg']}") from None


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
        yield f"{mutant.name}: {mutant.file} is not there"
    else:
        try:
            mutant.applied_to(path.read_text(encoding="utf-8"))
        except ValueError as reason:
            yield str(reason)
    if mutant.find == mutant.replace:
        yield f"{mutant.name}: it changes nothing"
    for target in mutant.tests:
        if target.startswith(NO_BEHAVIOUR):
            yield f"{mutant.name}: {target} compares texts; name a test of behaviour"
        elif not _is_there(target, root):
            yield f"{mutant.name}: {target} names no test"


def refuse_flaws(mutants: Iterable[Mutant]) -> None:
    """
    Check that every one of them can be tried.

    Raises:
        ValueError: What keeps which from it.
    """
    found = [flaw for mutant in mutants for flaw in flaws(mutant)]
    if found:
        raise ValueError("\n  ".join(["these cannot be tried:", *found]))


def _is_there(target: str, root: Path) -> bool:
    file, *names = target.partition("[")[0].split("::")
    path = root / file
    if not path.is_file():
        return False
    text = path.read_text(encoding="utf-8")
    return all(
        re.search(rf"^\s*(class|(async )?def) {name}\b", text, re.MULTILINE) for name in names
    )
