"""Resources that a pod states for all of its containers together.

The API refuses a pod whose containers ask for more than that, so what is added has to fit in [ADM-250].
"""

from __future__ import annotations

from fractions import Fraction

from inferencecache.controller.admission.reviews import Document
from inferencecache.controller.injection.pods import parts
from inferencecache.controller.injection.refusals import NotWiredError
from inferencecache.core.kube.backends import section
from inferencecache.schemas.resources.quantities import parse_quantity


def check_budget(pod: Document) -> None:
    """Of a pod as it would come out. Raises `NotWiredError`."""
    spec = pod["spec"]
    for name, amount in (section(spec, "resources", "requests") or {}).items():
        if _needed(spec, name) > parse_quantity(amount):
            raise NotWiredError(f"the pod's spec.resources.requests[{name}] is too little for what is added")
    for name, amount in (section(spec, "resources", "limits") or {}).items():
        containers = [*parts(spec, "initContainers"), *parts(spec, "containers")]
        if any(_amount(container, "limits", name) > parse_quantity(amount) for container in containers):
            raise NotWiredError(f"the pod's spec.resources.limits[{name}] is too little for what is added")


def _needed(spec: Document, name: str) -> Fraction:
    """The most that is requested at one time: init containers run one by one, sidecars stay."""
    peak = staying = Fraction(0)
    for container in parts(spec, "initContainers"):
        amount = _request(container, name)
        peak = max(peak, staying + amount)
        if container.get("restartPolicy") == "Always":
            staying += amount
    running = sum((_request(container, name) for container in parts(spec, "containers")), staying)
    return max(peak, running)


def _request(container: Document, name: str) -> Fraction:
    requests = section(container, "resources", "requests") or {}
    return _amount(container, "requests" if name in requests else "limits", name)


def _amount(container: Document, side: str, name: str) -> Fraction:
    return parse_quantity((section(container, "resources", side) or {}).get(name, 0))
