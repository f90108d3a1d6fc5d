"""What is counted where the kernel passes, and how it is told (C25, C461)."""

import re
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from oncefence.activities.contracts import RunResult, Step
from oncefence.app.metrics import ProcessMetrics
from oncefence.domain.breaker import BreakerState
from oncefence.domain.claim import ClaimVerdict
from oncefence.domain.ids import OrgId, WorkId
from oncefence.storage.claims import NotStarted
from oncefence.storage.phases.find_work import WorkRef
from oncefence.storage.phases.list_breakers import BreakersStanding
from oncefence.storage.phases.read_pressure import Pressure, Waiting
from oncefence.workflows.starting import EagerStarts

LINE = re.compile(r"^(\w+)(?:\{(.*)\})? ([\d.e+-]+|\+Inf)$")


def told(metrics: ProcessMetrics, pressure: Pressure | None = None) -> dict[str, float]:
    """Every series of the text by its name and sorted labels, without buckets."""
    lines = metrics.text(pressure).decode().splitlines()
    found = [LINE.match(line) for line in lines if not line.startswith("#")]
    assert all(found), "each line is a series and a number"
    return {
        f"{each[1]}{{{each[2]}}}" if each[2] else each[1]: float(each[3])
        for each in found
        if each is not None and "_bucket" not in each[1]
    }


def a_reading(*waiting: Waiting) -> Pressure:
    return Pressure(
        revision=7,
        source_snapshot="1:1:",
        source_time=datetime(2026, 1, 1, tzinfo=UTC),
        age_seconds=12.5,
        waiting=list(waiting),
    )


def some_waiting(state: str = "pending", depth: int = 3) -> Waiting:
    return Waiting(
        org=OrgId("acme"),
        family="effect.dispatch",
        provider="somewhere",
        state=state,
        depth=depth,
        due=2,
        oldest_due_seconds=None if state == "dead" else 4.0,
        oldest_made_seconds=9.0,
    )


async def finished(verdict: str = "settled") -> RunResult:
    return RunResult(step=Step.FINISHED, verdict=verdict)


class TestARun:
    async def test_of_any_family_is_measured_by_its_end(self) -> None:
        """A family brings a name and no code, and is measured like every other."""
        metrics = ProcessMetrics()

        for family in ("effect.dispatch", "toy.family", "toy.family"):
            await metrics.measures.run(family, finished("finish"))

        name = "oncefence_run_duration_seconds_count"
        assert {key: value for key, value in told(metrics).items() if name in key} == {
            name + '{end="finish",family="effect.dispatch"}': 1,
            name + '{end="finish",family="toy.family"}': 2,
        }

    async def test_gives_what_it_came_to(self) -> None:
        """Measuring changes nothing."""
        result = await ProcessMetrics().measures.run("toy.family", finished("skip"))

        assert result == await finished("skip")

    async def test_that_raises_is_measured_and_raises(self) -> None:
        """A run that ends by an error is the one that is looked for; its text may hold anything."""
        metrics = ProcessMetrics()

        async def fails() -> RunResult:
            raise RuntimeError("secret words")

        with pytest.raises(RuntimeError):
            await metrics.measures.run("toy.family", fails())

        text = metrics.text(None).decode()
        assert 'end="raised",family="toy.family"' in text
        assert "secret" not in text


class TestTheBreakers:
    def test_that_are_not_closed_are_told_without_any_org(self) -> None:
        """Whoever is on call sees which provider is dark, and nothing of tenants (C461)."""
        standing = [
            BreakersStanding(
                is_of_provider=is_of_provider,
                provider="somewhere",
                endpoint_class="writes" if is_of_provider else "",
                state=BreakerState.OPEN,
                breakers=count,
            )
            for is_of_provider, count in ((True, 1), (False, 4))
        ]

        text = ProcessMetrics().text(None, standing).decode()

        where = 'provider="somewhere",state="open"}'
        assert [line for line in text.splitlines() if line.startswith("oncefence_breakers")] == [
            f'oncefence_breakers{{endpoint_class="writes",kind="provider",{where} 1.0',
            f'oncefence_breakers{{endpoint_class="",kind="binding",{where} 4.0',
        ]


