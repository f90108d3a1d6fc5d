"""One spelling for every value: canonical JSON, its digest, and read-only containers."""

import json
from collections.abc import Mapping
from hashlib import sha256
from types import MappingProxyType
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, PlainSerializer, PrivateAttr

K = TypeVar("K")
V = TypeVar("V")


class Model(BaseModel):
    """The base of all catalog data: immutable, and no key is ever ignored."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, validate_default=True
    )


class FileModel(Model):
    """A whole file. It remembers where it was read from, which is no part of its content."""

    _source: str = PrivateAttr(default="")

    def model_post_init(self, context: object, /) -> None:
        """Take the source from the validation context."""
        self._source = str(context["source"]) if isinstance(context, dict) else ""

    @property
    def source(self) -> str:
        """The file, for messages."""
        return self._source

    @property
    def digest(self) -> str:
        """Lower-case hex SHA-256 of the content; comments and the order of keys do not count."""
        return text_digest(canonical_json(self.model_dump(mode="json")))


def canonical_json(value: object) -> str:
    """The one text of a JSON value: keys sorted, no blanks, ASCII only."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def text_digest(text: str) -> str:
    """Lower-case hex SHA-256 of a canonical text."""
    return sha256(text.encode("ascii")).hexdigest()


def read_only(value: object) -> object:
    """The same JSON value in containers that cannot be changed."""
    if isinstance(value, Mapping):
        return MappingProxyType({key: read_only(member) for key, member in value.items()})
    if isinstance(value, list | tuple):
        return tuple(map(read_only, value))
    return value


def plain(value: object) -> object:
    """The same JSON value in ordinary dicts and lists, as `json` writes them."""
    if isinstance(value, Mapping):
        return {key: plain(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [plain(member) for member in value]
    return value


def _as_read_only(value: Mapping[K, V]) -> Mapping[K, V]:
    return MappingProxyType(dict(value))


def _serialised(value: Mapping[K, V]) -> dict[K, V]:
    return dict(value)


FrozenMap = Annotated[
    Mapping[K, V],
    AfterValidator(_as_read_only),
    PlainSerializer(_serialised),
]
"""A table of the file, read-only once it is validated."""
