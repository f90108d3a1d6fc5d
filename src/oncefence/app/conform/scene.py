"""One operation at one simulated provider: send, look, and count what happened there."""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from uuid import UUID, uuid4

from oncefence.app.conform.certificate import Fact
from oncefence.app.conform.product import (
    Asked,
    Looked,
    Place,
    Sent,
    look,
    look_first,
    lookup_of,
    send,
)
from oncefence.app.conform.samples import kept_sample
from oncefence.app.conform.stage import Stage, open_stage
from oncefence.app.conform.subject import Subject
from oncefence.app.conform.trial import NotProvoked, Trial
from oncefence.catalog.conditions import ConditionForm
from oncefence.catalog.lookup import LookupContract
from oncefence.domain.effect import Outcome
from oncefence.domain.lookup import FirstLook
from oncefence.simulator.dialects.protocol import Dialect
from oncefence.simulator.faults import Fault
from oncefence.simulator.ledger import Change

PATIENCE_SECONDS: Final = 10.0
"""For what is answered: far more than a simulator on the same machine needs."""

SILENCE_SECONDS: Final = 0.6
"""For what is never answered: as short as a busy machine allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """An attempt, and what the provider's ledger has of it."""

    sent: Sent
    requests: int
    changes: tuple[Change, ...]

    @property
    def outcome(self) -> Outcome:
        """Its class."""
        return self.sent.outcome

    @property
    def is_in_doubt(self) -> bool:
        """Unknown; or safe to repeat by the key alone, and said to have been applied perhaps."""
        end = self.sent.end
        is_repeat = (
            end.outcome is Outcome.REPLAY_SAFE_RETRY
            and self.sent.request.idempotency_key is not None
        )
        return end.may_have_applied and (end.outcome is Outcome.OUTCOME_UNKNOWN or is_repeat)

    @property
    def may_repeat(self) -> bool:
        """Sent again later, as something that was surely not applied."""
        end = self.sent.end
        return end.outcome is Outcome.REPLAY_SAFE_RETRY and not end.may_have_applied

    @property
    def wait_seconds(self) -> float:
        """How long until the next attempt, dice included."""
        return self.sent.end.retry_after_seconds

    def facts(self) -> dict[str, Fact]:
        """What may be told of it."""
        return self.sent.facts() | {"requests": self.requests, "changes": len(self.changes)}


