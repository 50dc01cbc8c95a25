"""A stored object with the fields that are ours as they should be [CTL-43..45].

Everything else of it stays: what the API server filled in, and what others added. Two values are the same
when the API server would store them alike, so that a settled object is never written again.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, Final

from inferencecache.controller.backend.redis import WORKLOAD_FIELDS
from inferencecache.core.kube.kinds import Document
from inferencecache.schemas.resources.quantities import parse_quantity

_POD_FIELDS: Final = (*WORKLOAD_FIELDS, "volumes", "hostNetwork", "dnsPolicy")
_CONTAINER_FIELDS: Final = (
    "image",
    "imagePullPolicy",
    "command",
    "args",
    "env",
    "ports",
    "volumeMounts",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "securityContext",
)
_SERVICE_FIELDS: Final = ("type", "selector", "ports")


def merged_deployment(live: Document, desired: Document) -> Document:
    """Equal to `live` when nothing is to be written."""
    merged = copy.deepcopy(live)
    spec, wanted = merged["spec"], desired["spec"]
    _settle(merged["metadata"], desired["metadata"], ("labels",))
    _settle(spec, wanted, ("replicas",))
    if (spec.get("strategy") or {}).get("type") != wanted["strategy"]["type"]:
        spec["strategy"] = wanted["strategy"]
    template = wanted["template"]
    _settle(spec["template"].setdefault("metadata", {}), template["metadata"], ("labels",))
    pod = spec["template"]["spec"]
    _settle(pod, template["spec"], _POD_FIELDS)
    # The API server fills the one from the other, so a removal must remove both.
    if pod.get("serviceAccount") and pod["serviceAccount"] != pod.get("serviceAccountName"):
        del pod["serviceAccount"]
    there = {container["name"]: container for container in pod.get("containers") or ()}
    pod["containers"] = [
        _merged_container(there.get(container["name"], {}), container)
        for container in template["spec"]["containers"]
    ]
    return merged


def merged_service(live: Document, desired: Document) -> Document:
    """As `merged_deployment`; the cluster's address of it stays."""
    merged = copy.deepcopy(live)
    _settle(merged["metadata"], desired["metadata"], ("labels",))
    _settle(merged["spec"], desired["spec"], _SERVICE_FIELDS)
    return merged


def _merged_container(container: Document, desired: Document) -> Document:
    container["name"] = desired["name"]
    _settle(container, desired, _CONTAINER_FIELDS)
    if _amounts(container.get("resources")) != _amounts(desired.get("resources")):
        container["resources"] = desired["resources"]
    return container


def _settle(owner: Document, desired: Document, fields: Iterable[str]) -> None:
    for field in fields:
        wanted = desired.get(field)
        if _stored(owner.get(field)) == _stored(wanted):
            continue
        if _stored(wanted) is None:
            del owner[field]
        else:
            owner[field] = wanted


def _stored(value: Any) -> Any:
    """What the API server keeps of a value; None for what it leaves out."""
    return None if value in ("", [], {}) else _kept(value)


def _kept(value: Any) -> Any:
    if isinstance(value, list):
        return [_kept(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: _kept(item) for key, item in value.items() if not _is_left_out(key, item)}


def _is_left_out(key: str, value: Any) -> bool:
    # An empty selector says something, the empty map in it does not.
    return value in (None, "", []) or (key == "matchLabels" and value == {})


def _amounts(resources: Document | None) -> Document:
    """Resources by what they amount to: the API server writes `1024Mi` as `1Gi`."""
    amounts: Document = {}
    for key, value in (resources or {}).items():
        if key in ("requests", "limits"):
            amounts[key] = {name: parse_quantity(amount) for name, amount in (value or {}).items()}
        else:
            amounts[key] = _stored(value)
    return {key: value for key, value in amounts.items() if value}
