"""A simulated provider of its own for one exchange or a few, so that nothing else is in it."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from datetime import timedelta
from itertools import count
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, cast

from oncefence.app.conform.bending import Bend, BendableDialect
from oncefence.app.conform.trial import NotApplicable
from oncefence.domain.redaction import Secret
from oncefence.simulator.contacts import Contact
from oncefence.simulator.dialects.protocol import Dialect
from oncefence.simulator.faults import Fault, Rule, ScriptedFault, ScriptError
from oncefence.simulator.in_process import SimulatorHere, simulating
from oncefence.simulator.ledger import Kind, Ledger

_IN_MEMORY: Final = "/dev/shm"  # noqa: S108  # a folder of its own is made in it
_HOLD: Final = "conform"
_HELD_SECONDS_MAX: Final = 10.0
_CLOSED_SECONDS: Final = 600.0
_LOOK_AGAIN_SECONDS: Final = 0.005


class Stage:
    """A running simulator of one kind of record, what it was told, and what its ledger says."""

    def __init__(self, here: SimulatorHere, dialect: BendableDialect, of: str) -> None:
        self._here = here
        self._dialect = dialect
        # A provider of one kind of record has no name for it.
        self._kind = of if of in here.dialect.objects else None
        self._rules: set[str] = set()
        self._versions = count(1)
        self.base_url = here.base_url
        self.token = Secret(here.token)

    @property
    def ledger(self) -> Ledger:
        """All that happened so far."""
        return self._here.ledger

    def new_record(self, properties: Mapping[str, object] | None = None) -> str:
        """The id of a record that was made an hour ago, with `properties` besides its own."""
        kind, record, given = self._example()
        fields = {**given, **self._next_version(), **(properties or {})}
        return self._here.add_record(record, fields, object_name=kind).id

    def free_id(self) -> str:
        """An id that no record has."""
        return self._example()[1]

    def record(self, record: str) -> Contact | None:
        """The record as it stands now."""
        return self._here.record(record, self._kind)

    def edit(self, record: str, properties: Mapping[str, object]) -> None:
        """A person changes the record."""
        fields = {**properties, **self._next_version()}
        self._here.edit(record, fields, object_name=self._kind)

    def version(self, record: str) -> str | None:
        """By what a conditional write knows the record as it stands now."""
        name, found = self._here.dialect.version, self.record(record)
        return None if name is None or found is None else found.properties.get(name)

    def script(self, fault: Fault | ScriptedFault, **keys: Any) -> None:  # as the rule has them
        """
        The next request that it can strike meets this fault.

        Raises:
            NotApplicable: The provider's language has nothing for it.
        """
        try:
            rule = Rule(fault=fault, **keys)
            self._rules.add(self._here.simulator.admin.add_rule(rule))
        except ScriptError as reason:
            raise NotApplicable(str(reason)) from None

    def is_spent(self) -> bool:
        """Whether all that was scripted has struck."""
        return self._rules <= {row.rule for row in self.ledger.of(Kind.FAULT)}

    def close(self) -> None:
        """Connections are refused from now on."""
        self.script(Fault.REFUSE, refuse_for_s=_CLOSED_SECONDS)

    def bent(self, bend: Bend) -> AbstractContextManager[None]:
        """Answers come bent until the end of the block."""
        return self._dialect.bent(bend)

    def pass_time(self, seconds: float) -> None:
        """The provider's clock is so much later."""
        self._here.advance_clock(seconds)

    @contextmanager
    def holding(self) -> Iterator[None]:
        """The next write is read, and held until the end of the block."""
        self._here.simulator.admin.add_rule(Rule(hold=_HOLD))
        try:
            yield
        finally:
            self._here.release(_HOLD)

    async def is_holding(self) -> bool:
        """True as soon as a request is held, False if none comes."""
        rulebook = self._here.simulator.stores.rulebook
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + _HELD_SECONDS_MAX
        while not rulebook.waiting():
            if loop.time() > give_up_at:
                return False
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        return True

    def _next_version(self) -> dict[str, object]:
        name = self._here.dialect.version
        return {} if name is None else {name: f'"conform-{next(self._versions)}"'}

    def _example(self) -> tuple[str | None, str, Mapping[str, Any]]:
        """The next example of this kind of record."""
        while True:
            kind, record, given = self._here.dialect.example(next(self._here.numbers))
            if kind == self._kind and self._here.record(record, kind) is None:
                return kind, record, given


@contextmanager
def ledgers() -> Iterator[Iterator[Path]]:
    """Files for ledgers, until the end of the block."""
    # Written through at every row, which costs nothing where the files are in memory.
    place = _IN_MEMORY if os.access(_IN_MEMORY, os.W_OK | os.X_OK) else None
    with tempfile.TemporaryDirectory(prefix="oncefence-conform-", dir=place) as folder:
        yield (Path(folder) / f"{number}.jsonl" for number in count(1))


@asynccontextmanager
async def open_stage(
    dialect: Dialect, *, of: str, ledger: Path, index_lag: timedelta | None
) -> AsyncIterator[Stage]:
    """
    A simulator until the end of the block; what failed in it is raised there.

    `index_lag` None is the provider's own.
    """
    bendable = BendableDialect(dialect)
    # It answers all that a dialect is asked, most of it by way of __getattr__.
    speaking = cast(Dialect, bendable)
    token = f"conform-{token_hex(12)}"
    async with simulating(speaking, token=token, ledger=ledger, index_lag=index_lag) as here:
        yield Stage(here, bendable, of)
