"""
The error tree.

    OncefenceError
      Refused                    a rule said no; final, nothing was written
        HandoffKeyMalformed      the text is no canonical EffectHandoffKey
        ScopeRefused             the caller's scope does not cover the key; says nothing more
        HandoffConflict          the key is taken with another digest or outbox id
        HandoffAlreadyRejected   a rejection receipt stands; acceptance can never follow
        NoSuchTarget             a named view, binding, link or payload is not there
        SubjectTaken             what is to be created is there, or is being created
        InvalidTransition        the state machine has no such move
        VersionMoved             an operator's act names a version that is no longer the newest
        ActRefused               an operator's act cannot be done here; says why and what instead
        ConfigurationRefused     a process must not start like this; says what to do
      Lost                       somebody else owns it; stop quietly
        FenceLost                the lease token or the epoch is no longer the caller's
      Unknown                    it may have happened; reconcile
        StoreUnavailable         the database did not answer; re-read by business key

Each carries fields rather than prose, and none ever carries a secret, a body or another
scope's value.
"""

from dataclasses import dataclass


class OncefenceError(Exception):
    """The root of everything that oncefence raises on purpose."""


class Refused(OncefenceError):
    """A rule said no: final, and nothing was written."""


class Lost(OncefenceError):
    """Somebody else owns it now: stop quietly."""


class Unknown(OncefenceError):
    """It may have happened: reconcile before anything else."""


@dataclass(eq=False)
class HandoffKeyMalformed(Refused):
    """The text is not the canonical form of an EffectHandoffKey."""

    part: str
    reason: str

    def __str__(self) -> str:
        return f"handoff key: {self.part} {self.reason}"


@dataclass(eq=False)
class ScopeRefused(Refused):
    """
    The caller's work scope does not cover what was asked for.

    The same words for a key that exists and one that does not, so nothing can be probed.
    """

    def __str__(self) -> str:
        return "this credential's work scope does not cover the handoff key"


@dataclass(eq=False)
class HandoffConflict(Refused):
    """The handoff key is taken with another value of `field`; the conflict is on record."""

    field: str

    def __str__(self) -> str:
        return (
            f"the handoff key was used before with another {self.field}; "
            "the repeat is quarantined and the first admission stands"
        )


@dataclass(eq=False)
class HandoffAlreadyRejected(Refused):
    """A rejection receipt stands for this key, so it can never create a command."""

    handoff_key: str

    def __str__(self) -> str:
        return "the handoff key was rejected; hand the work over under a new outbox id"


@dataclass(eq=False)
class NoSuchTarget(Refused):
    """Something that the request names does not exist in the caller's org."""

    kind: str
    name: str
    remedy: str

    def __str__(self) -> str:
        return f"no {self.kind} {self.name!r}: {self.remedy}"


@dataclass(eq=False)
class SubjectTaken(Refused):
    """A record is to be created for a subject that has one, or will have one soon."""

    local_object: str
    subject: str
    is_being_created: bool

    def __str__(self) -> str:
        return f"{self.local_object} {self.subject!r} {self.reason}"

    @property
    def reason(self) -> str:
        """Why it is taken and what to do; nothing of the caller's is in it."""
        if self.is_being_created:
            return "is being created already: wait until that has ended, then ask again"
        return "has its record already: hand over an update of it"


@dataclass(eq=False)
class InvalidTransition(Refused):
    """The lifecycle has no such move."""

    lifecycle: str
    source: str
    target: str
    trigger: str

    def __str__(self) -> str:
        return f"{self.lifecycle}: no move {self.source} -> {self.target} by {self.trigger}"


@dataclass(eq=False)
class VersionMoved(Refused):
    """What an operator acts on changed since it was read (C406)."""

    subject: str
    expected: str
    found: str

    def __str__(self) -> str:
        return (
            f"{self.subject} is at version {self.found} and not at {self.expected}: "
            "look at it again, then decide"
        )


@dataclass(eq=False)
class ActRefused(Refused):
    """What an operator asks for cannot be done to this subject as it stands (C403)."""

    act: str
    subject: str
    verdict: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.act} of {self.subject} is refused ({self.verdict}): {self.remedy}"


@dataclass(eq=False)
class ConfigurationRefused(Refused):
    """A process must not run like this; the message says what to change."""

    setting: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.setting}: {self.reason}. {self.remedy}"


@dataclass(eq=False)
class FenceLost(Lost):
    """The lease token or the ownership epoch is no longer the caller's; nothing was written."""

    verb: str

    def __str__(self) -> str:
        return f"{self.verb}: the lease is no longer ours; nothing was written"


@dataclass(eq=False)
class StoreUnavailable(Unknown):
    """The database did not answer, so a write may or may not be durable."""

    verb: str
    reason: str

    def __str__(self) -> str:
        return f"{self.verb}: the database did not answer ({self.reason})"
