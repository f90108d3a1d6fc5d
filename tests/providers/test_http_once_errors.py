"""Every error of the transport has a fault, and none loses the phase."""

import ssl
import sys
from types import ModuleType

import h11
import httpcore
import httpx
import pytest

from oncefence.activities import http_once as module
from oncefence.activities.http_once import (
    PhaseJournal,
    fault_of,
)
from oncefence.domain.classification import SendFault, WirePhase
from tests.providers.raw_server import answer, raw_server, replies
from tests.providers.sending import send

LIBRARIES = (httpx, httpcore, h11, ssl)


def errors_of(library: ModuleType) -> set[type[Exception]]:
    """Every error that the library defines, in whichever of its modules."""
    prefix = library.__name__
    modules = [
        module
        for name, module in sorted(sys.modules.items())
        if name == prefix or name.startswith(f"{prefix}.")
    ]
    return {
        member
        for module in modules
        for member in vars(module).values()
        if isinstance(member, type)
        and issubclass(member, Exception)
        and (member.__module__ == prefix or member.__module__.startswith(f"{prefix}."))
    }


def unread(library: ModuleType) -> set[str]:
    """The errors of the library that no fault is named for."""
    return {
        f"{error.__module__}.{error.__qualname__}"
        for error in errors_of(library) - set(module._FAULTS)
    }


class TestErrorsOfTheTransport:
    @pytest.mark.parametrize("library", LIBRARIES, ids=lambda each: each.__name__)
    def test_are_mapped_one_by_one(self, library: ModuleType) -> None:
        """An upgrade that brings a new error must be read before it is used (C246)."""
        assert unread(library) == set()

    def test_are_all_found(self) -> None:
        """A walk that finds too little would let everything pass."""
        found = {library.__name__: len(errors_of(library)) for library in LIBRARIES}

        assert found["httpx"] >= 27
        assert found["httpcore"] >= 15
        assert found["h11"] >= 3
        assert found["ssl"] >= 7

    def test_of_a_new_version_are_seen(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A rule that cannot fail guards nothing: at the top, or deep inside where it is raised."""
        new = type("ConnectionMigrated", (httpcore.NetworkError,), {"__module__": "httpcore._new"})
        inside = ModuleType("httpcore._new")
        monkeypatch.setattr(inside, "ConnectionMigrated", new, raising=False)
        monkeypatch.setitem(sys.modules, "httpcore._new", inside)
        top = type("NewlyThought", (Exception,), {"__module__": "httpx"})
        monkeypatch.setattr(httpx, "NewlyThought", top, raising=False)

        assert unread(httpcore) == {"httpcore._new.ConnectionMigrated"}
        assert unread(httpx) == {"httpx.NewlyThought"}
        # And yet it has a fault at once, by what it is made of; the phase decides anyhow.
        assert fault_of(new()) is SendFault.LOST

    def test_that_are_gone_are_mapped_no_more(self) -> None:
        """An error that no library has any longer is a line that nobody can check."""
        known = {OSError}.union(*(errors_of(library) for library in LIBRARIES))

        assert set(module._FAULTS) - known == set()

    def test_that_nobody_foresaw_are_unexpected(self) -> None:
        """Even then there is a fault, and the phase still decides."""
        assert fault_of(RuntimeError("?")) is SendFault.UNEXPECTED

    async def test_that_nobody_foresaw_do_not_lose_the_phase(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """After the first byte an error of our own is an unknown outcome, not a crash (C247)."""

        async def explode(*_: object) -> bool:
            raise ZeroDivisionError

        monkeypatch.setattr(module, "has_bytes_after_the_answer", explode)
        async with raw_server(replies(answer())) as server:
            result = await send(server)

        assert (result.fault, result.complete) == (SendFault.UNEXPECTED, False)
        assert result.phase is WirePhase.FIRST_BYTE_IN
        assert result.journal.as_evidence()["note"] == "ZeroDivisionError"

    def test_speak_of_the_versions_that_were_read(self) -> None:
        """The guard rests on how these parsers are called: a new major line is read first."""
        assert httpcore.__version__.split(".")[0] == "1"
        assert h11.__version__.split(".")[:2] >= ["0", "16"]


class TestPhaseJournal:
    def test_never_goes_back(self) -> None:
        """An answer may begin before the request is all out; the furthest phase counts (C244)."""
        moments = iter([10.0, 10.001, 10.005, 10.009])
        journal = PhaseJournal(clock=lambda: next(moments))
        journal.reach(WirePhase.FIRST_BYTE_IN)
        journal.reach(WirePhase.ALL_OUT)
        journal.reach(WirePhase.ALL_OUT)

        assert journal.as_evidence() == {
            "phase": "first_byte_in",
            "bytes_out": 0,
            "bytes_in": 0,
            "all_out_ms": 5,
            "first_byte_in_ms": 1,
        }
