"""Values to write: of the field's type, different with each number, and likely to be taken."""

import re
from typing import Final

from oncefence.catalog.conditions import ConditionForm
from oncefence.catalog.field_values import FieldType, JsonNumber, exact_text, wire_value
from oncefence.catalog.freeze import BoundField

# A provider may ask more of a text than its pack can say. What a field of such a name is for is
# the best guess, and a sandbox can be told better ones.
_FORMS: Final = (
    (re.compile("e?mail", re.IGNORECASE), "conform{number}@example.com"),
    (re.compile("phone|mobile|fax", re.IGNORECASE), "+155501{number:05}"),
    (re.compile("url|website|homepage", re.IGNORECASE), "https://example.com/{number}"),
)
_TEXT: Final = "conform {number}"


def sample(field: BoundField, number: int) -> object:
    """A value for the field as a payload gives it; another one for another number."""
    day = f"2026-{number // 28 % 12 + 1:02}-{number % 28 + 1:02}"
    match field.type:
        case FieldType.STRING:
            return _text(field.remote, number)[-(field.max_length or 100) :]
        case FieldType.INTEGER:
            return 1_000 + number
        case FieldType.NUMBER:
            return f"{1_000 + number}.25"
        case FieldType.BOOLEAN:
            return number % 2 == 1
        case FieldType.DATE | FieldType.DATE_EPOCH_MS:
            return day
        case FieldType.DATETIME:
            return f"{day}T10:00:00Z"


def kept_sample(field: BoundField, number: int) -> object:
    """The same value as a provider keeps it."""
    text = exact_text(field.type, sample(field, number))
    value = wire_value(field.type, text, as_text=field.as_text)
    return float(value.text) if isinstance(value, JsonNumber) else value


def condition_sample(form: ConditionForm) -> str:
    """What a conditional write says that it knew, of a record that surely is another by now."""
    return "1990-01-02T03:04:05Z" if form is ConditionForm.HTTP_DATE else '"conform"'


def _text(remote: str, number: int) -> str:
    for name, text in _FORMS:
        if name.search(remote):
            return text.format(number=number)
    return _TEXT.format(number=number)
