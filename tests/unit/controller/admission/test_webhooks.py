"""How the API server is told of the webhooks."""

from __future__ import annotations

from typing import Any

import pytest

from inferencecache.controller.admission import installed_registrations, registrations, webhooks_of
from inferencecache.controller.admission.reviews import AdmissionRequest, Allowed, Answer, Lookup

TABLE = {
    "mpod.inferencecache.io": ("Mutating", "/mutate--v1-pod", ("", "v1", "pods"), ["CREATE"], "Ignore"),
    **{
        f"{verb[0]}{kind}.inferencecache.io": (
            "Mutating" if verb == "mutate" else "Validating",
            f"/{verb}-inferencecache-io-v1alpha1-{kind}",
            ("inferencecache.io", "v1alpha1", plural),
            ["CREATE", "UPDATE"],
            "Fail",
        )
        for verb in ("mutate", "validate")
        for kind, plural in (
            ("cachebackend", "cachebackends"),
            ("cachepolicy", "cachepolicies"),
            ("cachetenant", "cachetenants"),
        )
    },
}


def by_name() -> dict[str, tuple[str, dict[str, Any]]]:
    """Kind of the configuration and registration of each webhook of an installation."""
    return {
        webhook["name"]: (configuration["kind"].removesuffix("WebhookConfiguration"), webhook)
        for configuration in installed_registrations()
        for webhook in configuration["webhooks"]
    }


@pytest.mark.rule("ADM-01", "ADM-04", "ADM-05")
def test_seven_webhooks_have_their_names_paths_and_policies() -> None:
    found = {}
    for name, (kind, webhook) in by_name().items():
        (rule,) = webhook["rules"]
        what = (*rule.pop("apiGroups"), *rule.pop("apiVersions"), *rule.pop("resources"))
        path = webhook["clientConfig"]["service"]["path"]
        found[name] = (kind, path, what, rule.pop("operations"), webhook["failurePolicy"])
        assert rule == {}
    assert found == TABLE


@pytest.mark.rule("ADM-02")
def test_nothing_narrows_what_they_see_and_dry_runs_are_judged_too() -> None:
    for _, webhook in by_name().values():
        assert webhook.keys() == {
            "name",
            "admissionReviewVersions",
            "clientConfig",
            "failurePolicy",
            "rules",
            "sideEffects",
        }
        assert webhook["admissionReviewVersions"] == ["v1"]
        assert webhook["sideEffects"] == "None"


@pytest.mark.rule("ADM-03")
def test_the_configurations_name_the_service_and_let_cert_manager_fill_in_its_authority() -> None:
    assert [configuration["metadata"] for configuration in installed_registrations()] == [
        {
            "name": f"inference-cache-{kind}-webhook-configuration",
            "annotations": {"cert-manager.io/inject-ca-from": "inference-cache-system/serving-cert"},
        }
        for kind in ("mutating", "validating")
    ]
    for _, webhook in by_name().values():
        service = webhook["clientConfig"]["service"]
        assert (service["namespace"], service["name"]) == ("inference-cache-system", "webhook-service")
        assert "port" not in service, "443 by default"


def test_every_webhook_that_is_registered_is_served() -> None:
    async def pod(request: AdmissionRequest, lookup: Lookup) -> Answer:
        return Allowed()

    served = webhooks_of(pod)
    configurations = registrations(lambda path: {"url": path})
    paths = [webhook["clientConfig"]["url"] for one in configurations for webhook in one["webhooks"]]
    assert sorted(entry.path for entry in served) == sorted(paths)
    assert [webhook for entry, webhook in served.items() if entry.fails_open] == [pod]
