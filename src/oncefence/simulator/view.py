"""A ledger for people: what came, what became of it, and how often each record was changed."""

from collections import Counter
from collections.abc import Iterator, Sequence

from oncefence.simulator.exchange import Exchange
from oncefence.simulator.ledger import Change, Ledger


def ledger_view(ledger: Ledger) -> str:
    """Every request in order, then every record that was written, then every fault."""
    requests = [
        (
            str(each.request),
            each.at[11:23],
            each.method or "?",
            each.path or "?",
            _end(each.status, is_open=each.is_open),
            _changes(each.changes),
            each.fault or "",
        )
        for each in ledger.exchanges()
    ]
    records = [
        (name, _changes(len(changes)), str(_commands(changes)), _latest(changes))
        for name, changes in _by_record(ledger.changes())
    ]
    faults = sorted(ledger.faults_fired().items())
    parts = [
        _table(("request", "at", "method", "target", "end", "applied", "fault"), requests),
        _table(("record", "applied", "commands", "last values"), records),
        _table(("fault", "fired"), [(name, str(times)) for name, times in faults]),
    ]
    return "\n\n".join(parts) + "\n"


def exchange_line(exchange: Exchange) -> str:
    """One request and its end."""
    mark = exchange.mark
    end = _end(exchange.status, is_open=False)
    fault = f"  [{exchange.fault}]" if exchange.fault else ""
    return f"{mark.method} {mark.path} -> {end}, {_changes(exchange.changes)}{fault}"


def _by_record(changes: Sequence[Change]) -> Iterator[tuple[str, list[Change]]]:
    found: dict[str, list[Change]] = {}
    for change in changes:
        kind = f"{change.object} " if change.object else ""
        account = f" in account {change.account}" if change.account else ""
        found.setdefault(f"{kind}{change.contact}{account}", []).append(change)
    yield from found.items()


def _commands(changes: Sequence[Change]) -> int:
    return len(Counter(change.command for change in changes if change.command is not None))


def _latest(changes: Sequence[Change]) -> str:
    values = {name: value for change in changes for name, value in change.properties.items()}
    return ", ".join(f"{name}={value!r}" for name, value in values.items())


def _end(status: int | None, *, is_open: bool) -> str:
    if status is not None:
        return str(status)
    return "in flight" if is_open else "no whole answer"


def _changes(number: int) -> str:
    return {0: "no change", 1: "1 change"}.get(number, f"{number} changes")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, *(tuple(map(_printable, row)) for row in rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(head))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _printable(text: str) -> str:
    # A record's text must not clear a screen or forge a line.
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
