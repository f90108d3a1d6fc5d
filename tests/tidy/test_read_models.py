"""Read models are read by people and alerts, and by nothing that decides what runs (C26)."""

import ast

from tests.tidy import tree

OWN = tree.STORAGE + "work_pressure.py"
TABLES = ("work_pressure", "pressure_revisions")
READ = "oncefence.storage.phases.read_pressure"
# The operator's routes with their verbs, and the metrics: none of them claims, wakes or schedules.
READERS = {
    "src/oncefence/app/metrics.py",
    "src/oncefence/app/metrics_door.py",
    "src/oncefence/app/operator_pressure.py",
}
# Who may name the tables at all: their writer, their reader, their definition and their guards.
NAMERS = (OWN, tree.PHASES + "read_pressure.py", tree.STORAGE + "tables.py")
WRITING = (
    tree.PHASES + "rebuild_pressure.py",
    tree.PHASES + "drop_pressure.py",
    *NAMERS,
)


def importers(module: str) -> set[str]:
    return {name for name, source in tree.code().items() if tree.imports_any(source, module)}


def names_a_table(source: str) -> bool:
    """Whether a statement's text, or a Table, is of a read model; words in docstrings are not."""
    module = ast.parse(source)
    spoken = {
        id(node.body[0].value)
        for node in ast.walk(module)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(module):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in spoken:
                if any(table in text for table in TABLES):
                    return True
            case ast.Attribute(attr=name) | ast.Name(id=name) | ast.alias(name=name):
                if name.split(".")[-1] == "pressure_revisions":
                    return True
    return False


def test_only_operators_and_metrics_read_the_pressure() -> None:
    """A count that decides what runs is a second queue, and it is always a little wrong."""
    assert importers(READ) == READERS, "read the items themselves; the pressure is for people"


def test_nobody_else_names_its_tables() -> None:
    """A statement of one's own would read it past the module that says what counts."""
    found = {
        name
        for name, source in tree.code().items()
        if name.startswith(("storage/", "activities/", "workflows/"))
        and not name.startswith(tree.MIGRATIONS)
        and name not in WRITING
        and names_a_table(source)
    }

    assert found == set(), "ask phases/read_pressure, or the items"


def test_no_function_of_the_database_reads_it() -> None:
    """What claims is written in SQL, where no import would show."""
    found = {
        name
        for name, text in tree.texts().items()
        if name.startswith(tree.STORAGE + "sql/")
        and not name.rsplit("/", 1)[-1].startswith(("tables_", "guards_"))
        and any(table in text for table in TABLES)
    }

    assert found == set(), "a claim reads the items and never a count of them"


def test_a_statement_on_a_read_model_is_seen() -> None:
    """A rule that cannot fail guards nothing."""
    assert names_a_table("X = text('SELECT depth FROM oncefence.work_pressure')")
    assert names_a_table("select(tables.pressure_revisions)")
    assert names_a_table("from oncefence.storage.tables import pressure_revisions")
    assert not names_a_table('"""Sole writer of `work_pressure`."""')
    assert not names_a_table("'pressure'")
