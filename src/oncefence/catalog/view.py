"""
The IntegrationBindingView: all of pack and binding that a command ever needs, frozen (C561).

A command pins one view. Nothing is read from a pack, a binding or another view afterwards.
"""

import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, ValidationError

from oncefence.catalog.answers import ResponseContract
from oncefence.catalog.bindings import (
    CompletionContract,
    IntegrationBinding,
    OperationBinding,
)
from oncefence.catalog.canonical import FrozenMap, Model, canonical_json, text_digest
from oncefence.catalog.checks import binding_problems
from oncefence.catalog.definitions import (
    AuthRule,
    BodyTemplate,
    OperationDefinition,
    ProviderPack,
    TraceHeaders,
)
from oncefence.catalog.errors import CatalogError, PayloadRefused, Problem, UnknownOperation
from oncefence.catalog.freeze import BoundField, ClearRule, FrozenRequest, written_fields
from oncefence.catalog.lanes import Lanes
from oncefence.catalog.lookup import LookupContract
from oncefence.catalog.names import DottedName, Name, Pattern
from oncefence.catalog.payload import parse_payload
from oncefence.catalog.templates import REMOTE_ID, check_remote_id, expand_target, render_body


class BoundOperation(Model):
    """One local operation with everything that performs it and explains its answers."""

    name: DottedName
    provider: Name
    pack_operation: DottedName
    endpoint_class: DottedName
    payload_version: int
    local_object: Name
    subject_pattern: Pattern
    remote_object: Name
    remote_id_pattern: Pattern
    method: str
    path: str
    query: FrozenMap[str, str]
    headers: tuple[tuple[str, str], ...]
    body: BodyTemplate
    total_deadline_ms: int
    replay: Literal["none"]
    sensitive: bool
    fields: tuple[BoundField, ...]
    lanes: Lanes
    completion: CompletionContract
    response: ResponseContract
    lookup: LookupContract | None

    def check_subject(self, subject: str) -> None:
        """
        The subject is of the form that the binding declares.

        Raises:
            PayloadRefused: It is not.
        """
        if not re.fullmatch(self.subject_pattern, subject, re.ASCII):
            raise PayloadRefused(
                "subject", f"does not match the binding's pattern {self.subject_pattern}"
            )

    def check_remote_id(self, remote_id: str) -> None:
        """
        A link to this id can be used in a request.

        Raises:
            PayloadRefused: It cannot.
        """
        check_remote_id(remote_id, self.remote_id_pattern)

    def freeze(self, payload: bytes, *, remote_id: str) -> FrozenRequest:
        """
        The exact request for this payload and link; the same bytes each time (C142).

        Raises:
            PayloadRefused: The payload or the id cannot become an exact request.
        """
        check_remote_id(remote_id, self.remote_id_pattern)
        written = written_fields(self.fields, parse_payload(payload))
        return FrozenRequest(
            method=self.method,
            target=expand_target(self.path, self.query, {REMOTE_ID: remote_id}),
            headers=self.headers,
            body=render_body(self.body, remote_id=remote_id, written=written),
            written=written,
        )


class IntegrationBindingView(Model):
    """An immutable projection of one binding and the pack it was made with."""

    format: Literal["oncefence.view/1"] = "oncefence.view/1"
    name: Name
    pack: Name
    display_name: str
    principal: Name
    base_url: str
    auth: AuthRule
    trace: TraceHeaders
    pack_digest: str = Field(pattern=r"^[0-9a-f]{64}$")
    binding_digest: str = Field(pattern=r"^[0-9a-f]{64}$")
    operations: FrozenMap[DottedName, BoundOperation]

    def operation(self, name: str) -> BoundOperation:
        """
        The operation that this view binds to `name`.

        Raises:
            UnknownOperation: There is none.
        """
        found = self.operations.get(name)
        if found is None:
            raise UnknownOperation(self.name, name, tuple(sorted(self.operations)))
        return found

    def to_json(self) -> str:
        """The canonical text; `from_json` gives back an equal view."""
        return canonical_json(self.model_dump(mode="json"))

    @property
    def digest(self) -> str:
        """Lower-case hex SHA-256 of the canonical text."""
        return text_digest(self.to_json())

    @classmethod
    def from_json(cls, text: str) -> "IntegrationBindingView":
        """
        The view that `text` was written from.

        Raises:
            CatalogError: It is not the text of a view that this version knows.
        """
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise CatalogError(
                [
                    Problem(
                        file="stored view",
                        key=".".join(map(str, found["loc"])),
                        reason=found["msg"],
                    )
                    for found in error.errors(include_input=False, include_url=False)
                ]
            ) from None


def compile_view(pack: ProviderPack, binding: IntegrationBinding) -> IntegrationBindingView:
    """
    The view of `binding` over `pack`.

    Raises:
        CatalogError: The two do not fit together; every misfit is listed.
    """
    errors, _ = binding_problems(pack, binding)
    if errors:
        raise CatalogError(errors)
    return IntegrationBindingView(
        name=binding.name,
        pack=pack.name,
        display_name=pack.display_name,
        principal=binding.principal,
        base_url=pack.base_url,
        auth=pack.auth,
        trace=pack.trace,
        pack_digest=pack.digest,
        binding_digest=binding.digest,
        operations={
            name: _bound(pack, pack.operations[bound.operation], name, bound)
            for name, bound in binding.operations.items()
        },
    )


def _bound(
    pack: ProviderPack, definition: OperationDefinition, name: str, binding: OperationBinding
) -> BoundOperation:
    request = definition.request
    return BoundOperation(
        name=name,
        provider=pack.name,
        pack_operation=binding.operation,
        endpoint_class=definition.endpoint_class,
        payload_version=binding.payload_version,
        local_object=binding.local_object,
        subject_pattern=binding.subject,
        remote_object=binding.remote_object,
        remote_id_pattern=pack.objects[definition.object].remote_id,
        method=definition.method,
        path=definition.path,
        query=dict(request.query),
        headers=_headers({**pack.headers, **request.headers, "Content-Type": request.media_type}),
        body=request.body,
        total_deadline_ms=definition.total_deadline_ms,
        replay=definition.replay,
        sensitive=binding.sensitive,
        fields=_fields(pack, definition, binding),
        lanes=binding.lanes.upon(definition.lanes),
        completion=binding.completion,
        response=definition.answer,
        lookup=_lookup(pack, definition),
    )


def _fields(
    pack: ProviderPack, definition: OperationDefinition, binding: OperationBinding
) -> tuple[BoundField, ...]:
    remote = pack.objects[definition.object].fields
    return tuple(
        BoundField(
            local=local,
            remote=field.remote,
            type=field.type,
            clear=remote[field.remote].clear,
            required=field.required,
            max_length=field.max_length or remote[field.remote].max_length,
        )
        for local, field in sorted(binding.fields.items())
    )


def _lookup(pack: ProviderPack, definition: OperationDefinition) -> LookupContract | None:
    if definition.lookup is None:
        return None
    target = pack.objects[definition.object]
    # Part by part, since a dump would hold JSON types and not the model's own. Any, because
    # each part is validated again.
    parts: dict[str, Any] = {
        name: dict(part) if isinstance(part, Mapping) else part for name, part in definition.lookup
    }
    return LookupContract(
        **parts,
        headers=_headers(pack.headers),
        remote_id_pattern=target.remote_id,
        cleared_reads_as_null=tuple(
            name
            for name, field in sorted(target.fields.items())
            if field.clear is ClearRule.EMPTY_STRING
        ),
    )


def _headers(headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(headers.items(), key=lambda pair: pair[0].lower()))
