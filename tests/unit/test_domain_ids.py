"""Identities that are computed: whoever computes one again finds what is already there."""

from uuid import UUID, uuid4

from hypothesis import given
from hypothesis import strategies as st

from oncefence.domain import ids
from oncefence.domain.ids import AttemptId, CommandId, OrgId, WorkId

NAMES = st.lists(st.text(), min_size=1, max_size=4)


class TestDerivedIds:
    @given(NAMES)
    def test_are_the_same_each_time(self, parts: list[str]) -> None:
        """A repeat after a lost answer must name the same row."""
        assert ids.derived_id(*parts) == ids.derived_id(*parts)

    @given(NAMES)
    def test_are_valid_and_say_their_kind(self, parts: list[str]) -> None:
        """Version 8 is the one that may be made of anything."""
        made = ids.derived_id(*parts)

        assert (made.version, str(made)[19]) == (8, "8")
        assert UUID(str(made)) == made

    @given(st.sets(st.text("abc:", min_size=1, max_size=4), min_size=2, max_size=6))
    def test_of_different_names_differ(self, names: set[str]) -> None:
        """Two names of one identity would be one row for two facts."""
        assert len({ids.derived_id(name) for name in names}) == len(names)

    def test_do_not_depend_on_the_process(self) -> None:
        """Another machine, another year: the same identity."""
        assert str(ids.derived_id("command", "x")) == "c1b4e1b7-3127-85dc-85cd-199c74aae4e0"


class TestIdsOfWork:
    def test_differ_by_what_they_are_of(self) -> None:
        """An attempt, its lookup and its evidence are never taken for one another."""
        command = ids.command_id("ehk1.a.b.c.d.e")
        work = ids.dispatch_work_id(command, 1)
        attempt = ids.attempt_id(work, 1)
        made = [
            command,
            ids.execution_id(command),
            work,
            ids.dispatch_work_id(command, 2),
            attempt,
            ids.attempt_id(work, 2),
            ids.lookup_work_id(attempt),
            ids.lookup_id(work, 1),
            ids.lookup_id(work, 2),
            ids.evidence_id(attempt, "answer", "x"),
            ids.evidence_id(attempt, "unsent", "x"),
            ids.evidence_id(attempt, "answer", "y"),
        ]

        assert len(set(made)) == len(made)

    def test_differ_by_whose_they_are(self) -> None:
        """Two commands share nothing, and two orgs may use one name."""
        one, other = CommandId(uuid4()), CommandId(uuid4())

        assert ids.execution_id(one) != ids.execution_id(other)
        assert ids.attempt_id(WorkId(one), 1) != ids.attempt_id(WorkId(other), 1)
        assert ids.lookup_work_id(AttemptId(one)) != ids.lookup_work_id(AttemptId(other))
        assert ids.named_id("link", OrgId("a"), "x") != ids.named_id("link", OrgId("b"), "x")
