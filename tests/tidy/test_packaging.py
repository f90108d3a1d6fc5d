"""What is declared, what is pinned, and how it is started."""

import re
import stat
import tomllib
from typing import Any

from tests.support.counts import counts
from tests.tidy import tree

PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9.!+_-]+)(?: ; .+)?$")


def project() -> dict[str, Any]:
    return tomllib.loads(tree.text("pyproject.toml"))


def canonical(requirement: str) -> str:
    """The name of a requirement as every installer compares it."""
    name = re.split(r"[\[\]<>=!~; ]", requirement, maxsplit=1)[0]
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(pyproject: dict[str, Any]) -> set[str]:
    """Whatever the project, its extras and its build ask for."""
    lists = [
        pyproject["project"]["dependencies"],
        *pyproject["project"]["optional-dependencies"].values(),
        pyproject["build-system"]["requires"],
    ]
    return {canonical(requirement) for requirements in lists for requirement in requirements}


def loose(lock: str) -> list[str]:
    """The lines of a lock that are no exact pin."""
    return [line for line in lock.splitlines() if not PIN.match(line)]


def pinned(lock: str) -> set[str]:
    return {canonical(line) for line in lock.splitlines()}


def test_every_dependency_is_pinned() -> None:
    """What is not pinned differs from one machine to the next, and one day it breaks."""
    missing = sorted(declared(project()) - pinned(tree.text("requirements.lock")))

    assert missing == [], "install it, and add its exact version to requirements.lock"


def test_the_lock_holds_exact_pins_alone() -> None:
    """A range, a path or an address in the lock is something that can change under us."""
    lock = tree.text("requirements.lock")

    assert loose(lock) == [], "write name==version, one a line"
    assert lock.splitlines() == sorted(lock.splitlines(), key=str.lower), "keep the lock sorted"


def test_ci_runs_what_a_developer_runs() -> None:
    """A check that only CI knows is found out too late."""
    commands = [
        line for line in tree.text(".ci/run").splitlines() if line and not line.startswith("#")
    ]

    assert commands == ['cd "$(dirname "$0")/.." && exec ./dev test'], "put it into ./dev test"


def test_the_scripts_can_be_started() -> None:
    """A lost executable bit makes the first command of the README fail."""
    for name in ("dev", ".ci/run"):
        assert (tree.ROOT / name).stat().st_mode & stat.S_IXUSR, f"chmod +x {name}"
        assert tree.text(name).startswith("#!/bin/sh\n")


def test_no_layer_is_missing_from_the_import_contracts() -> None:
    """A package that import-linter does not know may import anything."""
    packages = {".".join(name.split("/")[1:3]) for name in tree.code() if name.count("/") > 2}

    unknown = sorted(packages - set(project()["tool"]["importlinter"]["root_packages"]))

    assert unknown == [], "add it to root_packages and to the layers"


def test_a_loose_or_missing_pin_is_seen() -> None:
    """A rule that cannot fail guards nothing."""
    assert loose("a==1.0\nb>=2\n-e .\nc @ file:x\n--pre\n") == [
        "b>=2",
        "-e .",
        "c @ file:x",
        "--pre",
    ]
    assert pinned("Typing_Extensions==4.0\n") == {"typing-extensions"}
    assert declared(
        {
            "project": {"dependencies": ["A.b[c]>=1"], "optional-dependencies": {"x": ["d~=2"]}},
            "build-system": {"requires": ["e"]},
        }
    ) == {"a-b", "d", "e"}


def test_counts_of_several_runs_are_added() -> None:
    """The file of ./dev test --json is read by machines, so its figures are integers."""
    one = '<testsuite tests="5" failures="1" errors="0" skipped="1" time="0.5"/>'
    two = '<testsuite tests="2" failures="0" errors="1" skipped="0" time="1"/>'

    assert counts([one, f"<testsuites>{two}</testsuites>"], ["ruff"]) == {
        "passed": 4,
        "failed": 1,
        "skipped": 1,
        "errors": 1,
        "seconds": 1.5,
        "failed_steps": ["ruff"],
    }
