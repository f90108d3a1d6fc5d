"""The examples that ship with the program: inside the wheel, or in the folder of the documents."""

from pathlib import Path
from typing import Final

BINDING: Final = "lead-title.binding.toml"
CHANGES: Final = "lead-title-changes.jsonl"

_HERE: Final = Path(__file__).resolve().parent


def example(name: str) -> Path:
    """Where the example of this name is."""
    installed = _HERE / "examples" / name
    # An editable install runs from the source tree and copies nothing.
    return installed if installed.exists() else _HERE.parents[2] / "docs" / "examples" / name