class Scene:
    """The operation's record, made anew, and the stage that it is on."""

    def __init__(self, subject: Subject, stage: Stage, trial: Trial) -> None:
        self.subject = subject
        self.stage = stage
        self.trial = trial
        self.place = Place(base_url=stage.base_url, is_local=True, token=stage.token)
        self.record = None if subject.operation.is_create else self.new_record()

    def new_record(self, properties: Mapping[str, object] | None = None) -> str:
        """The id of another record of the operation's object."""
        return self.stage.new_record(properties)

    def next_command(self) -> UUID:
        """The id of a command that there was not yet."""
        return uuid4()

    def free_id(self) -> str:
        """An id that no record has."""
        return self.stage.free_id()

    def properties_of(self, record: str) -> Mapping[str, object]:
        """What the provider keeps of the record now."""
        found = self.stage.record(record)
        return {} if found is None else found.properties

    def edit(self, record: str, properties: Mapping[str, object]) -> None:
        """A person changes the record."""
        self.stage.edit(record, properties)

    def known_of(self, record: str | None) -> str | None:
        """What a conditional write says that it knew, where it knew the record as it is now."""
        condition = self.subject.operation.condition
        found = None if record is None else self.stage.record(record)
        if condition is None or found is None:
            return None
        if condition.form is ConditionForm.HTTP_DATE:
            return found.updated_at.isoformat(timespec="seconds")
        return self.stage.version(found.id)

    def asks(
        self,
        *,
        command: UUID | None = None,
        number: int = 1,
        only: Iterable[str] | None = None,
        values: Mapping[str, object] | None = None,
        record: str | None = None,
        known: str | None = None,
    ) -> Asked:
        """
        A frozen request of `command`, or of a new one, that is not sent yet.

        A conditional write knew the record as `known`, or as it is now.
        """
        command, remote_id = command or self.next_command(), record or self.record
        request = self.subject.freeze(
            remote_id,
            command=command,
            number=number,
            only=only,
            values=values,
            known=known or self.known_of(remote_id),
        )
        return Asked(
            command=command, remote_id=remote_id, marked_at=datetime.now(UTC), request=request
        )

    async def attempt(
        self,
        case: str,
        *,
        of: Sent | None = None,
        command: UUID | None = None,
        number: int = 1,
        only: Iterable[str] | None = None,
        values: Mapping[str, object] | None = None,
        record: str | None = None,
        known: str | None = None,
        seconds: float = PATIENCE_SECONDS,
    ) -> Played:
        """
        One attempt: the next of the command of `of`, or the first of `command` or a new one.

        Raises:
            NotProvoked: What was scripted did not strike.
        """
        asked = of or self.asks(
            command=command,
            number=number,
            only=only,
            values=values,
            record=record,
            known=known,
        )
        before = self.stage.ledger
        sent = await send(self.subject, self.place, asked, seconds=seconds)
        after = self.stage.ledger
        played = Played(
            sent=sent,
            requests=len(after.exchanges()) - len(before.exchanges()),
            changes=tuple(after.changes()[len(before.changes()) :]),
        )
        self.trial.saw(case, played.facts())
        if not self.stage.is_spent():
            raise NotProvoked(f"{case}: the provider did not behave so; nothing was shown")
        return played

    async def look(self, case: str, sent: Asked, *, is_past_horizon: bool = True) -> Looked:
        """One lookup of what became of the attempt."""
        changes = len(self.stage.ledger.changes())
        looked = await look(self.subject, self.place, sent, is_past_horizon=is_past_horizon)
        self.trial.saw(case, looked.facts())
        if not self.stage.is_spent():
            raise NotProvoked(f"{case}: the provider did not behave so; nothing was shown")
        self.trial.expect(
            len(self.stage.ledger.changes()) == changes, f"{case}: the lookup changed a record"
        )
        return looked

    async def applied(self) -> Sent:
        """An attempt that was applied, and whose answer never came."""
        self.stage.script(Fault.RESET_AFTER_COMMIT)
        return (await self.attempt("applied, then reset")).sent

    async def not_applied(self) -> Sent:
        """An attempt that was not applied, and whose answer never came."""
        self.stage.script(Fault.RESET_BEFORE_ANSWER)
        return (await self.attempt("not applied, then reset")).sent

    async def look_first(self, case: str, asked: Asked) -> FirstLook:
        """What the look before a create says."""
        end = await look_first(self.subject, self.place, asked)
        self.trial.saw(
            case,
            {"status": end.response_status, "lookup": end.look.value, "reading": end.reading},
        )
        return end.look


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """How the simulator plays the provider."""

    dialect: Dialect
    is_own_word: bool
    """By the pack's own words, for want of a dialect of its own."""

    ledgers: Iterator[Path]
    """A new file for each stage."""

    custom_fields: tuple[str, ...] = ()
    """Fields that the account was given besides those that every account has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What every check of one operation is given."""

    subject: Subject
    provider: Provider
    trial: Trial

    def needs_lookup(self) -> LookupContract:
        """
        The operation's lookup.

        Raises:
            NotApplicable: It has none.
        """
        return lookup_of(self.subject)

    @asynccontextmanager
    async def scene(self, *, index_lag: timedelta | None = timedelta()) -> AsyncIterator[Scene]:
        """A fresh provider with a fresh record, until the end of the block."""
        of = self.subject.definition.object
        ledger = next(self.provider.ledgers)
        async with open_stage(
            self.provider.dialect, of=of, ledger=ledger, index_lag=index_lag
        ) as stage:
            custom = [
                field
                for field in self.subject.operation.fields
                if field.remote in self.provider.custom_fields
            ]
            if custom:
                # An account has such a field as soon as one record has it.
                stage.new_record({field.remote: kept_sample(field, 5) for field in custom})
            yield Scene(self.subject, stage, self.trial)
