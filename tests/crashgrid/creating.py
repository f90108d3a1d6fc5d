"""
The provider at which the grid makes records, with a key for its creates and without one.

Each cell has one to itself: until it is made, a record has no id by which a fault could find it.
"""

import re
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from oncefence.catalog.view import IntegrationBindingView
from oncefence.simulator.in_process import SimulatorHere, simulating
from tests.crashgrid.cell import Cell, Story
from tests.support.books import CREATE, OPEN, TOKEN
from tests.support.dialect import DATA, Dialect

_PACK: Final = (DATA / "packs" / "books.toml").read_text("utf-8")
_BINDING: Final = (DATA / "books.binding.toml").read_text("utf-8")
_SENDS_WITHIN: Final = "total_deadline_ms = 2000"
_READS: Final = 'endpoint_class = "accounts.read"'
_UNIQUE: Final = 'key_strength = "unique_property"'


def _only(text: str, operation: str) -> str:
    """The text without its other operations."""
    tables = re.split(r"^(?=\[)", text, flags=re.MULTILINE)
    mine = f'[operations."{operation}"'
    return "".join(
        table for table in tables if table.startswith(mine) or not table.startswith("[operations.")
    )


def _dialect(pack_operation: str, operation: str) -> Dialect:
    pack = _only(_PACK, pack_operation)
    # Simulator and database run on one clock, which one shows by the millisecond alone.
    return Dialect(
        pack_name="books",
        pack_text=pack.replace("skew_s = 0", "skew_s = 1"),
        binding_text=_only(_BINDING, operation),
        token=TOKEN,
    )


DIALECTS: Final = {
    Story.CREATE: _dialect("account.create", CREATE),
    Story.LOOK_FIRST: _dialect("account.open", OPEN),
}


def view_of(dialect: Dialect, *, local_ms: int, regular_ms: int) -> IntegrationBindingView:
    """The view whose operation and whose lookups have these deadlines."""
    text = dialect.pack_text
    assert text.count(_SENDS_WITHIN) == text.count(_READS) == 1, "one operation and its lookup"
    text = text.replace(_SENDS_WITHIN, f"total_deadline_ms = {local_ms}")
    text = text.replace(_READS, f"{_READS}\ntotal_deadline_ms = {local_ms}")
    return Dialect(
        pack_name=dialect.pack_name,
        pack_text=text,
        binding_text=dialect.binding_text,
        token=dialect.token,
    ).view(regular_ms=regular_ms)


@asynccontextmanager
async def provider_of(cell: Cell, ledger: Path) -> AsyncIterator[SimulatorHere]:
    """The provider of this cell, until the block ends."""
    # It says that a property is unique and does not see to it: no twin is kept away but by us.
    text = DIALECTS[cell.story].pack_text.replace(_UNIQUE, 'key_strength = "fuzzy"')
    async with simulating(tomllib.loads(text), token=TOKEN, ledger=ledger) as provider:
        yield provider
