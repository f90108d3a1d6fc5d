"""
Identities as distinct types, and how derived ones are made.

Identities of work are derived, never drawn: a re-run, a Reset of a workflow or a repeated
acceptance computes the same one and so finds what is already there.
"""

import hashlib
from typing import NewType
from uuid import UUID

OrgId = NewType("OrgId", str)
InstallationId = NewType("InstallationId", str)
CapabilityId = NewType("CapabilityId", str)
WorkBindingDigest = NewType("WorkBindingDigest", str)
WorkBindingId = NewType("WorkBindingId", UUID)
OutboxId = NewType("OutboxId", str)
PayloadDigest = NewType("PayloadDigest", str)
"""Lower-case hex SHA-256 of the exact payload bytes."""

CommandId = NewType("CommandId", UUID)
ExecutionId = NewType("ExecutionId", UUID)
WorkId = NewType("WorkId", UUID)
AttemptId = NewType("AttemptId", UUID)
LookupId = NewType("LookupId", UUID)
EvidenceId = NewType("EvidenceId", UUID)
ViewId = NewType("ViewId", UUID)
PrincipalBindingId = NewType("PrincipalBindingId", UUID)
BindingGenerationId = NewType("BindingGenerationId", UUID)
LinkId = NewType("LinkId", UUID)
LeaseToken = NewType("LeaseToken", UUID)
OperatorId = NewType("OperatorId", UUID)
PauseId = NewType("PauseId", UUID)


def derived_id(*parts: object) -> UUID:
    """
    The identity that a name computes to (UUID version 8, from the name's SHA-256).

    The database has a twin of this function, so that a hot phase need not be told the ids of
    the rows that it may come to write.
    """
    name = ":".join(str(part) for part in parts)
    digits = hashlib.sha256(name.encode()).hexdigest()
    return UUID(f"{digits[:12]}8{digits[13:16]}8{digits[17:32]}")


def command_id(handoff_key: str) -> CommandId:
    """The one command that a handoff key may ever create."""
    return CommandId(derived_id("command", handoff_key))


def execution_id(command: CommandId) -> ExecutionId:
    """The one execution of a command."""
    return ExecutionId(derived_id(command, "execution"))


def dispatch_work_id(command: CommandId, ordinal: int) -> WorkId:
    """The `ordinal`-th dispatch item of a command, counted from 1; an operator retry adds one."""
    return WorkId(derived_id(command, "effect.dispatch", ordinal))


def family_work_id(
    org: OrgId, family: str, subject_kind: str, subject_id: str, ordinal: int
) -> WorkId:
    """The `ordinal`-th item of a family about a subject, counted from 1."""
    # The subject comes last: it alone may hold the sign that separates the parts.
    return WorkId(derived_id("work", org, family, subject_kind, ordinal, subject_id))


def slot_id(command: CommandId) -> LinkId:
    """The slot of a create, and then the link of the record that it made."""
    return LinkId(derived_id(command, "create slot"))


def attempt_id(work: WorkId, ordinal: int) -> AttemptId:
    """The `ordinal`-th effect attempt of a dispatch item, counted from 1."""
    return AttemptId(derived_id(work, "attempt", ordinal))


def lookup_work_id(attempt: AttemptId, ordinal: int = 1) -> WorkId:
    """The lookup item of an attempt; a second one only where it became unknown again."""
    return WorkId(derived_id(attempt, "effect.lookup", ordinal))


def lookup_id(work: WorkId, epoch: int) -> LookupId:
    """The lookup that one claim of a lookup item performs."""
    return LookupId(derived_id(work, "lookup", epoch))


def first_look_id(work: WorkId, token: LeaseToken) -> LookupId:
    """The look before a create that one run performs; the run's own token names it."""
    return LookupId(derived_id(work, "first look", token))


def evidence_id(attempt: AttemptId, kind: str, content: str) -> EvidenceId:
    """One piece of late evidence; the same piece told twice is one row."""
    return EvidenceId(derived_id(attempt, "evidence", kind, content))


def named_id(kind: str, org: OrgId, *names: object) -> UUID:
    """An administrator's object, known by its name inside one org."""
    return derived_id(kind, org, *names)
