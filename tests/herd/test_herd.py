"""The herd for as long as a test may take; `./dev herd` is the whole of it."""

from tests.herd.run import Plan, run_herd
from tests.support.servers import own_folder


def test_workers_that_are_killed_and_frozen_do_nothing_twice_and_lose_nothing() -> None:
    """Four processes on one store: each command once at its provider, and all come to an end."""
    told: list[str] = []
    with own_folder() as folder:
        report = run_herd(
            folder / "data",
            Plan(
                seconds=6.0,
                kill_every=2.0,
                freeze_every=4.0,
                seed=1,
                time_scale=0.0005,
                with_long_ones=False,
            ),
            told.append,
        )

    found = report.verdict
    assert list(found.rows) == [], told
    assert (found.duplicates, found.lost, found.open, found.violations) == (0, 0, 0, 0)
    assert report.kills >= 2
    assert report.freezes >= 1
    assert found.commands == report.handed_over > 0
    assert found.provider_changes > 0
    assert found.unknowns > 0
    assert report.holds
