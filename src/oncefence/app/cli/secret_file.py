"""Secrets that a person hands over: in a file that its owner alone can read."""

import os
from pathlib import Path
from typing import Final

from oncefence.domain.errors import ConfigurationRefused
from oncefence.domain.redaction import Secret

_BYTES_MAX: Final = 16_384
_OPEN_TO_OTHERS: Final = 0o077


def read_secret(path: Path, *, setting: str, is_text: bool = False) -> Secret:
    """
    The secret in a file, without one newline at its end; `is_text` is one of several lines.

    Raises:
        ConfigurationRefused: There is no such file, others may read it, or it holds no secret.
    """

    def refused(reason: str, remedy: str) -> ConfigurationRefused:
        return ConfigurationRefused(setting=setting, reason=f"{path} {reason}", remedy=remedy)

    try:
        # Asked of the open file, so that it is the same one that is read.
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(_BYTES_MAX + 1)
    except OSError as error:
        raise refused(f"cannot be read ({error.strerror})", "Name a readable file") from None
    if mode & _OPEN_TO_OTHERS:
        raise refused("can be read by others than its owner", f"chmod 600 {path}")
    secret = content.removesuffix(b"\n").removesuffix(b"\r")
    if not secret:
        raise refused("is empty", "Write the token into it")
    if len(content) > _BYTES_MAX:
        raise refused(f"has more than {_BYTES_MAX} bytes", "Name the file of the token alone")
    allowed = b"\n\r\t " if is_text else b""
    if not all(0x21 <= byte <= 0x7E or byte in allowed for byte in secret):
        raise refused(
            "holds blanks, line ends or characters beyond ASCII, which no token has",
            "Write the token alone into it, on one line",
        )
    return Secret(secret.decode("ascii"))
