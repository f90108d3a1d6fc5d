"""The data folders of demo runs: one for each run, and not too many of them."""

import fcntl
import re
import shutil
from datetime import datetime
from pathlib import Path
from typing import Final

from oncefence.domain.errors import ConfigurationRefused

KEPT: Final = 5
_PLACE: Final = Path(".oncefence")
_NAME: Final = re.compile(r"demo-\d{8}-\d{6}(-\d+)?")


def named_folder(folder: Path) -> Path:
    """
    The folder that the user named, which must hold nothing yet.

    Raises:
        ConfigurationRefused: It holds something, or is none.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationRefused(
            setting="--keep",
            reason=f"{folder} is not an empty folder",
            remedy="Name one that is empty or not there; each run has data of its own",
        )
    return folder.absolute()


def fresh_folder() -> Path:
    """A folder of this run's own, made; the oldest of earlier runs are removed for it."""
    place = _PLACE.absolute()
    _forget_old(place)
    stem = f"demo-{datetime.now().astimezone():%Y%m%d-%H%M%S}"
    for number in range(1, 100):
        folder = place / (stem if number == 1 else f"{stem}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise ConfigurationRefused(
                setting="--keep",
                reason=f"{folder} cannot be made ({error.strerror})",
                remedy="Name another folder, or run this in a folder that can be written",
            ) from None
        return folder
    raise AssertionError("a hundred runs began in one second")


def _forget_old(place: Path) -> None:
    if not place.is_dir():
        return
    ours = sorted(
        folder
        for folder in place.iterdir()
        if _NAME.fullmatch(folder.name) and (folder / "stack.json").is_file()
    )
    for folder in ours[: max(0, len(ours) - KEPT + 1)]:
        with (folder / "lock").open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue  # it runs just now
            shutil.rmtree(folder, ignore_errors=True)  # what stays is tried again by the next run
