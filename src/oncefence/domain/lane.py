"""Lanes: what must happen one after the other, by source record and by target record."""

from oncefence.domain.ids import BindingGenerationId, LinkId


def source_lane(subject: str) -> str:
    """The lane of everything that one local record gives rise to; unique inside its org."""
    return f"source:{subject}"


def target_lane(generation: BindingGenerationId, link: LinkId) -> str:
    """The lane of everything that changes one remote record under one authority."""
    return f"target:{generation}:{link}"
