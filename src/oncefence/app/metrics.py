"""
The one metrics model (C461): every name, its labels, and the text that a scraper reads.

Counts and durations are of this process, which has kept them since it began. The pressure is of
the whole deployment, read anew for each scrape: every process tells the same, so take the largest
and never the sum. The org is a label of the pressure alone, and nothing that came from outside is
one: no id, subject, payload, token, or word of a provider.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, MeterProvider, ObservableGauge
from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from oncefence.activities.measures import Measures
from oncefence.storage.phases.list_breakers import BreakersStanding
from oncefence.storage.phases.read_pressure import Pressure, Waiting
from oncefence.workflows.starting import EagerStarts

# From a run that found nothing to do to the longest lease.
_RUN_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)
_RUN: Final = "oncefence.run.duration"
# Orgs times families, providers and states; beyond it the rest is told as one series.
_PRESSURE_SERIES_MAX: Final = 50_000

Found = Iterable[Observation]


class ProcessMetrics:
    """What one process measures, and how it is told."""

    media_type: Final = CONTENT_TYPE_PLAIN_0_0_4

    def __init__(self, eager: EagerStarts | None = None) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        provider = MeterProvider(
            # In a registry of its own: two in one process, as tests have them, do not mix.
            metric_readers=[
                PrometheusMetricReader(
                    disable_target_info=True,
                    scope_info_enabled=False,
                    registry=self._registry,
                    cardinality_limits={ObservableGauge: _PRESSURE_SERIES_MAX},
                )
            ],
            resource=Resource({"service.name": "oncefence"}),
            # An example of a value would name the trace of somebody's effect.
            exemplar_filter=AlwaysOffExemplarFilter(),
            shutdown_on_exit=False,
            views=[
                View(
                    instrument_name=_RUN,
                    aggregation=ExplicitBucketHistogramAggregation(_RUN_SECONDS),
                )
            ],
        )
        meter = provider.get_meter("oncefence")
        self.measures = Measures(
            meter.create_histogram(
                _RUN, unit="s", description="Runs of items, from their claim to their end."
            )
        )
        self._eager = eager or EagerStarts()
        self._pressure: Pressure | None = None
        self._observe_counts(meter)
        self._observe_pressure(meter)
        self._breakers: Sequence[BreakersStanding] = ()
        self._observe_breakers(meter)

    def text(self, pressure: Pressure | None, breakers: Sequence[BreakersStanding] = ()) -> bytes:
        """Everything, in the text form of Prometheus; without a reading, no pressure."""
        self._pressure = pressure
        self._breakers = breakers
        return generate_latest(self._registry)

    def _observe_counts(self, meter: Meter) -> None:
        measures = self.measures
        counters: Mapping[str, tuple[Mapping[tuple[str, ...], int], tuple[str, ...], str]] = {
            "claims": (
                measures.claims,
                ("family", "verdict"),
                "Claims that were asked for: claimed, or why not.",
            ),
            "attempts": (
                measures.attempts,
                ("provider", "outcome"),
                "Effect attempts that their starter settled.",
            ),
            "token_refreshes": (
                measures.refreshes,
                ("provider", "outcome"),
                "Calls for a token that their beginner settled.",
            ),
            "renewals": (measures.renewals, ("family",), "Claims that were renewed."),
            "fences_lost": (
                measures.fences_lost,
                ("family",),
                "Claims that another process had taken over before their end.",
            ),
            "wakes": (measures.wakes, ("family", "answer"), "Nudges to workflows."),
        }
        for name, (counts, labels, description) in counters.items():
            meter.create_observable_counter(
                f"oncefence.{name}", [_counted(counts, labels)], description=description
            )

        def eager(_: CallbackOptions) -> Found:
            yield Observation(self._eager.asked, {"answer": "asked"})
            yield Observation(self._eager.given, {"answer": "given"})

        meter.create_observable_counter(
            "oncefence.eager_starts",
            [eager],
            description="Eager starts of workflows, asked for and given; fewer given is a fault.",
        )

    def _observe_pressure(self, meter: Meter) -> None:
        gauges: Mapping[str, tuple[Callable[[Waiting], float | None], str, str]] = {
            "depth": (lambda each: each.depth, "", "Items that are there."),
            "due": (lambda each: each.due, "", "Items that are due."),
            "oldest_due": (
                lambda each: each.oldest_due_seconds,
                "s",
                "For how long the oldest due item has been due.",
            ),
            "oldest": (lambda each: each.oldest_made_seconds, "s", "Age of the oldest item."),
        }
        for name, (value, unit, description) in gauges.items():
            meter.create_observable_gauge(
                f"oncefence.pressure.{name}",
                [self._waiting(value)],
                unit=unit,
                description=description,
            )

        def age(_: CallbackOptions) -> Found:
            found = self._pressure
            if found is not None and found.waiting is not None and found.age_seconds is not None:
                yield Observation(found.age_seconds)

        meter.create_observable_gauge(
            "oncefence.pressure.age",
            [age],
            unit="s",
            description="Age of the reading of the pressure; absent where there is none.",
        )

    def _observe_breakers(self, meter: Meter) -> None:
        def standing(_: CallbackOptions) -> Found:
            for each in self._breakers:
                yield Observation(
                    each.breakers,
                    {
                        "kind": "provider" if each.is_of_provider else "binding",
                        "provider": each.provider,
                        "endpoint_class": each.endpoint_class,
                        "state": each.state,
                    },
                )

        meter.create_observable_gauge(
            "oncefence.breakers",
            [standing],
            description="Breakers that are not closed, of the whole deployment.",
        )

    def _waiting(
        self, value: Callable[[Waiting], float | None]
    ) -> Callable[[CallbackOptions], Found]:
        def observe(_: CallbackOptions) -> Iterator[Observation]:
            waiting = None if self._pressure is None else self._pressure.waiting
            for each in waiting or ():
                found = value(each)
                if found is not None:
                    yield Observation(
                        found,
                        {
                            "org": each.org,
                            "family": each.family,
                            "provider": each.provider,
                            "state": each.state,
                        },
                    )

        return observe


def _counted(
    counts: Mapping[tuple[str, ...], int], labels: tuple[str, ...]
) -> Callable[[CallbackOptions], Found]:
    def observe(_: CallbackOptions) -> Iterator[Observation]:
        for values, count in counts.items():
            yield Observation(count, dict(zip(labels, values, strict=True)))

    return observe
