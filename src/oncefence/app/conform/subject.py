"""What is certified: each operation of a pack, bound to every field that it can write."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from json import dumps
from typing import Final
from uuid import UUID

from oncefence.app.conform.samples import condition_sample, sample
from oncefence.catalog.bindings import (
    CompletionContract,
    FieldBinding,
    IntegrationBinding,
    OperationBinding,
)
from oncefence.catalog.definitions import OperationDefinition, ProviderPack
from oncefence.catalog.errors import CatalogError, Problem
from oncefence.catalog.findings import unknown
from oncefence.catalog.freeze import BoundField, FrozenRequest
from oncefence.catalog.operations import BoundOperation
from oncefence.catalog.request_checks import writable
from oncefence.catalog.view import IntegrationBindingView, compile_view

_NAME: Final = "conform"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One operation, by the view that a binding of all its fields is compiled to."""

    pack: ProviderPack
    view: IntegrationBindingView
    view_digest: str
    definition: OperationDefinition
    operation: BoundOperation

    @property
    def name(self) -> str:
        """Of the operation in its pack."""
        return self.operation.pack_operation

    @property
    def has_key(self) -> bool:
        """Whether it may be sent again under the provider's own key."""
        return self.operation.idempotency is not None

    def field(self, remote: str) -> BoundField:
        """The field that is written to `remote`."""
        return next(field for field in self.operation.fields if field.remote == remote)

    def freeze(
        self,
        remote_id: str | None,
        *,
        command: UUID,
        number: int,
        only: Iterable[str] | None = None,
        values: Mapping[str, object] | None = None,
        known: str | None = None,
    ) -> FrozenRequest:
        """
        The request that writes sample values, by the way every payload goes.

        `only` names the remote fields that are written besides the required ones; `values` stand
        in for samples. Samples of another `number` are other values. A conditional write says
        that it knew the record as `known`, or as no record is.
        """
        chosen = None if only is None else set(only)
        given = values or {}
        payload: dict[str, object] = {
            field.local: given[field.remote] if field.remote in given else sample(field, number)
            for field in self.operation.fields
            if field.required or chosen is None or field.remote in chosen
        }
        condition = self.operation.condition
        if condition is not None:
            payload[condition.payload_key] = known or condition_sample(condition.form)
        return self.operation.freeze(dumps(payload).encode(), remote_id=remote_id, command=command)


def subjects(pack: ProviderPack, *, only: str | None = None) -> list[Subject]:
    """
    Every operation of the pack, or the one of that name.

    Raises:
        CatalogError: There is none of that name, or no binding fits the pack.
    """
    if only is not None and only not in pack.operations:
        reason = unknown(f"operation of pack {pack.name}", only, pack.operations)
        raise CatalogError([Problem(file=pack.source, key="operations", reason=reason)])
    names = [only] if only is not None else sorted(pack.operations)
    binding = IntegrationBinding(
        format="oncefence.binding/1",
        name=_NAME,
        pack=pack.name,
        principal=_NAME,
        operations={name: _bound(pack, pack.operations[name], name) for name in names},
    )
    view = compile_view(pack, binding)
    digest = view.digest
    return [
        Subject(
            pack=pack,
            view=view,
            view_digest=digest,
            definition=pack.operations[name],
            operation=view.operation(name),
        )
        for name in names
    ]


def _bound(pack: ProviderPack, definition: OperationDefinition, name: str) -> OperationBinding:
    target = pack.objects[definition.object]
    lookup = definition.lookup
    needed = lookup.fields_used() if lookup is not None else set()
    taken = definition.condition.payload_key if definition.condition is not None else None
    return OperationBinding(
        operation=name,
        payload_version=1,
        local_object=_NAME,
        subject="[a-z]+",
        remote_object=definition.object,
        fields={
            f"{remote}_" if remote == taken else remote: FieldBinding(
                remote=remote,
                type=target.fields[remote].type,
                required=remote in needed,
                direction="outbound",
            )
            for remote in sorted(writable(definition, target))
        },
        completion=CompletionContract(command=f"{_NAME}.done", version=1),
    )
