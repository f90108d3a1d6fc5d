"""`oncefence doctor`: whether this process's surroundings can keep the promise (C11, C210)."""

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import typer

from oncefence.app import interruptible
from oncefence.app.cli import arguments
from oncefence.app.cli.exits import ExitCode
from oncefence.app.cli.screen import show_json, show_table
from oncefence.app.cli.store import opened_store, read_settings
from oncefence.app.config import Settings
from oncefence.domain.errors import ConfigurationRefused, OncefenceError
from oncefence.storage.engine import Store
from oncefence.storage.phases.examine_store import (
    StoreFacts,
    read_clock,
    read_facts,
    read_wrapped_keys,
)
from oncefence.storage.sealing import KeyRing

SKEW_SECONDS_MAX: Final = 5.0
_OPEN_TO_OTHERS: Final = 0o077
_NOT_ASKED: Final = "not asked, because an earlier check failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at: what was found and, where it is wrong, what to do."""

    name: str
    is_sound: bool
    found: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A clock as this host saw it: how far ahead of ours, and how far off that may be."""

    ahead_seconds: float
    error_seconds: float

    def differs_from(self, other: "Reading") -> float:
        """How far the two are apart at least, given how long the answers took."""
        apart = abs(self.ahead_seconds - other.ahead_seconds)
        return max(0.0, apart - self.error_seconds - other.error_seconds)


HOST: Final = Reading(ahead_seconds=0, error_seconds=0)


def doctor(*, json: arguments.Json = False) -> None:
    """Check database, Temporal, clocks, keys and time scale."""
    checks = interruptible.run(examine(read_settings()))
    if json:
        show_json(
            {
                "failed": sum(not check.is_sound for check in checks),
                "checks": [
                    {
                        "name": check.name,
                        "is_sound": check.is_sound,
                        "found": check.found,
                        "remedy": check.remedy,
                    }
                    for check in checks
                ],
            }
        )
    else:
        show_table(
            "oncefence doctor",
            ("check", "", "found", "do"),
            [(c.name, "ok" if c.is_sound else "FAILED", c.found, c.remedy) for c in checks],
        )
    if not all(check.is_sound for check in checks):
        raise typer.Exit(ExitCode.REFUSED)


async def examine(settings: Settings) -> list[Check]:
    """Every check, whether or not those before it failed."""
    clocks: dict[str, Reading] = {"host": HOST}
    checks = await _examine_store(settings, clocks)
    checks.append(await _examine_temporal(settings, clocks))
    checks.append(skew(clocks))
    return checks


async def _examine_store(settings: Settings, clocks: dict[str, Reading]) -> list[Check]:
    try:
        async with opened_store(settings) as engine:
            facts = await read_facts(engine)
            clocks["PostgreSQL"] = await read_against_host(lambda: read_clock(engine))
            return [
                Check(
                    name="database", is_sound=True, found=f"{facts.role} on {facts.server_version}"
                ),
                Check(name="schema", is_sound=True, found=f"version {facts.schema_version}"),
                durability(facts),
                _time_scale(settings, facts),
                await _keys(settings, engine),
            ]
    except OncefenceError as error:
        return [_failed("database", error), Check(name="keys", is_sound=False, found=_NOT_ASKED)]


def durability(facts: StoreFacts) -> Check:
    """Whether a committed write survives a power cut (C11)."""
    off = [
        f"{name}={value}"
        for name, value in (
            ("fsync", facts.fsync),
            ("full_page_writes", facts.full_page_writes),
            ("synchronous_commit", facts.synchronous_commit),
        )
        if value == "off" or (name == "synchronous_commit" and value == "local")
    ]
    return Check(
        name="durability",
        is_sound=not off,
        found=", ".join(off) or f"synchronous_commit={facts.synchronous_commit}, fsync=on",
        remedy="A committed write can be lost: switch this on in the server" if off else "",
    )


def _time_scale(settings: Settings, facts: StoreFacts) -> Check:
    kind = "a development database" if facts.is_development else "a production database"
    return Check(name="time scale", is_sound=True, found=f"{settings.time_scale:g} on {kind}")


async def _keys(settings: Settings, engine: Store) -> Check:
    try:
        path = settings.key_file
        ring = KeyRing.load(path)
        mode = os.stat(path).st_mode & 0o777  # noqa: PTH116  # one call, no path of our making
        stored = await read_wrapped_keys(engine)
        for each in stored:
            ring.unwrap(each.wrapped, each.key_id, each.kind, *each.place)
    except OncefenceError as error:
        return _failed("keys", error)
    if mode & _OPEN_TO_OTHERS:
        return Check(
            name="keys",
            is_sound=False,
            found=f"{path} can be read by others than its owner (mode {mode:o})",
            remedy=f"chmod 600 {path}",
        )
    return Check(name="keys", is_sound=True, found=f"opens {len(stored)} stored keys of all kinds")


async def _examine_temporal(settings: Settings, clocks: dict[str, Reading]) -> Check:
    try:
        # Imported here: only this and the two processes need it.
        from oncefence.app.bootstrap import connect_temporal  # noqa: PLC0415
        from oncefence.app.cli.temporal_clock import read_temporal_clock  # noqa: PLC0415

        client = await connect_temporal(settings)
        clocks["Temporal"] = await read_against_host(lambda: read_temporal_clock(client))
    except OncefenceError as error:
        return _failed("Temporal", error)
    found = f"namespace {settings.temporal_namespace} at {settings.temporal_address}"
    return Check(name="Temporal", is_sound=True, found=found)


async def read_against_host(read: Callable[[], Awaitable[datetime]]) -> Reading:
    """A remote clock held against ours, in the middle of the time that the answer took."""
    asked = datetime.now(UTC)
    there = await read()
    answered = datetime.now(UTC)
    half = (answered - asked) / 2
    return Reading(
        ahead_seconds=(there - (asked + half)) / timedelta(seconds=1),
        error_seconds=half / timedelta(seconds=1),
    )


def skew(clocks: dict[str, Reading]) -> Check:
    """Whether any two clocks are too far apart (C210)."""
    missing = {"host", "PostgreSQL", "Temporal"} - clocks.keys()
    pairs = [
        (first, second, clocks[first].differs_from(clocks[second]))
        for first in clocks
        for second in clocks
        if first < second
    ]
    apart = [pair for pair in pairs if pair[2] > SKEW_SECONDS_MAX]
    if apart:
        found = "; ".join(f"{one} and {two} are {by:.1f} s apart" for one, two, by in apart)
        remedy = f"Synchronise them; at most {SKEW_SECONDS_MAX:g} s are safe"
        return Check(name="clocks", is_sound=False, found=found, remedy=remedy)
    if missing:
        return Check(
            name="clocks", is_sound=False, found=f"no clock of {', '.join(sorted(missing))}"
        )
    widest = max(by for _, _, by in pairs)
    return Check(name="clocks", is_sound=True, found=f"at most {widest:.1f} s apart")


def _failed(name: str, error: OncefenceError) -> Check:
    if isinstance(error, ConfigurationRefused):
        found = f"{error.setting}: {error.reason}"
        return Check(name=name, is_sound=False, found=found, remedy=error.remedy)
    return Check(name=name, is_sound=False, found=str(error))
