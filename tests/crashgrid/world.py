"""What cells share: the accounts' providers, two views of each, the keys, and the limits."""

import json
import secrets
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from oncefence.catalog.view import IntegrationBindingView
from oncefence.domain.limits import Limits
from oncefence.storage.sealing import KeyRing
from tests.crashgrid import creating
from tests.crashgrid.cell import Cell, Story
from tests.support.dialect import Dialect, shipped_dialect

LIMITS: Final = Limits(time_scale=0.000_05)
"""The five waits take 1.3 seconds in all, and a lease outlives its send deadline by a tenth."""

SUBJECT: Final = "lead-1"
TITLE: Final = "Director"
LOCAL_MS: Final = 400
REGULAR_MS: Final = 450

_DIALECT = shipped_dialect()
_SHIPPED_MS = "total_deadline_ms = 8000"


def _fast_dialect() -> Dialect:
    """As shipped, but nobody waits for eight seconds; the lookups neither."""
    text = _DIALECT.pack_text
    assert text.count(_SHIPPED_MS) == 2, "the operation and its lookup name their deadlines"
    return Dialect(
        pack_name=_DIALECT.pack_name,
        pack_text=text.replace(_SHIPPED_MS, f"total_deadline_ms = {LOCAL_MS}"),
        binding_text=_DIALECT.binding_text,
        token=_DIALECT.token,
    )


FAST_VIEW: Final = _fast_dialect().view(regular_ms=REGULAR_MS)
REAL_VIEW: Final = _DIALECT.view()
_CREATING: Final = {
    story: creating.view_of(dialect, local_ms=LOCAL_MS, regular_ms=REGULAR_MS)
    for story, dialect in creating.DIALECTS.items()
}
_CREATING_FOR_REAL: Final = {
    story: creating.view_of(dialect, local_ms=8_000, regular_ms=9_000)
    for story, dialect in creating.DIALECTS.items()
}
RING: Final = KeyRing({"grid-key": secrets.token_bytes(32)})
"""Made before the forks, so that every process of a run has the same."""

SIGNING_KEY: Final = Ed25519PrivateKey.generate()
PUBLIC_KEY: Final = SIGNING_KEY.public_key().public_bytes_raw()


TOKEN: Final = _DIALECT.token
"""The one that the shared simulator knows."""


def view_of(cell: Cell) -> IntegrationBindingView:
    """The view that the cell's account is bound by."""
    # Where nothing goes wrong nothing may be unknown, however busy this machine is.
    if cell.story.makes_record:
        return (_CREATING_FOR_REAL if cell.is_faultless else _CREATING)[cell.story]
    return REAL_VIEW if cell.is_faultless else FAST_VIEW


def operation_of(cell: Cell) -> str:
    """The operation that the cell's Runtime asks for."""
    return _dialect_of(cell.story).operation_of(cell.form)


def token_of(cell: Cell) -> str:
    """The token of the cell's account."""
    return _dialect_of(cell.story).token


def payload_of(cell: Cell) -> bytes:
    """What the cell's Runtime hands over."""
    if cell.story.makes_record:
        return json.dumps({"email": f"{cell.name}@example.com", "plan": "basic"}).encode()
    return json.dumps({"title": TITLE}).encode()


def _dialect_of(story: Story) -> Dialect:
    return creating.DIALECTS.get(story, _DIALECT)
