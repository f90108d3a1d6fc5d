"""
What the catalog refuses.

    Refused
      CatalogError        a pack, binding or view is not valid; lists every problem found
      UnknownOperation    the view binds no operation of that name
      PayloadRefused      a payload or link value cannot become an exact request
"""

from collections.abc import Sequence
from dataclasses import dataclass

from oncefence.domain.errors import Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing to put right: in which file, at which key, and why."""

    file: str
    key: str
    reason: str

    def __str__(self) -> str:
        return f"{self.file}: {self.key}: {self.reason}" if self.key else self._without_key()

    def _without_key(self) -> str:
        return f"{self.file}: {self.reason}"


class CatalogError(Refused):
    """
    A pack, a binding or a view is not valid.

    Attributes:
        problems: All that was found, in the order of the file; never empty.
        file, key, reason: Those of the first problem.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        if not problems:
            raise ValueError("a CatalogError names at least one problem")
        super().__init__(problems)
        self.problems = tuple(problems)
        self.file = self.problems[0].file
        self.key = self.problems[0].key
        self.reason = self.problems[0].reason

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))


@dataclass(eq=False)
class UnknownOperation(Refused):
    """The binding view has no operation of this name."""

    view: str
    operation: str
    known: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"binding {self.view!r} has no operation {self.operation[:80]!r}; "
            f"it has {', '.join(self.known)}"
        )


@dataclass(eq=False)
class PayloadRefused(Refused):
    """
    A value cannot become an exact request, so nothing is accepted.

    `field` says where (`$` is the whole payload, `remote id` the link's id). Neither it nor
    the reason repeats a value.
    """

    field: str
    reason: str

    def __str__(self) -> str:
        return f"{'payload' if self.field == '$' else self.field}: {self.reason}"
