"""What the controller may do in a cluster, and roles for people: the only place of both.

The manifests of an installation are generated from it, and tests run the controller with exactly these
rights [CTL-221..225]. It may read no Secret; it only refers to them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from inferencecache.controller.admission.webhooks import INSTALL_NAMESPACE
from inferencecache.core.kube.kinds import Document
from inferencecache.schemas.resources import GROUP, KINDS

ACCOUNT: Final = "inference-cache-controller-manager"
_ROLE: Final = "inference-cache-manager-role"
_ELECTION_ROLE: Final = "inference-cache-leader-election-role"
_API: Final = "rbac.authorization.k8s.io"

_READ: Final = ("get", "list", "watch")
_WRITE: Final = ("create", "update", "patch", "delete")
_POLICY_KINDS: Final = ("cachepolicies", "cachetenants", "pdtopologies", "prompttemplates")

MANAGER_RULES: Final = (
    ("", ("pods",), (*_READ, "create", "patch", "delete")),
    ("", ("services",), (*_READ, *_WRITE)),
    ("", ("events",), ("create", "patch")),
    ("events.k8s.io", ("events",), ("create", "patch")),
    ("apps", ("deployments",), (*_READ, *_WRITE)),
    ("apps", ("deployments/status", "replicasets"), ("get",)),
    (GROUP, ("cachebackends",), (*_READ, *_WRITE)),
    (GROUP, ("cachebackends/finalizers",), ("update",)),
    (
        GROUP,
        tuple(f"{plural}/status" for plural in ("cachebackends", "cacheindices", *_POLICY_KINDS)),
        ("get", "update", "patch"),
    ),
    (GROUP, ("cacheindices",), (*_READ, "create")),
    (GROUP, _POLICY_KINDS, _READ),
)
"""Group, resources, verbs, in the whole cluster."""

ELECTION_RULES: Final = (
    ("", ("configmaps",), (*_READ, *_WRITE)),
    ("coordination.k8s.io", ("leases",), (*_READ, *_WRITE)),
    ("", ("events",), ("create", "patch")),
)
"""The same in the controller's own namespace."""

_Rules = Iterable[tuple[str, tuple[str, ...], tuple[str, ...]]]


def rights_of_controller() -> list[Document]:
    """Its account, its roles, and what binds them."""
    account = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": INSTALL_NAMESPACE}
    metadata = {"name": ACCOUNT, "namespace": INSTALL_NAMESPACE}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        _role(_ROLE, MANAGER_RULES),
        _binding(_ROLE, account),
        _role(_ELECTION_ROLE, ELECTION_RULES, INSTALL_NAMESPACE),
        _binding(_ELECTION_ROLE, account, INSTALL_NAMESPACE),
    ]


def roles_for_people() -> list[Document]:
    """An editor's and a viewer's role for each of our kinds, bound to nobody [CTL-224]."""
    return [
        _role(
            f"inference-cache-{kind.name.lower()}-{who}-role",
            ((GROUP, (kind.plural,), verbs), (GROUP, (f"{kind.plural}/status",), ("get",))),
        )
        for kind in KINDS.values()
        for who, verbs in (("editor", (*_READ, *_WRITE)), ("viewer", _READ))
    ]


def _role(name: str, rules: _Rules, namespace: str = "") -> Document:
    return {
        "apiVersion": f"{_API}/v1",
        "kind": "Role" if namespace else "ClusterRole",
        "metadata": _metadata(name, namespace),
        "rules": [
            {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
            for group, resources, verbs in rules
        ],
    }


def _binding(role: str, subject: Document, namespace: str = "") -> Document:
    kind = "Role" if namespace else "ClusterRole"
    return {
        "apiVersion": f"{_API}/v1",
        "kind": f"{kind}Binding",
        "metadata": _metadata(f"{role}binding", namespace),
        "roleRef": {"apiGroup": _API, "kind": kind, "name": role},
        "subjects": [dict(subject)],
    }


def _metadata(name: str, namespace: str) -> Document:
    return {"name": name, "namespace": namespace} if namespace else {"name": name}
