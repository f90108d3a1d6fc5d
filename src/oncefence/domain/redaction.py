"""
What must never be seen: a value that can be used and not shown.

The only way to the value is `reveal()`, so a search for that word finds every use.
"""

import hmac
from typing import Final, NoReturn, Self

_SHOWN: Final = "Secret(***)"


class Secret:
    """
    A token, key or password that shows a fixed placeholder wherever it is printed (C444).

    It cannot be pickled or turned into JSON, and it has no length and no hash, so that it
    neither leaves the process by accident nor tells anything about itself.
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

    def __repr__(self) -> str:
        return _SHOWN

    def __str__(self) -> str:
        return _SHOWN

    def __format__(self, spec: str) -> str:
        return format(_SHOWN, spec)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._value.encode(), other._value.encode())

    # A hash of a short secret is a way to guess it, and no container needs one.
    __hash__ = None  # type: ignore[assignment]  # how Python spells "unhashable"

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a secret does not change")

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        # `dataclasses.asdict` copies deeply; what it makes must hide the value as well.
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a secret is not pickled: it would leave the process in clear")
