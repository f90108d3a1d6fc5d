"""The project's files as the tidy tests read them: walked, so an exported tree reads the same."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
CODE_FOLDERS = ("src", "storage", "activities", "workflows")
# The top level is fixed; what else lies in the folder (an environment, results) is nobody's rule.
TOP_LEVEL = (
    *CODE_FOLDERS,
    "tests",
    "deploy",
    "docs",
    ".ci",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "dev",
    "requirements.lock",
    "requirements-mitmproxy.lock",
    ".gitignore",
    ".dockerignore",
)
DOMAIN = "src/oncefence/domain/"
SIMULATOR = "src/oncefence/simulator/"
STORAGE = "storage/oncefence/storage/"
PHASES = STORAGE + "phases/"
MIGRATIONS = STORAGE + "migrations/"
WORKFLOWS = "workflows/oncefence/workflows/"


def _walk(names: tuple[str, ...]) -> Iterator[Path]:
    for name in names:
        top = ROOT / name
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.is_file() and "__pycache__" not in path.parts:
                yield path


@cache
def texts() -> dict[str, str]:
    """Every text file of the project by its path from the root."""
    found = {}
    for path in _walk(TOP_LEVEL):
        try:
            found[name_of(path)] = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # an image or a recorded body has no words to judge
    return found


def text(name: str) -> str:
    """The text of one file that has to be there."""
    assert name in texts(), f"{name} is missing, and the tidy tests hold something in it"
    return texts()[name]


def name_of(path: Path) -> str:
    """A path as the messages and the rules write it."""
    return path.relative_to(ROOT).as_posix()


@cache
def code() -> dict[str, str]:
    """The Python modules of the four code folders."""
    return {
        name: text
        for name, text in texts().items()
        if name.endswith(".py") and name.split("/", 1)[0] in CODE_FOLDERS
    }


@cache
def tests() -> dict[str, str]:
    """The Python modules of the tests."""
    return {
        name: text
        for name, text in texts().items()
        if name.endswith(".py") and name.startswith("tests/")
    }


def imported(source: str) -> set[str]:
    """
    Every module that `source` imports, with dots.

    `from a import b` counts as `a` and as `a.b`: b may be a module.
    """
    modules: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                modules |= {alias.name for alias in names}
            case ast.ImportFrom(module=str(module), names=names, level=0):
                modules |= {module} | {f"{module}.{alias.name}" for alias in names}
    return modules


def imports_any(source: str, *packages: str) -> list[str]:
    """What `source` imports from `packages`."""
    return sorted(
        module
        for module in imported(source)
        if any(module == package or module.startswith(package + ".") for package in packages)
    )
