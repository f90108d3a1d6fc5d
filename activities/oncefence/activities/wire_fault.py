"""Why a send ended, as the parts of the wire tell each other."""

from oncefence.domain.classification import SendFault


class WireFault(Exception):
    """The send ended here; carries the fault and a word from a closed list, never a text."""

    def __init__(self, fault: SendFault, note: str | None = None) -> None:
        super().__init__(fault.value)
        self.fault = fault
        self.note = note


class DeadlinePassed(BaseException):
    """
    The deadline passed before the first byte, and nothing was sent.

    Not an Exception: no layer between the stream and `http_once` may take it for a network
    error, which httpcore answers by waiting for a reply.
    """


class HookRaised(BaseException):
    """The caller's hook raised before the first byte; carries its error past all layers."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error
