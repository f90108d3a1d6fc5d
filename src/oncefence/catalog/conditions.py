"""Conditional writes: a change that the provider makes only to the record as we knew it."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import format_datetime
from enum import StrEnum

from pydantic import Field

from oncefence.catalog.canonical import Model
from oncefence.catalog.errors import PayloadRefused
from oncefence.catalog.field_values import FieldType, ValueRefused, exact_text
from oncefence.catalog.names import FieldName, HeaderName, Statuses

_TEXT = re.compile(r"[!-~]([ -~]{0,254}[!-~])?")


class ConditionForm(StrEnum):
    """How the payload's value becomes the header's."""

    TEXT = "text"
    """As it is: an entity tag with its quotes, or a version."""

    HTTP_DATE = "http_date"
    """A time with its zone becomes an HTTP date, which knows whole seconds only."""


class ConditionRule(Model):
    """
    The header that carries what we knew, and the statuses that say it is no longer so.

    A failed condition is a refusal: nothing was applied, and whoever gave the old value must
    look at the record again.
    """

    header: HeaderName
    payload_key: FieldName
    form: ConditionForm = ConditionForm.TEXT
    failed: Statuses = Field(default=(412,), min_length=1)

    def take(self, payload: Mapping[str, object]) -> tuple[dict[str, object], tuple[str, str]]:
        """
        The payload without the condition's key, and the header made of it.

        Raises:
            PayloadRefused: The key is missing, or its value cannot stand in the header.
        """
        fields = dict(payload)
        value = fields.pop(self.payload_key, None)
        if value is None:
            raise PayloadRefused(
                self.payload_key, f"is required: this write is conditional ({self.header})"
            )
        return fields, (self.header, self._text(value))

    def _text(self, value: object) -> str:
        if self.form is ConditionForm.HTTP_DATE:
            try:
                text = exact_text(FieldType.DATETIME, value)
            except ValueRefused as error:
                raise PayloadRefused(self.payload_key, str(error)) from None
            moment = datetime.fromisoformat(text).astimezone(UTC).replace(microsecond=0)
            return format_datetime(moment, usegmt=True)
        if not isinstance(value, str) or not _TEXT.fullmatch(value):
            raise PayloadRefused(
                self.payload_key, "must be printable ASCII text without blanks at either end"
            )
        return value
