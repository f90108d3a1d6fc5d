"""L2: a tenant's choices. This is what a binding file (`oncefence.binding/1`) may hold (C560)."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from oncefence.catalog.canonical import FileModel, FrozenMap, Model
from oncefence.catalog.field_values import FieldType
from oncefence.catalog.lanes import LaneChoice
from oncefence.catalog.names import DottedName, FieldName, Name, Pattern
from oncefence.catalog.quota import LIMIT_MAX

BINDING_FORMAT = "oncefence.binding/1"


def _constant(value: object) -> object:
    if not isinstance(value, str | int):
        # pydantic takes a ValueError for a finding and a TypeError for a defect of ours.
        raise ValueError(  # noqa: TRY004
            "must be a text, a whole number, true or false"
        )
    return value


Constant = Annotated[object, AfterValidator(_constant)]


def _limit_choice(value: object) -> object:
    if value is False or (isinstance(value, int) and value is not True and 1 <= value <= LIMIT_MAX):
        return value
    raise ValueError(f"must be a whole number from 1 to {LIMIT_MAX}, or false: no such limit")


LimitChoice = Annotated[object, AfterValidator(_limit_choice)]


class FieldBinding(Model):
    """Which remote field a payload key is written to, and what it may hold."""

    remote: FieldName
    type: FieldType
    required: bool = False
    max_length: int | None = Field(default=None, ge=1)
    direction: Literal["outbound"]


class CompletionContract(Model):
    """What the Runtime is told at the end, frozen with the command and handed back unchanged."""

    command: DottedName
    version: int = Field(ge=1)
    data: FrozenMap[FieldName, Constant] = Field(default_factory=dict)


class OperationBinding(Model):
    """A local operation, the pack operation that performs it, and the way of each field."""

    operation: DottedName
    payload_version: int = Field(ge=1)
    local_object: Name
    subject: Pattern
    remote_object: Name
    sensitive: bool = False
    user: FieldName | None = None
    """The payload key that names the person in whose name it is done; none of what is written."""

    fields: FrozenMap[FieldName, FieldBinding] = Field(min_length=1)
    lanes: LaneChoice = LaneChoice()
    completion: CompletionContract


class IntegrationBinding(FileModel):
    """A tenant's use of one pack under one principal binding."""

    format: Literal["oncefence.binding/1"]
    name: Name
    pack: Name
    principal: Name
    operations: FrozenMap[DottedName, OperationBinding] = Field(min_length=1)
    quota: FrozenMap[Name, LimitChoice] = Field(default_factory=dict)
    """Of the pack's dimensions: the limit of this tenant's own account, or that it has none."""
