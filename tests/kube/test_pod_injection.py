"""The worked cases about pods through an API server that asks the webhook.

What is stored is compared whole: what the server adds to every pod is learnt by sending it the
expected pod without marks, in a namespace where nobody wires it.
"""

from __future__ import annotations

import pytest

from inferencecache.controller.injection import SidecarSettings
from tests.kube.pods import OBSERVED, completed, localized, store_backend
from tests.support.backends import change
from tests.support.engine_pods import POD_CASES, PodCase
from tests.support.kube import KubeClient
from tests.support.webhooks import ServedWebhooks

pytestmark = pytest.mark.kube


@pytest.mark.rule(
    "ADM-W23", "ADM-W24", "ADM-W25", "ADM-W26", "ADM-W27", "ADM-W28", "ADM-W29", "ADM-W30", "ADM-W31",
    "ADM-W32", "ADM-W33", "ADM-W34", "ADM-W35", "ADM-W36", "ADM-W37", "ADM-W38", "ADM-W41", "ADM-W42",
    "ADM-W43", "ADM-W44", "ADM-W45", "ADM-W46", "ADM-W47", "ADM-W48", "ADM-W49",
)  # fmt: skip
@pytest.mark.parametrize("case", POD_CASES, ids=str)
async def test_a_pod_is_stored_as_the_case_says(
    case: PodCase, webhooks: ServedWebhooks, guarded: KubeClient, guarded_namespace: str
) -> None:
    webhooks.sidecar = OBSERVED if case.observed else SidecarSettings()
    stored = [await store_backend(webhooks, guarded, guarded_namespace, b) for b in case.backends]
    answer = await guarded.create(change(case.pod, "metadata.namespace", guarded_namespace))
    if case.denied:
        assert (answer.status, answer.body["reason"]) == (403, "Forbidden")
        assert case.message in answer.message
        return
    assert answer.status == 201, answer
    expected = localized(case.expected or case.pod, stored[0])
    assert answer.body["spec"] == await completed(guarded, expected)
    for key in ("labels", "annotations"):
        assert answer.body["metadata"].get(key) == expected["metadata"].get(key)
