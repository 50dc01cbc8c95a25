"""What the check of the engines' native code found [CTL-139..142].

The check is an init container; it leaves `OK` or `FAIL: …` as its termination message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from inferencecache.controller.backend.engine_pods import (
    is_stamped,
    name_of,
    selected_pods,
    status_of_container,
)
from inferencecache.controller.backend.verdicts import shortened
from inferencecache.controller.injection.environment import last_of
from inferencecache.controller.injection.kernel_check import KERNEL_CHECK_NAME, STRICT_VARIABLE
from inferencecache.controller.injection.pods import find, parts
from inferencecache.core.kube.backends import Backend
from inferencecache.core.kube.conditions import Verdict
from inferencecache.core.kube.kinds import Document

KERNEL_DEGRADED: Final = "EngineKernelDegraded"


class KernelHealth(NamedTuple):
    """`is_strict`: a pod whose check failed was not to start with that, so the backend is not ready."""

    verdict: Verdict
    is_strict: bool = False

    def gate(self, ready: Verdict) -> Verdict:
        """`Ready` behind this gate, whatever it was before [CTL-142]."""
        if not self.is_strict:
            return ready
        return Verdict("False", KERNEL_DEGRADED, self.verdict.message)


def kernel_health(backend: Backend, pods: Sequence[Document]) -> KernelHealth | None:
    """The worst that is found; None when no pod of the backend has a check."""
    checked = [pod for pod in selected_pods(backend, pods) if is_stamped(backend, pod) and _check(pod)]
    if not checked:
        return None
    failed: list[tuple[Document, str]] = []
    broken: list[str] = []
    pending: list[str] = []
    for pod in checked:
        ended = _ended(pod)
        said = ((ended or {}).get("message") or "").strip()
        if ended is None:
            pending.append(name_of(pod))
        elif said.startswith("FAIL:"):
            failed.append((pod, said))
        elif said != "OK" or ended.get("exitCode") != 0:
            how = f"exit {ended.get('exitCode')}, {ended.get('reason') or 'no reason'}: {said or 'no text'}"
            broken.append(f"the kernel check of pod {name_of(pod)} ended with {how}")
    if failed:
        text = f"engine kernels do not load in {len(failed)} of {len(checked)} pods: {failed[0][1]}"
        is_strict = any(_is_strict(pod) for pod, _ in failed)
        return KernelHealth(Verdict("False", "KernelLoadFailed", shortened(text)), is_strict)
    if broken:
        return KernelHealth(Verdict("Unknown", "KernelCheckError", shortened(broken[0])))
    if pending:
        text = f"the kernel check of {len(pending)} of {len(checked)} pods has not ended"
        return KernelHealth(Verdict("Unknown", "KernelCheckPending", text))
    return KernelHealth(Verdict("True", "KernelsHealthy", f"engine kernels load in {len(checked)} pods"))


def _check(pod: Document) -> Document | None:
    return find(parts(pod.get("spec") or {}, "initContainers"), KERNEL_CHECK_NAME)


def _ended(pod: Document) -> Document | None:
    status = status_of_container(pod, KERNEL_CHECK_NAME, init=True)
    states = (status.get("state") or {}, status.get("lastState") or {})
    return next((state["terminated"] for state in states if state.get("terminated")), None)


def _is_strict(pod: Document) -> bool:
    entry = last_of(parts(_check(pod) or {}, "env"), STRICT_VARIABLE)
    return entry is not None and entry.get("value") == "1"
