"""All that is told of the index, in the order in which a tick tells it [CTL-168]."""

from __future__ import annotations

from inferencecache.controller.index.cache_index import CacheIndexProjection
from inferencecache.controller.index.participation import ParticipationProjection
from inferencecache.controller.index.tier2_series import Tier2Series
from inferencecache.controller.operating import Operating, Work


def index_work(operating: Operating) -> Work:
    """Over the means of an operation."""
    series = Tier2Series(operating.registry)
    participation = ParticipationProjection(operating.api, operating.writer, series)
    index = CacheIndexProjection(operating.api, operating.writer)
    return Work(reconcilers=(), projections=(participation, index))
