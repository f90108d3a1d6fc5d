"""The SQL that ships as files: the schema, the hot functions and the one-statement acceptance."""

from importlib.resources import files


def sql_file(name: str) -> str:
    """The text of `sql/<name>.sql`."""
    return files("oncefence.storage").joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
