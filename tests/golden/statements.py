"""
The SQL that the modules of the store send, as text to be reviewed.

    python -m tests.golden.statements

writes `tests/golden/sql/`; the difference belongs in the review of the change that made it.
"""

import importlib
import pkgutil
from pathlib import Path

from sqlalchemy.dialects.postgresql.base import PGDialect
from sqlalchemy.sql import Delete, Insert, Select, Update

import oncefence.storage

FOLDER = Path(__file__).parent / "sql"


def rendered() -> dict[str, str]:
    """The statements of each module of the store, by the name of its file."""
    found = {}
    for module in sorted(each.name for each in pkgutil.iter_modules(oncefence.storage.__path__)):
        if module in ("migrations", "phases"):
            continue
        statements = [
            f"-- {name}\n{_text(value)};\n"
            for name, value in vars(importlib.import_module(f"oncefence.storage.{module}")).items()
            if name.isupper() and isinstance(value, Insert | Select | Update | Delete)
        ]
        if statements:
            found[f"{module}.sql"] = "\n".join(statements)
    return found


def _text(statement: Insert | Select | Update | Delete) -> str:
    compiled = statement.compile(dialect=PGDialect(paramstyle="named"))
    text = str(compiled)
    # An IN is filled when it is sent; here it shows what it will be filled with.
    for bind in compiled.post_compile_params:
        values = ", ".join(f"'{value}'" for value in bind.value)
        text = text.replace(f"__[POSTCOMPILE_{compiled.bind_names[bind]}]", values)
    return "\n".join(line.rstrip() for line in text.splitlines())


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.sql"):
        old.unlink()
    for name, text in rendered().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
