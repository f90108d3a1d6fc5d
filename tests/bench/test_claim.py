"""What `./dev bench claim` says of a claim, on histories too short for its times to mean much."""

import pytest

from tests.bench import claim
from tests.bench.touched import Touched, Tree


@pytest.fixture(scope="module")
def report() -> dict[str, object]:
    """A long history of half a page's rows more than the short one."""
    return claim.run(claim.Plan(rows=600, short=300, each_round=2), lambda _: None)


def test_a_claim_touches_no_more_over_a_longer_history(report: dict[str, object]) -> None:
    """Rows that are over are in no index that a claim reads; only the way down may be longer."""
    kinds = report["kinds"]
    assert isinstance(kinds, dict)

    assert set(kinds) == {"start_attempt_v3", "claim_work"}
    for figures in kinds.values():
        assert figures["differences"] == {"rows": {}, "ways_down": {}}
        assert figures["pages"]["short"] > figures["pages_of_rows"]["short"] > 0
        assert len(figures["time_ratio_by_round"]) == claim.ROUNDS


def test_what_is_not_the_same_is_a_fault() -> None:
    """A bound that nothing can break guards nothing."""
    trees = {"t_pkey": Tree(table="t", height=2)}
    taller = {"t_pkey": Tree(table="t", height=3)}
    once = Touched(rows={"t": 1}, indexes={"t_pkey": 2})
    twice = Touched(rows={"t": 9}, indexes={"t_pkey": 6})

    figures = claim.figures_of(
        {"short": once, "long": twice},
        {"short": once, "long": once},
        {"short": trees, "long": taller},
        [claim.Round(ms=(1.0, 1.2), worked_ms=(1.0, 1.2))] * claim.ROUNDS,
    )

    assert figures["differences"] == {"rows": {"t": [1, 9]}, "ways_down": {"t": [1.0, 2.0]}}
    assert [fault.split(":")[0] for fault in claim.faults_of({"a": figures})] == ["a"] * 3


def test_a_taller_index_alone_is_none() -> None:
    """A B-tree of a hundred times the rows is one page deeper, whoever reads it."""
    short = Touched(rows={"t": 1}, indexes={"t_pkey": 4})
    long = Touched(rows={"t": 1}, indexes={"t_pkey": 6})

    figures = claim.figures_of(
        {"short": short, "long": long},
        {"short": short, "long": long},
        {
            "short": {"t_pkey": Tree(table="t", height=2)},
            "long": {"t_pkey": Tree(table="t", height=3)},
        },
        [claim.Round(ms=(1.0, 1.0), worked_ms=(1.0, 1.0))] * claim.ROUNDS,
    )

    assert claim.faults_of({"a": figures}) == []
    assert figures["pages"] == {"short": 5, "long": 7}
