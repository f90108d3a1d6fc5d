"""What a data folder remembers of its stack from one start to the next."""

import json
import os
import secrets
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

from oncefence.domain.errors import ConfigurationRefused

_FILE = "stack.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class StackState:
    """
    The names and numbers of one folder.

    The task queue holds a random part: a Temporal of one's own may serve several folders, and no
    worker may take the work of another database.
    """

    task_queue: str
    time_scale: float

    @classmethod
    def opened(cls, folder: Path, *, time_scale: float | None) -> Self:
        """
        The state of `folder`, made now where there is none; a scale that is given stands.

        Raises:
            ConfigurationRefused: The file is damaged.
        """
        path = folder / _FILE
        try:
            state = cls(**json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            state = cls(task_queue=f"oncefence-{secrets.token_hex(3)}", time_scale=1.0)
        except (OSError, ValueError, TypeError):
            raise ConfigurationRefused(
                setting="--data",
                reason=f"{path} is not readable",
                remedy="Name another folder, or remove this one with what it holds",
            ) from None
        if time_scale is not None:
            state = replace(state, time_scale=time_scale)
        write_privately(path, json.dumps(asdict(state)) + "\n")
        return state


def write_privately(path: Path, text: str) -> None:
    """`path` holds `text`, whole, and nobody but its owner may read it."""
    write_whole(path, text, mode=0o600)


def write_whole(path: Path, text: str, *, mode: int = 0o644) -> None:
    """`path` holds `text`; whoever looks meanwhile finds what was there before."""
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            os.fchmod(handle, mode)
            file.write(text)
            file.flush()
            os.fsync(handle)
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
