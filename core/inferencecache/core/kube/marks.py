"""What injection writes on a pod to say what it did; evidence, no proof [ADM-139..147]."""

from __future__ import annotations

from typing import Final

INJECTED_BY: Final = "inferencecache.io/injected-by"
INJECTED_BY_UID: Final = "inferencecache.io/injected-by-uid"
INJECTED_GENERATION: Final = "inferencecache.io/injected-generation"
INJECT_SKIPPED: Final = "inferencecache.io/inject-skipped"
METRICS_LABEL: Final = "inferencecache.io/lmcache-mp-metrics"
"""Says that the pod has a cache server whose port `lmcache-http` serves `/metrics` [ADM-142]."""
