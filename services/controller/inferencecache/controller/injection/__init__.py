"""Wiring engine pods to the cache of their namespace: the mutating webhook for pods.

`webhook` decides in order: can the pod be read, does its author want it, which backend selects it
(`selection`). `wiring` then takes the steps on a copy of the pod: `prerequisites` and `bindings` look,
`lmcache_client` with `pod_local` or `node_local`, or `hi_cache`, change the engine, `overrides` have the
last word on its arguments and variables, `kernel_check` and `subscriber` add containers, and `marks` say
what was done. All of it is pure and comes out the same when it is applied to its own result.
"""

from __future__ import annotations

from inferencecache.controller.injection.subscriber import SidecarSettings
from inferencecache.controller.injection.webhook import pod_webhook

__all__ = ["SidecarSettings", "pod_webhook"]
