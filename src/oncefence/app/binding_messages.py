"""The messages about accounts: what is to be connected, and how what is connected stands."""

from datetime import datetime
from typing import Annotated, Self
from uuid import UUID

from pydantic import Field

from oncefence.app.connecting import Begun, Wish
from oncefence.app.disconnecting import Ended
from oncefence.app.operator_messages import ActRequest, NotedRequest, OperatorAnswer, VersionText
from oncefence.domain.authorization import NOBODY, SUBJECT_LENGTH_MAX
from oncefence.domain.ids import OrgId
from oncefence.storage.phases.list_bindings import (
    ListedBinding,
    ListedGeneration,
    ListedRequest,
)

_NAME = r"^[a-z0-9][a-z0-9_-]{0,62}$"
Org = Annotated[OrgId, Field(pattern=_NAME, description="an org")]
Name = Annotated[str, Field(pattern=_NAME)]
User = Annotated[
    str,
    Field(
        min_length=1,
        max_length=SUBJECT_LENGTH_MAX,
        pattern="^[!-~]+$",
        description="whose it is, of a per-user binding",
    ),
]
Installation = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,200}$")]


class ConnectRequest(NotedRequest):
    """An account to be connected; of a name that is there, the version that was looked at."""

    org: Org
    name: Name
    provider: Name
    grant: Annotated[str, Field(min_length=1, max_length=63)]
    user: User | None = None
    installation: Installation | None = None
    base_url: Annotated[str, Field(min_length=1, max_length=300)] | None = None
    local: bool = False
    expected_version: VersionText = NOBODY

    @property
    def wish(self) -> Wish:
        return Wish(
            org=self.org,
            name=self.name,
            subject=self.user,
            provider=self.provider,
            pack_grant=self.grant,
            installation=self.installation,
            base_url=self.base_url,
            is_local=self.local,
        )


class ReauthorizeRequest(ActRequest):
    """A grant to be repaired, as the same account."""

    org: Org
    name: Name
    user: User | None = None


class DisconnectRequest(ActRequest):
    """An account to be disconnected, here and at its provider."""

    org: Org
    name: Name
    user: User | None = None
    without_revocation: bool = False


class AuthorizationBegun(OperatorAnswer):
    """A request that is open; `url` is where its person goes, null where none is needed."""

    request_id: UUID
    expires_at: datetime
    url: str | None
    outcome: str | None
    failure_class: str | None

    @classmethod
    def of(cls, begun: Begun) -> Self:
        settled = begun.settled
        return cls(
            request_id=begun.request,
            expires_at=begun.expires_at,
            url=begun.url,
            outcome=None if settled is None else settled.outcome.value,
            failure_class=None if settled is None else settled.failure_class,
        )


class AuthorizationReport(OperatorAnswer):
    """What a request came to: `open`, `under_way`, `expired`, or its outcome."""

    request_id: UUID
    act: str
    made_by: str
    note: str
    made_at: datetime
    expires_at: datetime
    used_at: datetime | None
    outcome: str
    failure_class: str | None
    response_status: int | None
    generation_id: UUID | None

    @classmethod
    def of(cls, listed: ListedRequest) -> Self:
        return cls.model_validate(listed, from_attributes=True)


class BindingRow(OperatorAnswer):
    """One account with its newest generation; `version` is what acts on it ask for."""

    org: str
    binding_id: UUID
    name: str
    provider: str
    kind: str
    user: str | None
    version: str
    state: str
    """connected, disconnected, or absent of one that was never connected"""

    grant_state: str | None
    """healthy, or what its tokens wait for"""

    grant_failure: str | None
    pack_grant: str | None
    flow: str | None
    account: str | None
    issuer: str | None
    client_id: str | None
    installation: str | None
    scopes: list[str]
    base_url: str
    is_local: bool
    connected_at: datetime | None
    retired_at: datetime | None
    retired_because: str | None
    token_version: int | None
    token_made_because: str | None
    expires_at: datetime | None
    refresh_expires_at: datetime | None
    not_before: datetime | None
    revocation: str | None
    revocation_failure: str | None
    has_key: bool
    """Whether its tokens can be opened still."""

    waiting: int
    """Items of work that wait and go through it."""

    @classmethod
    def of(cls, listed: ListedBinding) -> Self:
        return cls.model_validate(listed, from_attributes=True)


class BindingRows(OperatorAnswer):
    """The accounts of some orgs, by name."""

    bindings: list[BindingRow]


class GenerationRow(OperatorAnswer):
    """One generation of a binding."""

    generation_id: UUID
    ordinal: int
    state: str
    flow: str
    pack_grant: str | None
    issuer: str | None
    account: str | None
    installation: str | None
    scopes: list[str]
    token_version: int
    made_at: datetime
    retired_at: datetime | None
    retired_because: str | None

    @classmethod
    def of(cls, listed: ListedGeneration) -> Self:
        return cls.model_validate(listed, from_attributes=True)


class BindingReport(OperatorAnswer):
    """One account with its generations and its requests, newest first."""

    binding: BindingRow
    generations: list[GenerationRow]
    requests: list[AuthorizationReport]


class DisconnectReport(OperatorAnswer):
    """What disconnecting came to; `is_new` is false where it had been done before."""

    binding_id: UUID
    generation_id: UUID
    version: str
    is_new: bool
    revocation: str
    """revoked, refused, unsent, lost; held; or why none was made"""

    failure_class: str | None
    until: datetime | None
    """Before this a revocation would meet a renewal that is on the wire."""

    has_key: bool

    @classmethod
    def of(cls, ended: Ended) -> Self:
        done = ended.disconnected
        return cls(
            binding_id=done.binding,
            generation_id=done.generation,
            version=done.version,
            is_new=done.is_new,
            revocation=ended.revocation,
            failure_class=ended.failure_class,
            until=ended.until,
            has_key=ended.has_key,
        )
