"""That the fault matrix is made from the tests, and that no fault of its list is left out."""

from tests.golden.fault_matrix import PAGE, all_cells, page

FAULTS = frozenset(
    (
        "stale claimant",
        "frozen owner",
        "reconnect",
        "uninstall and reinstall",
        "lost refresh answer",
        "slow refresh beyond the lease",
        "crash at a step of a refresh",
    )
)


def test_the_page_is_made_from_the_tests() -> None:
    """Change a test's mark, and make the page anew: `python -m tests.golden.fault_matrix`."""
    assert PAGE.read_text(encoding="utf-8") == page(all_cells())


def test_every_fault_of_the_list_has_a_cell() -> None:
    """What the matrix must show is not what happens to be tested (C282, C286, C291)."""
    assert FAULTS - {cell.what for cell in all_cells()} == set()
