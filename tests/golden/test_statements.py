"""The SQL of the store is what was reviewed."""

import pytest

from tests.golden.statements import FOLDER, rendered

REVIEWED = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.sql")}
AGAIN = "run `python -m tests.golden.statements` and review the difference"


def test_every_module_with_statements_is_there() -> None:
    """A module that is missing here is a module that nobody read as SQL."""
    assert sorted(rendered()) == sorted(REVIEWED), AGAIN


@pytest.mark.parametrize("module", sorted(REVIEWED))
def test_the_statements_are_as_reviewed(module: str) -> None:
    """The WHERE clause is the protocol: a change of it must be seen as SQL."""
    assert rendered().get(module) == REVIEWED[module], AGAIN
