"""An init container that tries the engine image's native code before the engine starts [ADM-200..206].

A wheel of LMCache that was built for another torch starts without complaint and caches nothing.
"""

from __future__ import annotations

import copy
from typing import Final

from inferencecache.controller.admission.reviews import Document
from inferencecache.controller.injection.environment import literal
from inferencecache.controller.injection.pods import drop, find, find_engine, parts, put
from inferencecache.controller.injection.scripts import script_text
from inferencecache.core.kube.backends import KERNEL_CHECK_ANNOTATION, Backend
from inferencecache.schemas.resources.quantities import parse_quantity

KERNEL_CHECK_NAME: Final = "lmcache-kernel-check"
STRICT_VARIABLE: Final = "KERNEL_CHECK_STRICT"
_GPU: Final = "nvidia.com/gpu"
_COPIED: Final = (
    "image",
    "imagePullPolicy",
    "securityContext",
    "workingDir",
    "envFrom",
    "volumeMounts",
    "volumeDevices",
)


def place_kernel_check(pod: Document, backend: Backend) -> None:
    """Add the check, put it in the place of one that is there, or remove that where none is wanted. The name
    is the webhook's own. Raises ValueError when the engine's GPUs cannot be counted, or an ordinary container
    has the name.
    """
    engine = find_engine(pod, backend.runtime_id)
    mode = backend.annotations.get(KERNEL_CHECK_ANNOTATION)
    if engine is None or not engine.get("image") or not _is_wanted(mode, engine):
        drop(pod["spec"], "initContainers", KERNEL_CHECK_NAME)
        return
    if find(parts(pod["spec"], "containers"), KERNEL_CHECK_NAME) is not None:
        raise ValueError(f"the pod has a container {KERNEL_CHECK_NAME} of its own; rename it")
    put(pod["spec"], "initContainers", _render(engine, strict=mode == "strict"))


def remove_kernel_check(pod: Document) -> None:
    """Where engines are only observed there is nothing to check [ADM-205]."""
    drop(pod["spec"], "initContainers", KERNEL_CHECK_NAME)


def _is_wanted(mode: object, engine: Document) -> bool:
    match mode:
        case "off":
            return False
        case "report-only" | "strict":
            return True
        case _:
            return _has_gpu(engine)


def _has_gpu(engine: Document) -> bool:
    resources = engine.get("resources") or {}
    amounts = [(resources.get(side) or {}).get(_GPU, 0) for side in ("limits", "requests")]
    return any(parse_quantity(amount) > 0 for amount in amounts)


def _render(engine: Document, *, strict: bool) -> Document:
    env = [entry for entry in parts(engine, "env") if entry["name"] != STRICT_VARIABLE]
    return {
        "name": KERNEL_CHECK_NAME,
        **{key: copy.deepcopy(engine[key]) for key in _COPIED if key in engine},
        "command": ["python3", "-c", script_text("kernel_check")],
        "env": [*copy.deepcopy(env), literal(STRICT_VARIABLE, "1" if strict else "0")],
        "resources": {"requests": {"cpu": "50m", "memory": "256Mi"}},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }
