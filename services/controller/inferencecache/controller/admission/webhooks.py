"""Which webhooks there are, and how the API server is told of them [ADM-01..03].

The table is the only place of names and paths: the listener serves it, the manifests of an
installation are generated from it, and tests register it at their own address.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from inferencecache.controller.admission.resources import JUDGED_KINDS
from inferencecache.controller.admission.reviews import Document
from inferencecache.schemas.resources import GROUP, VERSION

INSTALL_NAMESPACE: Final = "inference-cache-system"
SERVICE: Final = "webhook-service"
CERTIFICATE: Final = "serving-cert"
_INJECT_CA: Final = "cert-manager.io/inject-ca-from"
_REVIEW_VERSION: Final = "v1"


class WebhookEntry(NamedTuple):
    """A webhook as it is registered. `fails_open`: what becomes of a request that it does not answer."""

    verb: Literal["mutate", "validate"]
    group: str
    version: str
    kind: str
    plural: str
    operations: tuple[str, ...]
    fails_open: bool

    @property
    def name(self) -> str:
        """Unique, as a refusal names it."""
        return f"{self.verb[0]}{self.kind.lower()}.{GROUP}"

    @property
    def path(self) -> str:
        """Where it answers."""
        return f"/{self.verb}-{self.group.replace('.', '-')}-{self.version}-{self.kind.lower()}"


POD_WEBHOOK: Final = WebhookEntry("mutate", "", "v1", "Pod", "pods", ("CREATE",), fails_open=True)
_VERBS: Final[tuple[Literal["mutate", "validate"], ...]] = ("mutate", "validate")
RESOURCE_WEBHOOKS: Final = tuple(
    WebhookEntry(verb, GROUP, VERSION, kind.name, kind.plural, ("CREATE", "UPDATE"), fails_open=False)
    for verb in _VERBS
    for kind in JUDGED_KINDS
)
WEBHOOKS: Final = (POD_WEBHOOK, *RESOURCE_WEBHOOKS)


def registrations(client_config: Callable[[str], Document]) -> list[Document]:
    """The two configuration objects; `client_config(path)` says how a webhook is reached."""
    return [
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": f"{kind}WebhookConfiguration",
            "metadata": {"name": f"inference-cache-{kind.lower()}-webhook-configuration"},
            "webhooks": [_registration(entry, client_config) for entry in WEBHOOKS if entry.verb == verb],
        }
        for verb, kind in (("mutate", "Mutating"), ("validate", "Validating"))
    ]


def _registration(entry: WebhookEntry, client_config: Callable[[str], Document]) -> Document:
    rule = {
        "apiGroups": [entry.group],
        "apiVersions": [entry.version],
        "operations": list(entry.operations),
        "resources": [entry.plural],
    }
    return {
        "name": entry.name,
        "admissionReviewVersions": [_REVIEW_VERSION],
        "clientConfig": client_config(entry.path),
        "failurePolicy": "Ignore" if entry.fails_open else "Fail",
        "rules": [rule],
        "sideEffects": "None",
    }


def installed_registrations() -> list[Document]:
    """The configurations of an installation, whose CA cert-manager fills in [ADM-03]."""
    configurations = registrations(
        lambda path: {"service": {"name": SERVICE, "namespace": INSTALL_NAMESPACE, "path": path}}
    )
    for configuration in configurations:
        configuration["metadata"]["annotations"] = {_INJECT_CA: f"{INSTALL_NAMESPACE}/{CERTIFICATE}"}
    return configurations
