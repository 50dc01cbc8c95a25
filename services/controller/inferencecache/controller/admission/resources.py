"""The webhooks of the custom resources: read the request, ask for siblings, decide [ADM-08..21].

An object that is being deleted and whose spec stays is let through unjudged: whoever removes its last
finalizer must be able to, or an invalid object could not be deleted [ADM-04, ADM-116].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from inferencecache.controller.admission.decoding import unreadable_values
from inferencecache.controller.admission.defaulting import defaulted_backend
from inferencecache.controller.admission.refusals import refusal
from inferencecache.controller.admission.reviews import (
    AdmissionRequest,
    Allowed,
    Answer,
    Denied,
    Document,
    Lookup,
    LookupFailedError,
    forbidden,
    unreadable,
)
from inferencecache.controller.admission.validation import (
    backend_needs_siblings,
    judge_backend,
    judge_policy,
    policy_needs_siblings,
)
from inferencecache.core.kube.backends import section, text
from inferencecache.schemas.resources import KINDS, Kind, Violation


class _Judge(NamedTuple):
    """`judge(new, old, siblings)` finds violations, with siblings only where `needs_siblings(new, old)`."""

    judge: Callable[[Document, Document | None, list[Document]], list[Violation]]
    needs_siblings: Callable[[Document, Document | None], bool]


_JUDGES: Final = {
    "CacheBackend": _Judge(judge_backend, backend_needs_siblings),
    "CachePolicy": _Judge(judge_policy, policy_needs_siblings),
    "CacheTenant": _Judge(judge_policy, policy_needs_siblings),
}
JUDGED_KINDS: Final = tuple(KINDS[name] for name in _JUDGES)


async def complete(kind: Kind, request: AdmissionRequest, lookup: Lookup) -> Answer:
    """The defaulting webhook. A wrong type is left to the schema, which is looked at next."""
    document = request.object
    if document is None or _is_going(request):
        return Allowed()
    if refused := _refuse_unreadable(kind, document, of_wrong_type=False):
        return refused
    return Allowed(defaulted_backend(document) if kind.name == "CacheBackend" else None)


async def judge(kind: Kind, request: AdmissionRequest, lookup: Lookup) -> Answer:
    """The validating webhook."""
    if request.object is None or _is_going(request):
        return Allowed()
    if refused := _refuse_unreadable(kind, request.object, of_wrong_type=True):
        return refused
    new = _placed(request.object, request)
    old = None if request.old_object is None else _placed(request.old_object, request)
    rules = _JUDGES[kind.name]
    siblings: list[Document] = []
    if rules.needs_siblings(new, old):
        try:
            siblings = await lookup(kind.plural, request.namespace)
        except LookupFailedError as error:
            return forbidden(str(error))
    violations = rules.judge(new, old, siblings)
    if not violations:
        return Allowed()
    return refusal(kind.name, request.object_name, new, violations)


def _refuse_unreadable(kind: Kind, document: Document, *, of_wrong_type: bool) -> Denied | None:
    problems = [
        str(value) for value in unreadable_values(document, kind.struct) if of_wrong_type or not value.is_type
    ]
    return unreadable(f"the {kind.name} cannot be read: {'; '.join(problems)}") if problems else None


def _is_going(request: AdmissionRequest) -> bool:
    new, old = request.object, request.old_object
    if new is None or old is None:
        return False
    return bool(text(section(old, "metadata"), "deletionTimestamp")) and new.get("spec") == old.get("spec")


def _placed(document: Document, request: AdmissionRequest) -> Document:
    """The object with its namespace, which a request may leave to its address."""
    metadata = section(document, "metadata") or {}
    return {**document, "metadata": {**metadata, "namespace": request.namespace}}
