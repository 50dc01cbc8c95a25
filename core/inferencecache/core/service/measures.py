"""What a process measures, declared once: the page that is scraped and the reference are made of it.

A number invites more trust than it deserves, so every measure also says what it does not prove.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily


@dataclass(frozen=True)
class Measure:
    """`text` is a sentence; `unproven` goes on after "Does not prove". `labels` are complete [OPS-35]."""

    kind: ClassVar[str]

    name: str
    """Without the `_total` of counters."""
    text: str
    unproven: str
    labels: tuple[str, ...] = ()

    @property
    def series(self) -> str:
        """The name that is asked for; that of a histogram ends with `_bucket`, `_count` or `_sum` besides."""
        return self.name

    @property
    def help(self) -> str:
        """What the scraped page says."""
        return f"{self.text} Does not prove {self.unproven}."


class GaugeMeasure(Measure):
    kind = "gauge"

    def register(self, registry: CollectorRegistry) -> Gauge:
        """To be set when something happens."""
        return Gauge(self.name, self.help, self.labels, registry=registry)

    def family(self, value: float | None = None) -> GaugeMetricFamily:
        """As it is now; with labels, samples are added."""
        return GaugeMetricFamily(self.name, self.help, value=value, labels=self.labels or None)


class CounterMeasure(Measure):
    kind = "counter"

    @property
    def series(self) -> str:
        return f"{self.name}_total"

    def register(self, registry: CollectorRegistry) -> Counter:
        """To be raised when something happens."""
        return Counter(self.name, self.help, self.labels, registry=registry)

    def family(self, value: float | None = None) -> CounterMetricFamily:
        """As it is now; with labels, samples are added."""
        return CounterMetricFamily(self.name, self.help, value=value, labels=self.labels or None)


class HistogramMeasure(Measure):
    kind = "histogram"

    def register(
        self, registry: CollectorRegistry, buckets: Sequence[float] = Histogram.DEFAULT_BUCKETS
    ) -> Histogram:
        """To be told each observation."""
        return Histogram(self.name, self.help, self.labels, buckets=buckets, registry=registry)
