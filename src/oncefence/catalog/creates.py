"""Finding out whether a create took effect: a search whose every hit is checked again."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, Field

from oncefence.catalog.canonical import FrozenMap, Model
from oncefence.catalog.expressions import JmesPath, find, holds, identity_text
from oncefence.catalog.record_times import ChangeTime
from oncefence.catalog.templates import COMMAND, check_field_template, expand, variables


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryFinding:
    """What a search shows."""

    ids: tuple[str, ...]
    """Of the records that carry what the create wrote and are not older than it."""

    has_strangers: bool
    """Records are among them that do not match what was asked for."""

    is_cut: bool
    """There may be more than the answer shows."""

    is_unsure: bool
    """A matching record does not show when it was made."""


def _match_template(template: str) -> str:
    check_field_template(template, (COMMAND,))
    if not variables(template):
        raise ValueError("matches the same for every create; use {command} or {field.NAME}")
    return template


class QueryRule(Model):
    """
    How a create's record is told from all others in the answer to a search.

    The match is ours and not the provider's: a filter that the provider ignores, or reads in
    another way, must not make somebody else's record into this create's.
    """

    items: JmesPath
    match: FrozenMap[JmesPath, Annotated[str, AfterValidator(_match_template)]] = Field(
        min_length=1
    )
    cap: int | None = Field(default=None, ge=1, le=10_000)
    """How many items an answer holds at most."""

    more: JmesPath | None = None
    """Holds where the provider itself says that there is more."""

    created_time: ChangeTime | None = None

    def read(
        self, document: object, identity: str, values: Mapping[str, str], mark_time: datetime | None
    ) -> QueryFinding | None:
        """
        What `document` shows of the create with `values`; None where it is no such answer.

        Without a mark, records of any age count.
        """
        items = find(self.items, document)
        if not isinstance(items, list):
            return None
        matching = [item for item in items if self._matches(item, values)]
        ages = [self._is_older(item, mark_time) for item in matching]
        ids = [
            identity_text(find(identity, item))
            for item, is_older in zip(matching, ages, strict=True)
            if not is_older
        ]
        if None in ids:
            return None
        return QueryFinding(
            ids=tuple(text for text in ids if text is not None),
            has_strangers=len(matching) < len(items),
            is_cut=(self.cap is not None and len(items) >= self.cap)
            or (self.more is not None and holds(self.more, document)),
            is_unsure=None in ages,
        )

    def _matches(self, item: object, values: Mapping[str, str]) -> bool:
        return all(
            identity_text(find(where, item)) == expand(template, values, str)
            for where, template in self.match.items()
        )

    def _is_older(self, item: object, mark_time: datetime | None) -> bool | None:
        if mark_time is None or self.created_time is None:
            return False
        return self.created_time.is_before(mark_time, item)
