"""
The IntegrationBindingView: all of pack and binding that a command ever needs, frozen (C561).

A command pins one view. Nothing is read from a pack, a binding or another view afterwards.
"""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, ValidationError

from oncefence.catalog.bindings import IntegrationBinding, OperationBinding
from oncefence.catalog.bound_quota import bound_quota
from oncefence.catalog.canonical import FrozenMap, canonical_json, text_digest
from oncefence.catalog.checks import binding_problems
from oncefence.catalog.definitions import AuthRule, OperationDefinition, ProviderPack, TraceHeaders
from oncefence.catalog.errors import CatalogError, Problem, UnknownOperation
from oncefence.catalog.field_values import ClearRule, FieldType
from oncefence.catalog.form_body import is_form
from oncefence.catalog.freeze import BoundField
from oncefence.catalog.lookup import LookupContract
from oncefence.catalog.names import DottedName, Name
from oncefence.catalog.operations import BoundOperation, in_order
from oncefence.catalog.tables import PackTables


class IntegrationBindingView(PackTables):
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
        **pack.tables(),
        operations={name: _bound(pack, binding, name) for name in binding.operations},
    )


def _bound(pack: ProviderPack, whole: IntegrationBinding, name: str) -> BoundOperation:
    binding = whole.operations[name]
    definition = pack.operations[binding.operation]
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
        headers=in_order(
            {**pack.headers, **request.headers, "Content-Type": request.media_type}.items()
        ),
        body=request.body,
        total_deadline_ms=definition.total_deadline_ms,
        replay=definition.replay,
        sensitive=binding.sensitive,
        user=binding.user,
        fields=_fields(pack, definition, binding),
        lanes=binding.lanes.upon(definition.lanes),
        completion=binding.completion,
        response=definition.answer,
        lookup=_lookup(pack, definition),
        kind=definition.kind,
        idempotency=definition.idempotency,
        condition=definition.condition,
        body_form="form" if is_form(request.media_type) else "json",
        quota=bound_quota(pack, whole, definition),
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
            as_text=remote[field.remote].as_text,
        )
        for local, field in sorted(binding.fields.items())
    )


def _lookup(pack: ProviderPack, definition: OperationDefinition) -> LookupContract | None:
    if definition.lookup is None:
        return None
    target = pack.objects[definition.object]
    headers = dict(pack.headers)
    if definition.lookup.media_type is not None:
        headers["Content-Type"] = definition.lookup.media_type
    # Part by part, since a dump would hold JSON types and not the model's own. Any, because
    # each part is validated again.
    parts: dict[str, Any] = {
        name: dict(part) if isinstance(part, Mapping) else part for name, part in definition.lookup
    }
    return LookupContract(
        **parts,
        headers=in_order(headers.items()),
        remote_id_pattern=target.remote_id,
        cleared_reads_as_null=tuple(
            name
            for name, field in sorted(target.fields.items())
            if field.clear is ClearRule.EMPTY_STRING
        ),
        types={
            name: field.type
            for name, field in sorted(target.fields.items())
            if field.type is not FieldType.STRING
        },
    )
