"""The reference Runtime has no way to oncefence but the doors."""

import ast

import pytest

from tests.tidy import tree

FOLDER = "tests/runtime/"
# A process of it is made of these; what else lies in the folder sets the stage or looks on.
RUNTIME = {
    f"{FOLDER}crm.py": set[str](),
    f"{FOLDER}doors.py": {"oncefence.app.client", "oncefence.app.temporal_client"},
    f"{FOLDER}__main__.py": set[str](),
}
OWN = {"tests.runtime.crm", "tests.runtime.doors"}


def imported_of_ours(source: str) -> set[str]:
    """The modules of this tree that `source` imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name.partition(".")[0] in ("oncefence", "tests")}


@pytest.mark.parametrize("name", RUNTIME)
def test_the_reference_runtime_knows_the_doors_alone(name: str) -> None:
    """What proves that the doors suffice must not have another way in."""
    assert imported_of_ours(tree.text(name)) - OWN <= RUNTIME[name], "go through a door"


def test_another_way_in_is_seen() -> None:
    """A rule that cannot fail guards nothing."""
    source = "import json\nfrom oncefence.storage import tables\nimport oncefence.domain.ids\n"

    assert imported_of_ours(source) == {"oncefence.storage", "oncefence.domain.ids"}
