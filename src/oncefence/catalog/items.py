"""Answers that tell the fate of each input apart, as a multi-status answer does (C246)."""

from dataclasses import dataclass

from pydantic import Field

from oncefence.catalog.canonical import Model
from oncefence.catalog.expressions import JmesPath, find, identity_text
from oncefence.catalog.names import Statuses


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemLists:
    """The inputs that an answer names, each as often as it names it."""

    applied: tuple[str, ...]
    refused: tuple[str, ...]


class ItemsRule(Model):
    """Where such an answer lists what was done and what was refused."""

    statuses: Statuses = Field(default=(207,), min_length=1)
    results: JmesPath
    id: JmesPath
    """Within a result: the id of its input."""

    errors: JmesPath
    error_ids: JmesPath
    """Within an error: the id, or the list of ids, that it is about."""

    def read(self, document: object, *, only_input: str | None = None) -> ItemLists:
        """
        The inputs that `document` names on either side.

        `only_input` is the one input of a request that had no other: an error that names nothing
        is then about that one, where nothing else is listed.
        """
        results, errors = find(self.results, document), find(self.errors, document)
        if not isinstance(results, list | None) or not isinstance(errors, list | None):
            return ItemLists(applied=(), refused=())
        applied = [identity_text(find(self.id, result)) for result in results or ()]
        refused = [text for error in errors or () for text in self._ids(error)]
        if only_input is not None and errors and not results and not refused:
            refused = [only_input]
        return ItemLists(
            applied=tuple(text for text in applied if text is not None), refused=tuple(refused)
        )

    def _ids(self, error: object) -> list[str]:
        found = find(self.error_ids, error)
        ids = map(identity_text, found if isinstance(found, list) else [found])
        return [text for text in ids if text is not None]
