"""L2: a tenant's choices. This is what a binding file (`oncefence.binding/1`) may hold (C560)."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from oncefence.catalog.canonical import FileModel, FrozenMap, Model
from oncefence.catalog.freeze import FieldType
from oncefence.catalog.names import DottedName, FieldName, Name, Pattern

BINDING_FORMAT = "oncefence.binding/1"


def _narrow_lane(lane: object) -> object:
    if lane in ("tenant", "org", "organisation", "organization", "installation", "binding", "all"):
        raise ValueError(
            "a tenant-wide lane would put all work of the tenant in one file behind one "
            "another; use 'subject' for the source and 'link' for the target"
        )
    return lane


def _constant(value: object) -> object:
    if not isinstance(value, str | int):
        # pydantic takes a ValueError for a finding and a TypeError for a defect of ours.
        raise ValueError(  # noqa: TRY004
            "must be a text, a whole number, true or false"
        )
    return value


Constant = Annotated[object, AfterValidator(_constant)]


class FieldBinding(Model):
    """Which remote field a payload key is written to, and what it may hold."""

    remote: FieldName
    type: FieldType
    required: bool = False
    max_length: int | None = Field(default=None, ge=1)
    direction: Literal["outbound"]


class Lanes(Model):
    """What must happen one after the other; narrower than a tenant in any case (C226, C230)."""

    source: Annotated[Literal["subject"], BeforeValidator(_narrow_lane)] = "subject"
    target: Annotated[Literal["link"], BeforeValidator(_narrow_lane)] = "link"


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
    fields: FrozenMap[FieldName, FieldBinding] = Field(min_length=1)
    lanes: Lanes = Lanes()
    completion: CompletionContract


class IntegrationBinding(FileModel):
    """A tenant's use of one pack under one principal binding."""

    format: Literal["oncefence.binding/1"]
    name: Name
    pack: Name
    principal: Name
    operations: FrozenMap[DottedName, OperationBinding] = Field(min_length=1)
