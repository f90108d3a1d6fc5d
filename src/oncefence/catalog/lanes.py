"""Lanes as data: what a pack says must be in order, and what a binding adds (C226, C230)."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BeforeValidator

from oncefence.catalog.canonical import Model


def _no_tenant_wide(lane: object) -> object:
    if lane in ("tenant", "org", "organisation", "organization", "installation", "binding", "all"):
        raise ValueError(
            "a tenant-wide lane would put all work of the tenant in one file behind one "
            "another; use 'subject' for the source and 'link' for the target"
        )
    return lane


Source = Annotated[Literal["subject", "none"], BeforeValidator(_no_tenant_wide)]
Target = Annotated[Literal["link", "none"], BeforeValidator(_no_tenant_wide)]


class Lanes(Model):
    """
    What must happen one after the other; narrower than a tenant in any case.

    By source, all that one local record gives rise to; by target, all that changes one remote
    record. `none` lets each go on its own.
    """

    source: Source = "subject"
    target: Target = "link"


class LaneChoice(Model):
    """A binding's own word on its operation's lanes; what it leaves out is as the pack says."""

    source: Source | None = None
    target: Target | None = None

    def upon(self, lanes: Lanes) -> Lanes:
        """The lanes of an operation whose pack says `lanes`."""
        return Lanes(source=self.source or lanes.source, target=self.target or lanes.target)


def loosened(choice: LaneChoice, lanes: Lanes) -> Iterator[tuple[str, str]]:
    """What a binding takes away that its pack holds to be needed, with the reason against it."""
    for part, mine, theirs in (
        ("source", choice.source, lanes.source),
        ("target", choice.target, lanes.target),
    ):
        if mine == "none" and theirs != "none":
            yield part, f"must stay {theirs!r}: a binding may add order to its pack's, not drop it"
