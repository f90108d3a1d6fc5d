"""
How the verbs speak: results on standard output, everything else on standard error.

Text that came from outside is shown with its control characters made visible: a subject must not
be able to clear a screen, forge a line or turn the reading direction around.
"""

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Any, Final
from uuid import UUID

from rich.console import Console
from rich.table import Table
from rich.text import Text

# Controls, line and paragraph separators, and the marks that change the direction of text.
_UNSEEN: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
_WIDTH_WITHOUT_TERMINAL: Final = 160


def printable(text: str) -> str:
    """`text` on one line, with whatever would act instead of show written as an escape."""
    return _UNSEEN.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


def say(text: str) -> None:
    """One line of result."""
    sys.stdout.write(f"{printable(text)}\n")


def note(text: str) -> None:
    """One line that is no result."""
    sys.stderr.write(f"oncefence: {printable(text)}\n")


def show_json(value: object) -> None:
    """A result for machines; text beyond ASCII is escaped, so that any terminal can take it."""
    sys.stdout.write(json_text(value))


def json_text(value: object) -> str:
    """One JSON document and its newline."""
    return json.dumps(value, default=_plain, indent=2) + "\n"


def show_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table of results; nothing in it is read as markup."""
    table = Table(title=Text(title), title_justify="left", show_edge=False, pad_edge=False)
    for column in columns:
        table.add_column(Text(column), overflow="fold")
    for row in rows:
        table.add_row(*(Text(shown(cell)) for cell in row))
    _console().print(table)


def show_record(title: str, record: Mapping[str, object]) -> None:
    """One row, a line for each of its values; what is not set is left out."""
    table = Table(title=Text(title), title_justify="left", show_edge=False, show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in record.items():
        if value is not None:
            table.add_row(Text(name.replace("_", " ")), Text(shown(value)))
    _console().print(table)


def shown(value: object) -> str:
    """A value as a person reads it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="milliseconds")
    if isinstance(value, Mapping | list | tuple):
        return printable(json.dumps(value, default=_plain, ensure_ascii=False))
    return printable(str(value))


def _console() -> Console:
    width = None if sys.stdout.isatty() else _WIDTH_WITHOUT_TERMINAL
    return Console(file=sys.stdout, width=width, highlight=False, soft_wrap=False)


def _plain(value: object) -> Any:
    """What JSON has no form for; Any, because that is what `json` asks of it."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, frozenset | set):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
