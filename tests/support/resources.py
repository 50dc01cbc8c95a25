"""Resources as documents, the way a YAML file gives them."""

from __future__ import annotations

from typing import Any

from inferencecache.schemas.resources import (
    API_VERSION,
    CachePolicy,
    CacheTenant,
    PDTopology,
    PromptTemplate,
    read_resource,
)

Document = dict[str, Any]


def document(kind: str, ref: str = "team-a/lookup", spec: Document | None = None) -> Document:
    """A document of `kind` named `namespace/name`; without `spec` when that is None."""
    namespace, _, name = ref.partition("/")
    made: Document = {"apiVersion": API_VERSION, "kind": kind}
    made["metadata"] = {"namespace": namespace, "name": name}
    return made if spec is None else made | {"spec": spec}


def policy(ref: str = "team-a/lookup", **spec: Any) -> CachePolicy:
    """A CachePolicy as it stands in the file: nothing defaulted."""
    made = read_resource(document("CachePolicy", ref, spec))
    assert isinstance(made, CachePolicy)
    return made


def tenant(ref: str, id_: str, most: int | None = None, **spec: Any) -> CacheTenant:
    """A CacheTenant, with a quota unless `most` is None."""
    quota = {} if most is None else {"quota": {"maxIndexEntries": most}}
    made = read_resource(document("CacheTenant", ref, {"tenantID": id_} | quota | spec))
    assert isinstance(made, CacheTenant)
    return made


def template(body: str, *slots: Document, ref: str = "serving/helpdesk") -> PromptTemplate:
    """A PromptTemplate."""
    made = read_resource(document("PromptTemplate", ref, {"body": body, "slots": list(slots)}))
    assert isinstance(made, PromptTemplate)
    return made


def topology(ref: str = "serving/chat-pd", **spec: Any) -> PDTopology:
    """A PDTopology."""
    made = read_resource(document("PDTopology", ref, spec))
    assert isinstance(made, PDTopology)
    return made