class TestACount:
    def test_of_claims_tells_why_there_was_none(self) -> None:
        """Refused claims are normal; which refusals grow says what is wrong."""
        metrics = ProcessMetrics()
        blocked = NotStarted(verdict=ClaimVerdict.LANE_BLOCKED, until=None)

        metrics.measures.claim("toy.family", object())
        metrics.measures.claim("toy.family", blocked)
        metrics.measures.claim("toy.family", blocked)

        found = told(metrics)
        assert found['oncefence_claims_total{family="toy.family",verdict="claimed"}'] == 1
        assert found['oncefence_claims_total{family="toy.family",verdict="lane_blocked"}'] == 2

    def test_of_everything_else_goes_on(self) -> None:
        """Renewals, lost fences and outcomes, each by the labels that its alert needs."""
        metrics = ProcessMetrics(EagerStarts(asked=3, given=2))

        metrics.measures.renewal("toy.family")
        metrics.measures.fence_lost("toy.family")
        metrics.measures.attempt("somewhere", "ACCEPTED")
        metrics.measures.attempt("somewhere", "ACCEPTED")
        metrics.measures.refresh("somewhere", "activated")

        assert told(metrics) == {
            'oncefence_renewals_total{family="toy.family"}': 1,
            'oncefence_fences_lost_total{family="toy.family"}': 1,
            'oncefence_attempts_total{outcome="ACCEPTED",provider="somewhere"}': 2,
            'oncefence_token_refreshes_total{outcome="activated",provider="somewhere"}': 1,
            'oncefence_eager_starts_total{answer="asked"}': 3,
            'oncefence_eager_starts_total{answer="given"}': 2,
        }

    async def test_of_wakes_tells_those_that_did_not_arrive(self) -> None:
        """A wake is a hint; many that fail say that Temporal is away."""
        metrics, is_away = ProcessMetrics(), False

        async def wake(_: WorkRef) -> None:
            if is_away:
                raise ConnectionError

        counted = metrics.measures.counting(wake)
        ref = WorkRef(
            org=OrgId("acme"),
            work=WorkId(uuid4()),
            family="toy.family",
            deadline_ms=1,
            run_after=datetime.now(UTC),
        )
        await counted(ref)
        is_away = True
        with pytest.raises(ConnectionError):
            await counted(ref)

        found = told(metrics)
        assert found['oncefence_wakes_total{answer="given",family="toy.family"}'] == 1
        assert found['oncefence_wakes_total{answer="failed",family="toy.family"}'] == 1

    def test_of_one_process_is_not_anothers(self) -> None:
        """Two in one process, as tests have them, must not add up."""
        ProcessMetrics().measures.renewal("toy.family")

        assert not any("renewals" in name for name in told(ProcessMetrics()))


class TestThePressure:
    def test_is_told_by_org_family_provider_and_state(self) -> None:
        """Depth, what is due of it, and how long the oldest has been, with the reading's age."""
        labels = '{family="effect.dispatch",org="acme",provider="somewhere",state="pending"}'

        found = told(ProcessMetrics(), a_reading(some_waiting()))

        assert {name: value for name, value in found.items() if "pressure" in name} == {
            f"oncefence_pressure_depth{labels}": 3,
            f"oncefence_pressure_due{labels}": 2,
            f"oncefence_pressure_oldest_due_seconds{labels}": 4,
            f"oncefence_pressure_oldest_seconds{labels}": 9,
            "oncefence_pressure_age_seconds": 12.5,
        }

    def test_that_is_gone_is_told_no_more(self) -> None:
        """The last value of what waits no longer would look like something that waits for ever."""
        metrics = ProcessMetrics()
        told(metrics, a_reading(some_waiting("pending"), some_waiting("dead")))

        left = told(metrics, a_reading(some_waiting("dead")))

        assert not any('state="pending"' in name for name in left)
        assert any('state="dead"' in name for name in left)

    def test_that_nobody_counted_is_no_zero(self) -> None:
        """An alert on depth must see that there is no reading, and not that all is well."""
        metrics = ProcessMetrics()
        told(metrics, a_reading(some_waiting()))
        dropped = Pressure(
            revision=8,
            source_snapshot="1:1:",
            source_time=datetime(2026, 1, 1, tzinfo=UTC),
            age_seconds=1.0,
            waiting=None,
        )

        assert not any("pressure" in name for name in told(metrics, dropped))
