"""Sending again under the provider's own key: when it is safe, and how it is told (C563)."""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from pydantic import Field

from oncefence.catalog.canonical import Model
from oncefence.catalog.names import HeaderName, HeaderValue

KEY_LENGTH: Final = 36
"""A key is the text of the command's id, so that every attempt of it carries the same."""


class ReplayedMark(Model):
    """How an answer says that it is the kept one of an earlier attempt."""

    header: HeaderName
    value: HeaderValue = "true"


class IdempotencyRule(Model):
    """The header of the key, and for how long the provider knows a key that it has seen."""

    header: HeaderName = "Idempotency-Key"
    window_s: int = Field(ge=60, le=31_536_000)
    key_max_length: int = Field(default=255, ge=1)
    replayed: ReplayedMark | None = None

    def header_for(self, command: UUID) -> tuple[str, str]:
        """The header that all attempts of `command` carry."""
        return self.header, str(command)

    def is_replayed(self, headers: Mapping[str, str]) -> bool:
        """Whether `headers` (lower-case names) mark an answer kept from an earlier attempt."""
        if self.replayed is None:
            return False
        shown = headers.get(self.replayed.header.lower(), "")
        return shown.strip().lower() == self.replayed.value.lower()
