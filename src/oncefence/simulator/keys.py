"""
Idempotency keys: what was asked under each, what was answered, and for how long that is kept.

Sole owner of the keys. A key whose request is being served is in flight and kept nowhere else; an
answer with a change is kept in the row of that change, any other in a row of its own.
"""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from oncefence.simulator.clock import Clock
from oncefence.simulator.dialects.protocol import KeyRule, KeyTrouble
from oncefence.simulator.journal import Journal, stamp
from oncefence.simulator.ledger import Kind, Ledger, Row
from oncefence.simulator.wire import Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    digest: str
    since: datetime
    answer: Answer


class Keys:
    """The keys of one provider, by account."""

    def __init__(self, journal: Journal, clock: Clock, rule: KeyRule | None) -> None:
        self._journal = journal
        self._clock = clock
        self._rule = rule
        self._kept: dict[tuple[str | None, str], _Kept] = {}
        self._in_flight: set[tuple[str | None, str]] = set()

    def replay(self, ledger: Ledger) -> None:
        """The keys stand as the ledger left them."""
        for row in ledger.rows:
            if row.key is None:
                continue
            if row.kind is Kind.FORGOTTEN:
                self._kept.pop((row.account, row.key), None)
            elif row.kept is not None:
                self._take_in(row.account, row.key, row.kept)

    def look(self, account: str | None, key: str, digest: str) -> Answer | KeyTrouble | None:
        """What the key has in store for a request, or None: then the request is a new one."""
        if not key or (self._rule is not None and len(key) > self._rule.length_max):
            return KeyTrouble.UNUSABLE
        kept = self._find(account, key)
        if kept is None:
            # A request that has changed something keeps its answer, however long that is in
            # coming: only one that has not yet done so stands in its twin's way.
            return KeyTrouble.IN_FLIGHT if (account, key) in self._in_flight else None
        if kept.digest != digest:
            return KeyTrouble.OTHER_PARAMETERS
        mark = self._rule.replayed if self._rule is not None else None
        headers = {**kept.answer.headers, **(dict([mark]) if mark is not None else {})}
        return replace(kept.answer, headers=headers)

    def is_kept(self, account: str | None, key: str) -> bool:
        """There is an answer under this key."""
        return self._find(account, key) is not None

    @contextmanager
    def in_flight(self, account: str | None, key: str | None) -> Iterator[None]:
        """While this lasts, a twin of the request is refused."""
        if key is None:
            yield
            return
        self._in_flight.add((account, key))
        try:
            yield
        finally:
            self._in_flight.discard((account, key))

    def record(self, digest: str, answer: Answer) -> Mapping[str, Any]:
        """What is kept of an answer, for the row of the change that it belongs to."""
        return {
            "digest": digest,
            "since": stamp(self._clock.now()),
            "status": answer.status,
            "headers": dict(answer.headers),
            "body": answer.body,
        }

    def keep_changed(self, account: str | None, key: str, record: Mapping[str, Any]) -> None:
        """The answer of a change whose row has it already."""
        self._take_in(account, key, record)

    def keep(self, account: str | None, key: str, digest: str, answer: Answer) -> None:
        """An answer without a change."""
        record = self.record(digest, answer)
        self._journal.append(Row(kind=Kind.KEPT, key=key, account=account, kept=record))
        self._take_in(account, key, record)

    def forget(self, account: str | None, key: str) -> None:
        """The key is as good as new, before its time."""
        self._journal.append(Row(kind=Kind.FORGOTTEN, key=key, account=account))
        self._kept.pop((account, key), None)

    def _find(self, account: str | None, key: str) -> _Kept | None:
        kept = self._kept.get((account, key))
        if kept is None or self._rule is None:
            return None
        return kept if self._clock.now() - kept.since < self._rule.kept_for else None

    def _take_in(self, account: str | None, key: str, record: Mapping[str, Any]) -> None:
        self._kept[account, key] = _Kept(
            digest=record["digest"],
            since=datetime.fromisoformat(record["since"]),
            answer=Answer(status=record["status"], headers=record["headers"], body=record["body"]),
        )


def digest_of(fingerprint: bytes) -> str:
    """The fingerprint of a request, short enough for a row."""
    return hashlib.sha256(fingerprint).hexdigest()[:32]
