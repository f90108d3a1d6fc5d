"""Which library is used where. import-linter holds the layers; this holds single modules."""

import sys

import pytest

from tests.tidy import tree

HTTP_CLIENTS = {
    "activities/oncefence/activities/http_once.py",
    "src/oncefence/app/client.py",
}
OTHER_CLIENTS = ("requests", "aiohttp", "urllib.request", "urllib3", "http.client")
# Below httpx: how a connection is made to the address that was checked.
TRANSPORT = "activities/oncefence/activities/wire.py"
DRIVERS = ("sqlalchemy", "asyncpg", "psycopg", "sqlite3")
CONTRACTS = "oncefence.activities.contracts"


def foreign_to_the_domain(source: str) -> list[str]:
    return sorted(
        module
        for module in tree.imported(source)
        if module.split(".")[0] not in sys.stdlib_module_names
        and not (module == "oncefence" or module.startswith("oncefence.domain"))
    )


def foreign_activities(source: str) -> list[str]:
    return [
        module
        for module in tree.imports_any(source, "oncefence.activities")
        if module not in ("oncefence.activities", CONTRACTS)
        and not module.startswith(CONTRACTS + ".")
    ]


def offenders(*packages: str, outside: tuple[str, ...] | set[str]) -> dict[str, list[str]]:
    return {
        name: found
        for name, source in tree.code().items()
        if not name.startswith(tuple(outside)) and (found := tree.imports_any(source, *packages))
    }


def test_sql_is_written_in_storage_alone() -> None:
    """Fences hold only where every write goes through the modules that state them."""
    found = offenders(*DRIVERS, outside=(tree.STORAGE,))

    assert found == {}, "ask storage: a statement elsewhere escapes the fences"


def test_two_modules_speak_http_as_a_client() -> None:
    """A request from anywhere else has no anchored deadline, no journal and no guard."""
    found = offenders("httpx", *OTHER_CLIENTS, outside=HTTP_CLIENTS)
    found |= offenders("httpcore", outside={TRANSPORT, *HTTP_CLIENTS})

    assert found == {}, "send through http_once (providers) or app/client (our own door)"


def test_the_simulator_imports_nothing_of_oncefence() -> None:
    """The oracle must not share a mistake with what it judges."""
    found = {
        name: foreign
        for name, source in tree.code().items()
        if name.startswith(tree.SIMULATOR)
        and (
            foreign := [
                module
                for module in tree.imports_any(source, "oncefence")
                if not module.startswith("oncefence.simulator")
            ]
        )
    }

    assert found == {}, "write it again in the simulator: the oracle shares no code"


def test_only_app_starts_the_simulator() -> None:
    """A kernel that knows its test double is no kernel."""
    found = offenders("oncefence.simulator", outside=(tree.SIMULATOR, "src/oncefence/app/"))

    assert found == {}, "only app may start the simulator"


def test_the_domain_uses_the_standard_library_alone() -> None:
    """Rules that import nothing can be read, tested and trusted alone."""
    found = {
        name: foreign
        for name, source in tree.code().items()
        if name.startswith(tree.DOMAIN) and (foreign := foreign_to_the_domain(source))
    }

    assert found == {}, "the domain is pure: move what needs a library to the layer that has it"


def test_workflows_know_activities_only_by_contract() -> None:
    """What a workflow imports is loaded into its sandbox, and must be small and without effect."""
    found = {
        name: foreign
        for name, source in tree.code().items()
        if name.startswith(tree.WORKFLOWS) and (foreign := foreign_activities(source))
    }

    assert found == {}, f"import names and types from {CONTRACTS} instead"


@pytest.mark.parametrize(
    "source",
    [
        "import sqlalchemy as sa",
        "from sqlalchemy.ext.asyncio import AsyncConnection",
        "def f():\n    import asyncpg",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from asyncpg import Record",
    ],
)
def test_an_import_is_seen_in_every_form(source: str) -> None:
    """A rule that cannot fail guards nothing: an import inside a function counts too."""
    assert tree.imports_any(source, *DRIVERS)
    assert not tree.imports_any("import sqlalchemy_like", *DRIVERS)


def test_a_foreign_import_of_domain_or_workflow_is_seen() -> None:
    """A rule that cannot fail guards nothing."""
    assert foreign_to_the_domain("import pydantic\nimport json") == ["pydantic"]
    assert foreign_to_the_domain("from oncefence.storage import tables")
    assert not foreign_to_the_domain("from oncefence.domain.ids import OrgId")
    assert foreign_activities("from oncefence.activities import attempt")
    assert foreign_activities("import oncefence.activities.attempt")
    assert not foreign_activities(f"from {CONTRACTS} import RunAttempt")
    assert not foreign_activities("from oncefence.activities import contracts")
