"""A state machine as data: the one shape that both lifecycles are written in."""

from collections.abc import Mapping
from dataclasses import dataclass

from oncefence.domain.errors import InvalidTransition


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """
    One permitted move.

    `guard` is the name of the predicate that must hold; `Lifecycle.guards` says what it means.
    `actor` names who may move, several parted by a comma and a space.
    """

    source: str
    target: str
    trigger: str
    guard: str
    actor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifecycle:
    """
    All states and moves of one kind of row; a move's key is (source, target, trigger).

    The same rows fill the table that the database's own guard reads, so Python and SQL cannot
    come to differ.
    """

    name: str
    initial: str
    states: tuple[str, ...]
    final: frozenset[str]
    transitions: tuple[Transition, ...]
    guards: Mapping[str, str]

    def check(self, source: str, target: str, trigger: str) -> Transition:
        """
        The move `source -> target` by `trigger`.

        Raises:
            InvalidTransition: The lifecycle has no such row.
        """
        for row in self.transitions:
            if (row.source, row.target, row.trigger) == (source, target, trigger):
                return row
        raise InvalidTransition(lifecycle=self.name, source=source, target=target, trigger=trigger)

    def permits(self, source: str, target: str) -> bool:
        """Whether any trigger leads from `source` to `target`."""
        return any((row.source, row.target) == (source, target) for row in self.transitions)

    def sources(self, target: str, trigger: str) -> tuple[str, ...]:
        """The states from which `trigger` leads to `target`, for a statement's WHERE."""
        return tuple(
            row.source for row in self.transitions if (row.target, row.trigger) == (target, trigger)
        )
