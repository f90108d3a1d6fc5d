"""A pack's certificate against the simulator."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from oncefence.app.conform import (
    conditions,
    disclosure,
    fields,
    keys,
    lookups,
    losses,
    refusals,
    searches,
    success,
    waits,
)
from oncefence.app.conform.certificate import Certificate, CheckReport
from oncefence.app.conform.check import Check, run_checks
from oncefence.app.conform.product import PRODUCT
from oncefence.app.conform.scene import Provider
from oncefence.app.conform.stage import ledgers
from oncefence.app.conform.subject import subjects
from oncefence.catalog.definitions import ProviderPack
from oncefence.domain.errors import Refused
from oncefence.simulator.dialects.known import DIALECTS, dialect_of
from oncefence.simulator.dialects.pack_file import PackUnusable

CHECKS: Final[tuple[Check, ...]] = (
    *success.CHECKS,
    *waits.CHECKS,
    *refusals.CHECKS,
    *conditions.CHECKS,
    *losses.CHECKS,
    *keys.CHECKS,
    *lookups.CHECKS,
    *searches.CHECKS,
    *fields.CHECKS,
    *disclosure.CHECKS,
)


class PackNotPlayable(Refused):
    """The simulator cannot play a provider by this pack."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"the simulator cannot play this pack: {self.reason}. Certify it at a sandbox of the "
            "provider instead (--sandbox)"
        )


async def certify(
    pack: ProviderPack, *, only: str | None = None, custom_fields: Sequence[str] = ()
) -> Certificate:
    """
    Every check of every operation, or of the one that is named.

    Raises:
        CatalogError: The pack has no operation of that name.
        PackNotPlayable: The provider has no dialect, and none can be made of the pack.
    """
    is_own_word = pack.name not in DIALECTS
    try:
        dialect = dialect_of(pack.model_dump(mode="json") if is_own_word else pack.name)
    except PackUnusable as reason:
        raise PackNotPlayable(str(reason)) from None
    reports: list[CheckReport] = []
    with ledgers() as files:
        provider = Provider(
            dialect=dialect,
            is_own_word=is_own_word,
            ledgers=files,
            custom_fields=tuple(custom_fields),
        )
        for subject in subjects(pack, only=only):
            reports += await run_checks(CHECKS, subject, provider)
    return Certificate(
        pack=pack.name,
        pack_format=pack.format,
        pack_digest=pack.digest,
        issued_at=datetime.now(UTC),
        product=PRODUCT,
        provider="simulator",
        truth=(
            "the pack's own words: no dialect of this provider is built in"
            if is_own_word
            else f"the simulator's dialect of {dialect.title}"
        ),
        checks=tuple(reports),
    )
