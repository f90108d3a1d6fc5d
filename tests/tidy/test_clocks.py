"""No clock and no dice where the same input must give the same answer."""

import ast

import pytest

from tests.tidy import tree

CLOCKS = {
    "datetime.now",
    "datetime.utcnow",
    "datetime.today",
    "date.today",
    "time.time",
    "time.time_ns",
    "time.monotonic",
    "time.monotonic_ns",
    "time.perf_counter",
    "uuid4",
    "uuid1",
    "uuid.uuid4",
    "uuid.uuid1",
    "os.urandom",
}
DICE = ("random", "secrets")


def impurities(source: str) -> list[str]:
    # `workflow.uuid4()` is no clock but changes when a workflow is reset, so it counts as well.
    found = tree.imports_any(source, *DICE)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute | ast.Name):
            words = ast.unparse(node).split(".")
            if {".".join(words[-2:]), words[-1]} & CLOCKS:
                found.append(ast.unparse(node))
    return found


def test_domain_and_workflows_have_no_clock_and_no_dice() -> None:
    """A replayed workflow and a re-run rule must decide as they did the first time."""
    found = {
        name: impure
        for name, source in tree.code().items()
        if name.startswith((tree.DOMAIN, tree.WORKFLOWS)) and (impure := impurities(source))
    }

    assert found == {}, "take the time as an argument (workflow.now()) and derive ids (uuid5)"


@pytest.mark.parametrize(
    "line",
    [
        "datetime.now(UTC)",
        "datetime.datetime.utcnow()",
        "time.time()",
        "uuid4()",
        "workflow.uuid4()",
        "field(default_factory=uuid.uuid4)",
        "import random",
        "from random import random",
    ],
)
def test_a_clock_or_dice_is_seen(line: str) -> None:
    """A rule that cannot fail guards nothing: calls, references and imports count."""
    assert impurities(line)


@pytest.mark.parametrize("line", ["workflow.now()", "uuid5(NAMESPACE, name)", "self.randomness"])
def test_what_is_derived_or_passed_in_is_let_through(line: str) -> None:
    """The rule must leave the right way open."""
    assert not impurities(line)
