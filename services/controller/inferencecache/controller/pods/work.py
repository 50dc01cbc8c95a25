"""All work on pods but what belongs to passes over backends."""

from __future__ import annotations

from inferencecache.controller.operating import Operating, Work
from inferencecache.controller.pods.departing import MOST_WAITING, Departing
from inferencecache.controller.pods.engine_events import EnginePodEvents
from inferencecache.core.service import Queue, QueueMetrics


def pods_work(operating: Operating) -> Work:
    """Over the means of an operation."""
    departing = Departing(operating.log)
    operating.observed.on_change(departing.changed)
    operating.on_layout(departing.laid_out)
    QueueMetrics(
        "controller",
        operating.registry,
        lambda: [Queue("departed_pods", departing.waiting, MOST_WAITING)],
    )
    return Work(reconcilers=(EnginePodEvents(operating),), projections=(), background=(departing.run,))
