"""Every error of the transport has a fault, and none loses the phase."""

import inspect
from typing import Any

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


class TestErrorsOfTheTransport:
    @pytest.mark.parametrize("library", [httpx, httpcore])
    def test_are_mapped_one_by_one(self, library: Any) -> None:
        """An upgrade that brings a new error must be read before it is used (C246)."""
        defined = {
            member
            for _, member in inspect.getmembers(library, inspect.isclass)
            if issubclass(member, Exception)
        }

        assert len(defined) >= 15
        assert {error.__qualname__ for error in defined - set(module._FAULTS)} == set()

    def test_that_nobody_foresaw_are_unexpected(self) -> None:
        """Even then there is a fault, and the phase still decides."""
        assert fault_of(RuntimeError("?")) is SendFault.UNEXPECTED

    async def test_that_nobody_foresaw_do_not_lose_the_phase(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """After the first byte an error of our own is an unknown outcome, not a crash (C247)."""

        def explode(*_: object) -> bool:
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
