"""One simulator per test file; each test uses contacts of its own."""

from collections.abc import Iterator

import pytest

from tests.providers.simulated import Simulated, simulator_at


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulated]:
    with simulator_at(tmp_path_factory.mktemp("simulator") / "ledger.jsonl") as running:
        yield running
