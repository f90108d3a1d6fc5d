"""Where an error leaves for Temporal: as a family and a class name, and with no text of its own."""

import logging
from collections.abc import Awaitable
from typing import TypeVar

from temporalio.exceptions import ApplicationError

from oncefence.domain.errors import Lost, Refused, Unknown

log = logging.getLogger(__name__)
T = TypeVar("T")

_FAMILIES = ((Refused, "refused"), (Lost, "lost"), (Unknown, "unknown"))


async def at_boundary(run: Awaitable[T]) -> T:
    """
    The result of `run`; its error becomes one that is safe to show (C380).

    The text of an error may hold an address, a statement or a provider's words, and Temporal
    would keep and show it. The process's own log has the whole of it.

    Raises:
        ApplicationError: Never retried by Temporal: the workflow decides, by what SQL says.
    """
    try:
        return await run
    except Exception as error:  # noqa: BLE001  # mapped as a whole, so that nothing slips by
        raise safe_to_show(error) from None


def safe_to_show(error: Exception, *words: str) -> ApplicationError:
    """What Temporal is given in place of `error`; `words` are classifications that go with it."""
    family = next((name for kind, name in _FAMILIES if isinstance(error, kind)), "unforeseen")
    if family == "unforeseen":
        log.error("an activity ended by an error that nobody foresaw", exc_info=error)
    return ApplicationError(family, *words, type=type(error).__name__, non_retryable=True)
