"""One writer for each table, and transactions in the phases alone."""

import ast
import re
from collections import defaultdict
from functools import cache

import pytest

from tests.tidy import tree

TABLES = tree.STORAGE + "tables.py"
OWNERS = "docs/fact-owners.md"
# The definitions of how a connection is made and lent, and Alembic's own entry, are no phases.
BEGINNERS = (
    tree.PHASES,
    tree.STORAGE + "engine.py",
    tree.STORAGE + "driver_connection.py",
    tree.MIGRATIONS,
)
WRITES = {"insert", "update", "delete", "pg_insert"}
WRITTEN_IN_TEXT = re.compile(
    r"\b(?:insert\s+into|delete\s+from|update(?=\s+[\w.\"]+\s+(?:as\s+\w+\s+)?set\b))\s+([\w.\"]+)",
    re.IGNORECASE,
)
TRANSACTIONAL = {
    "begin",
    "begin_nested",
    "driver_connection",
    "raw_connection",
    "AsyncSession",
    "Session",
    "sessionmaker",
}


def tables_in(source: str) -> dict[str, str]:
    """The Python name of each Table, and the name that the database has for it."""
    return {
        target.id: call.args[0].value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Assign | ast.AnnAssign)
        and isinstance(call := node.value, ast.Call)
        and ast.unparse(call.func).split(".")[-1] == "Table"
        and isinstance(call.args[0], ast.Constant)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }


def written_in(source: str, tables: dict[str, str]) -> set[str]:
    """Which tables `source` writes: by SQLAlchemy's verbs, or in the text of a statement."""
    written = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(attr=verb, value=owner)) if verb in WRITES:
                # `commands.insert()`, `sa.insert(commands)` and `tables.commands.update()`
                candidates = [owner, *node.args[:1]]
            case ast.Call(func=ast.Name(id=verb), args=[target, *_]) if verb in WRITES:
                candidates = [target]
            case ast.Constant(value=str(text)):
                names = (name.replace('"', "") for name in WRITTEN_IN_TEXT.findall(text))
                written |= {name.split(".")[-1] for name in names} & set(tables.values())
                continue
            case _:
                continue
        words = (ast.unparse(candidate).split(".")[-1] for candidate in candidates)
        written |= {tables[word] for word in words if word in tables}
    return written


def transactions_in(source: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(attr=word) | ast.Name(id=word) if word in TRANSACTIONAL:
                found.append(ast.unparse(node))
            case ast.Constant(value="AUTOCOMMIT"):
                found.append("AUTOCOMMIT")
            case ast.Call(func=ast.Attribute(attr="commit")):
                found.append(ast.unparse(node.func))
    return found


@cache
def writers() -> dict[str, set[str]]:
    """Each table with the modules that write it; migrations create and fill, and are no owners."""
    tables = tables_in(tree.text(TABLES))
    found: dict[str, set[str]] = {table: set() for table in tables.values()}
    for name, source in tree.code().items():
        if not name.startswith(tree.MIGRATIONS):
            for table in written_in(source, tables):
                found[table].add(name)
    return found


def rows_of(markdown: str) -> dict[str, str]:
    """The 'Written by' cell of each table that the document names in its Table column."""
    written_by: dict[str, str] = defaultdict(str)
    table_at = by_at = None
    for line in markdown.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if "Table" in cells and "Written by" in cells:
            table_at, by_at = cells.index("Table"), cells.index("Written by")
        elif not line.startswith("|"):
            table_at = by_at = None
        elif table_at is not None and by_at is not None and len(cells) > max(table_at, by_at):
            for table in re.findall(r"`(\w+)`", cells[table_at]):
                written_by[table] += cells[by_at]
    return written_by


def test_each_table_has_one_writer() -> None:
    """With two writers nobody can say which rule held when a row was written."""
    shared = {table: sorted(names) for table, names in writers().items() if len(names) > 1}

    assert shared == {}, "move the write to the table's own module; phases call it"


def test_the_owners_page_names_every_table() -> None:
    """A table that the page does not name has no owner."""
    missing = sorted(set(writers()) - set(rows_of(tree.text(OWNERS))))

    assert missing == [], f"add a row to {OWNERS}: which fact is it, and who writes it"


def test_the_owners_page_names_no_other_table() -> None:
    """A table of the page that is not in the code misleads whoever looks for the fact."""
    ghosts = sorted(set(rows_of(tree.text(OWNERS))) - set(writers()))

    assert ghosts == [], f"define it in {TABLES}, or take it off {OWNERS}"


def test_the_owners_page_agrees_with_the_code() -> None:
    """The page is read before the code; a wrong owner on it is worse than none."""
    page = rows_of(tree.text(OWNERS))

    wrong = {
        table: (page[table], writer)
        for table, names in writers().items()
        for writer in names
        if table in page
        and not re.search(rf"\b{re.escape(writer.rsplit('/', 1)[-1][:-3])}\b", page[table])
    }

    assert wrong == {}, f"the 'Written by' column of {OWNERS} must name the writing module"


def test_transactions_begin_in_the_phases_alone() -> None:
    """One file is one transaction, so that every place where a crash can fall is listed."""
    found = {
        name: begun
        for name, source in tree.code().items()
        if not name.startswith((*BEGINNERS, tree.SIMULATOR)) and (begun := transactions_in(source))
    }

    assert found == {}, "make it a phase: only storage/phases opens transactions"


@pytest.mark.parametrize(
    "line",
    [
        "insert(commands)",
        "sa.update(tables.commands)",
        "tables.commands.delete()",
        "pg_insert(commands).on_conflict_do_nothing()",
        "text('INSERT INTO oncefence.external_commands (a) VALUES (1)')",
        "text('update external_commands set a = 1')",
        "text('delete\\n  from external_commands')",
    ],
)
def test_a_write_is_seen_in_every_form(line: str) -> None:
    """A rule that cannot fail guards nothing."""
    assert written_in(line, {"commands": "external_commands"}) == {"external_commands"}


@pytest.mark.parametrize(
    "line", ["select(commands)", "commands.c.org_id", "text('select .. for update')", "update(x)"]
)
def test_a_read_is_no_write(line: str) -> None:
    """The rule must leave reading to everyone."""
    assert written_in(line, {"commands": "external_commands"}) == set()


def test_a_table_is_seen_under_both_its_names() -> None:
    """A rule that cannot fail guards nothing."""
    source = "commands = sa.Table('external_commands', metadata)\nlanes: Table = Table('lanes', m)"

    assert tables_in(source) == {"commands": "external_commands", "lanes": "lanes"}


@pytest.mark.parametrize(
    "line",
    [
        "async with engine.begin() as c: ...",
        "await c.begin_nested()",
        "async with driver_connection(engine) as c: ...",
        "AsyncSession(engine)",
        "engine.execution_options(isolation_level='AUTOCOMMIT')",
        "await connection.commit()",
    ],
)
def test_a_transaction_is_seen_in_every_form(line: str) -> None:
    """A rule that cannot fail guards nothing."""
    assert transactions_in(f"async def f():\n    {line}")


def test_a_row_of_the_owners_page_is_read_by_its_columns() -> None:
    """The page may gain columns; Table and Written by are found by their names."""
    page = (
        "| Fact | Table | Written by |\n|---|---|---|\n| a command | `commands` | `commands.py` |\n"
    )

    assert rows_of(page) == {"commands": "`commands.py`"}
