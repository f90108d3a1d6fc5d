"""The forms that every message of an operator has: how an act is asked for, and its note."""

from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from oncefence.domain.operator import NOTE_LENGTH_MAX, fault_of_note

VERSION_LENGTH_MAX: Final = 200
PAGE_ROWS: Final = 50
PAGE_ROWS_MAX: Final = 200
ORG_FORM: Final = r"^(?:\*|[a-z0-9][a-z0-9_-]{0,62})$"


def _note(text: str) -> str:
    fault = fault_of_note(text)
    if fault is not None:
        raise PydanticCustomError("note", "{fault}", {"fault": fault})
    return text


NoteText = Annotated[
    str,
    AfterValidator(_note),
    Field(
        description="why, in printable characters; it is kept in the audit",
        json_schema_extra={"minLength": 1, "maxLength": NOTE_LENGTH_MAX},
    ),
]
VersionText = Annotated[
    str,
    Field(
        min_length=1,
        max_length=VERSION_LENGTH_MAX,
        pattern="^[!-~]+$",
        description="the version that the operator looked at",
    ),
]


class OperatorRequest(BaseModel):
    """The form of whatever an operator sends: strict, and nothing unknown."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


class NotedRequest(OperatorRequest):
    """An act that nothing stood before, so that there is no version to name."""

    note: NoteText


class ActRequest(NotedRequest):
    """An act on what is there (C406): why, and the version of it that was looked at."""

    expected_version: VersionText


class OperatorAnswer(BaseModel):
    """The form of whatever an operator is answered; members may be added to it."""

    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)
