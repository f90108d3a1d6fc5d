"""
What must never be seen: a value that can be used and not shown.

The only way to the value of a `Secret` is `reveal()`, so a search for that word finds every use.
"""

import hmac
from typing import Final, NoReturn, Self

_SHOWN: Final = "***"


class Concealed:
    """
    What shows a fixed placeholder wherever it is printed, and does not leave the process (C444).

    No repr, format, log line or traceback with its variables has more than the name of the class;
    it is neither pickled nor copied into a dict, and has no hash.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({_SHOWN})"

    def __str__(self) -> str:
        return repr(self)

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    # A hash of a short secret is a way to guess it, and no container needs one.
    __hash__ = None  # type: ignore[assignment]  # how Python spells "unhashable"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        # `dataclasses.asdict` copies deeply; what it makes must hide the value as well.
        return self

    def __getstate__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} has no state that could be written down")

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} is not pickled: it would leave the process in clear"
        )


class Secret(Concealed):
    """
    A token, key or password.

    It cannot be turned into JSON either, and it has no length, so that it tells nothing about
    itself.
    """

    __slots__ = ("_value",)
    _value: str

    def __init__(self, value: str) -> None:
        if not value:
            raise ValueError("a secret is empty: give the token, key or password itself")
        object.__setattr__(self, "_value", value)

    def reveal(self) -> str:
        """Return the value in clear; the caller keeps it out of every message and name."""
        return self._value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._value.encode(), other._value.encode())

    # Whoever says what equals it has to say again that it has no hash.
    __hash__ = None

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a secret does not change")
