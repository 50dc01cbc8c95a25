"""Admission webhooks: what the API server asks before it stores an object [ADM-01].

`reviews` holds the question and the answers. A webhook is a function from a request and a `Lookup` to an
`Answer`; what it decides lies in pure functions over JSON documents (`decoding`, `defaulting`,
`validation`), put together in `resources`. `webhooks` is the table of names and paths, `listener` and
`tls` are what the API server connects to.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from inferencecache.controller.admission.listener import AdmissionListener
from inferencecache.controller.admission.metrics import AdmissionMetrics
from inferencecache.controller.admission.resources import complete, judge
from inferencecache.controller.admission.reviews import Webhook
from inferencecache.controller.admission.webhooks import (
    POD_WEBHOOK,
    RESOURCE_WEBHOOKS,
    WebhookEntry,
    installed_registrations,
    registrations,
)
from inferencecache.schemas.resources import KINDS

__all__ = [
    "AdmissionListener",
    "AdmissionMetrics",
    "installed_registrations",
    "registrations",
    "webhooks_of",
]


def webhooks_of(pod: Webhook) -> Mapping[WebhookEntry, Webhook]:
    """All of them: those of the resources, and `pod` for pods."""
    resources = {
        entry: partial(complete if entry.verb == "mutate" else judge, KINDS[entry.kind])
        for entry in RESOURCE_WEBHOOKS
    }
    return {POD_WEBHOOK: pod, **resources}
