"""A local operation with all that performs it, and what it does with payloads and answers."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Literal
from uuid import UUID

from oncefence.catalog.answers import AnswerHeaders, BodyReading, ResponseContract, lower_case
from oncefence.catalog.bindings import CompletionContract
from oncefence.catalog.bodies import fill, json_body
from oncefence.catalog.bound_quota import (
    BoundQuota,
    Refusal,
    dimensions_of,
    refusal_of,
    told_of,
)
from oncefence.catalog.canonical import FrozenMap, Model
from oncefence.catalog.conditions import ConditionRule
from oncefence.catalog.definitions import BodyTemplate
from oncefence.catalog.errors import PayloadRefused
from oncefence.catalog.form_body import form_body
from oncefence.catalog.freeze import BoundField, FrozenRequest, wire_values, written_fields
from oncefence.catalog.lanes import Lanes
from oncefence.catalog.lookup import LookupContract
from oncefence.catalog.names import DottedName, FieldName, Name, Pattern
from oncefence.catalog.payload import parse_payload
from oncefence.catalog.replays import IdempotencyRule
from oncefence.catalog.sendable import CONTROL, TARGET_LENGTH_MAX
from oncefence.catalog.templates import COMMAND, REMOTE_ID, check_remote_id, expand_target
from oncefence.domain.authorization import is_user
from oncefence.domain.classification import ReplyContract


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
    replay: Literal["none", "idempotency_key"]
    sensitive: bool
    fields: tuple[BoundField, ...]
    lanes: Lanes
    completion: CompletionContract
    response: ResponseContract
    lookup: LookupContract | None
    # Views that were stored before these were known are of operations that have none of them.
    kind: Literal["update", "create"] = "update"
    idempotency: IdempotencyRule | None = None
    condition: ConditionRule | None = None
    body_form: Literal["json", "form"] = "json"
    user: FieldName | None = None
    """The payload key of the person in whose name it is done; None where it is nobody's own."""
    quota: tuple[BoundQuota, ...] = ()

    @property
    def is_create(self) -> bool:
        """Whether it makes a record, whose id only the answer tells."""
        return self.kind == "create"

    @property
    def looks_first(self) -> bool:
        """
        Whether its record is looked for just before it is made: where no key of the provider's
        makes a second create harmless, and where it can be found by what is unique.
        """
        return (
            self.is_create
            and self.idempotency is None
            and self.lookup is not None
            and self.lookup.key_strength == "unique_property"
        )

    def quota_dimensions(self, endpoint_class: str) -> list[dict[str, object]]:
        """The counts of the provider's that a request of this class uses one unit of (C300)."""
        return dimensions_of(self.quota, endpoint_class)

    def quota_told(
        self,
        headers: AnswerHeaders,
        refusal: Refusal | None,
        *,
        now: datetime,
        since_sent_s: float | None = None,
    ) -> dict[str, object] | None:
        """What a request and its answer tell of those counts; None for nothing (C302)."""
        return told_of(
            self.quota, self.response, headers, refusal, now=now, since_sent_s=since_sent_s
        )

    def quota_told_of_read(
        self, status: int | None, headers: AnswerHeaders, body: bytes | None, *, now: datetime
    ) -> dict[str, object] | None:
        """Likewise the answer to a lookup, by what is declared of the write's own answers."""
        refusal = refusal_of(self.response, status, body)
        return self.quota_told(headers, refusal, now=now)

    def user_of(self, payload: bytes) -> str | None:
        """
        The person in whose name it is done; None of an operation of the organisation's own.

        Raises:
            PayloadRefused: The payload names nobody, or is no payload.
        """
        if self.user is None:
            return None
        named = parse_payload(payload).get(self.user)
        if not isinstance(named, str) or not is_user(named):
            raise PayloadRefused(
                self.user, "is required: 1 to 200 printable ASCII characters without blanks"
            )
        return named

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

    def freeze(self, payload: bytes, *, remote_id: str | None, command: UUID) -> FrozenRequest:
        """
        The exact request for this payload, link and command; the same bytes each time (C142).

        Raises:
            PayloadRefused: The payload or the id cannot become an exact request.
        """
        ids = {COMMAND: str(command)}
        if not self.is_create:
            ids[REMOTE_ID] = check_remote_id(remote_id, self.remote_id_pattern)
        elif remote_id is not None:
            raise PayloadRefused("remote id", "is given, but a create makes a new record")
        members = parse_payload(payload)
        if self.user is not None:
            del members[self.user]
        headers = list(self.headers)
        if self.condition is not None:
            members, header = self.condition.take(members)
            headers.append(header)
        key = self.idempotency.header_for(command) if self.idempotency is not None else None
        if key is not None:
            headers.append(key)
        written = written_fields(self.fields, members)
        self._check_can_be_found(written, command)
        body = fill(self.body, values=wire_values(self.fields, written), ids=ids)
        return FrozenRequest(
            method=self.method,
            target=expand_target(self.path, self.query, ids),
            headers=in_order(headers),
            body=form_body(body) if self.body_form == "form" else json_body(body),
            written=written,
            idempotency_key=key[1] if key is not None else None,
        )

    def _check_can_be_found(self, written: Mapping[str, str | None], command: UUID) -> None:
        if self.lookup is None or not (names := sorted(self.lookup.fields_used())):
            return
        local = {field.remote: field.local for field in self.fields}
        for name in names:
            value = written.get(name)
            if not value:
                raise PayloadRefused(
                    local[name], "must not be empty: a lookup would find the new record by it"
                )
            if CONTROL.search(value):
                raise PayloadRefused(
                    local[name],
                    "must not hold control characters: a lookup would find the new record by it",
                )
        if len(self.lookup.request(None, written, command=command).target) > TARGET_LENGTH_MAX:
            raise PayloadRefused(
                " and ".join(local[name] for name in names),
                "is too long to be asked for: a lookup would find the new record by it",
            )

    def read_answer(
        self, status: int, headers: AnswerHeaders, body: bytes, *, remote_id: str | None
    ) -> BodyReading:
        """
        What an answer shows; never raises for any bytes.

        The id that a create learns must be one that could be sent to later.
        """
        reading = self.response.read_body(status, headers, body, remote_id)
        if self.is_create and reading.remote_id is not None:
            try:
                self.check_remote_id(reading.remote_id)
            except PayloadRefused:
                return replace(reading, identity_matches=False, remote_id=None)
        return reading

    def reply_contract(self, headers: AnswerHeaders, *, key_is_live: bool) -> ReplyContract:
        """
        The meaning of statuses for the domain; what a body declares is in its verdict.

        An answer that the provider kept from an earlier attempt would be repeated by every
        later one, so under it the key makes nothing safe that could change.
        """
        contract = self.response
        is_kept = self.idempotency is not None and self.idempotency.is_replayed(lower_case(headers))
        return ReplyContract(
            success_statuses=frozenset(contract.success),
            rejected_statuses=frozenset(contract.rejected),
            not_applied_statuses=frozenset(contract.not_applied),
            has_live_idempotency_key=key_is_live and not is_kept,
            condition_failed_statuses=frozenset(self.condition.failed if self.condition else ()),
        )


def in_order(headers: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The headers in the one order in which they are frozen and sent."""
    return tuple(sorted(headers, key=lambda pair: pair[0].lower()))
