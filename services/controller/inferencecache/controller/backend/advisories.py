"""What a backend says besides whether it is ready; nothing depends on it [CTL-146..149]."""

from __future__ import annotations

from collections.abc import Sequence

from inferencecache.controller.backend.engine_pods import is_stamped, name_of, status_of_container
from inferencecache.controller.injection.pods import parts
from inferencecache.controller.injection.subscriber import SUBSCRIBER_NAME
from inferencecache.core.kube.backends import Backend
from inferencecache.core.kube.conditions import Verdict
from inferencecache.core.kube.kinds import Document


def engine_compatibility(backend: Backend, pods: Sequence[Document]) -> Verdict | None:
    """None unless an engine that was wired for the backend crashes again and again. The selector does not
    count: it may have changed since.
    """
    for pod in sorted((pod for pod in pods if is_stamped(backend, pod)), key=name_of):
        engine = _engine_name(pod, backend.runtime_id)
        waiting = (status_of_container(pod, engine).get("state") or {}).get("waiting") or {}
        if engine and waiting.get("reason") == "CrashLoopBackOff":
            message = (
                f"container {engine} of pod {name_of(pod)} crashes again and again. The engine may not be "
                "able to use this connector (hybrid-attention models, for one), but there are other causes; "
                "see its log"
            )
            return Verdict("False", "InjectedEngineCrashLooping", message)
    return None


def _engine_name(pod: Document, runtime: str) -> str:
    """Empty when no container can be told to be the engine [CTL-147]."""
    names: list[str] = [container["name"] for container in parts(pod.get("spec") or {}, "containers")]
    if runtime in names:
        return runtime
    others = [name for name in names if name != SUBSCRIBER_NAME]
    return others[0] if len(others) == 1 else ""


def t2_degraded(participation: Document | None) -> Verdict | None:
    """By the share of queries that the store answered; None while none was made [CTL-148]."""
    rate = (participation or {}).get("t2HitRate")
    if rate is None:
        return None
    if rate == "0":
        return Verdict("True", "T2ZeroHitRate", "the store was queried and never had a block")
    return Verdict("False", "T2Serving", f"the store's hit rate is {rate}")
