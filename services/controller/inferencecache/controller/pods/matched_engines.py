"""How many pods a backend's selector matches, and a word of advice when there are none [CTL-152..158]."""

from __future__ import annotations

from collections.abc import Sequence

from inferencecache.controller.backend.drafts import StatusDraft
from inferencecache.controller.backend.engine_pods import is_finished, selected_pods
from inferencecache.controller.injection.pods import metadata_of
from inferencecache.core.kube.backends import Backend
from inferencecache.core.kube.kinds import Document
from inferencecache.core.kube.selection import matches


def count_engines(
    backend: Backend,
    pods: Sequence[Document] | None,
    deployments: Sequence[Document] | None,
    draft: StatusDraft,
) -> bool:
    """Bring `matchedEnginePods` and `engineSelectorMessage` of the draft up to date; whether engines come
    and go. Both lists are the namespace's, None when they are not known.
    """
    if not backend.match_labels:
        draft.put("matchedEnginePods", None)
        draft.put("engineSelectorMessage", None)
        return False
    if pods is None:
        return False
    matched = selected_pods(backend, pods)
    draft.put("matchedEnginePods", len(matched))
    if matched:
        draft.put("engineSelectorMessage", None)
    if deployments is None:
        return False
    wanted = _wanted_replicas(backend, deployments)
    if not matched:
        draft.put("engineSelectorMessage", None if wanted == 0 else _message(backend))
    return wanted is not None and wanted != sum(not is_finished(pod) for pod in matched)


def _wanted_replicas(backend: Backend, deployments: Sequence[Document]) -> int | None:
    """Of all Deployments whose pods the selector matches; None when there is none [CTL-154]."""
    wanted: int | None = None
    for deployment in deployments:
        spec = deployment["spec"]
        if matches(backend.match_labels, metadata_of(spec["template"], "labels")):
            replicas = spec.get("replicas")
            wanted = (wanted or 0) + (1 if replicas is None else replicas)
    return wanted


def _message(backend: Backend) -> str:
    labels = ",".join(f"{key}:{value}" for key, value in sorted(backend.match_labels.items()))
    return f"spec.engineSelector.matchLabels={{{labels}}}; no Pods in namespace match"
