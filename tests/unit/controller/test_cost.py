"""What anybody may write is judged in time that grows with its length and not faster: all webhooks of a
replica share one event loop, and the API server does not wait for long.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from inferencecache.controller.admission.decoding import unreadable_values
from inferencecache.controller.admission.validation import judge_backend
from inferencecache.schemas.resources import CachePolicy
from tests.support.backends import Document, change, hi_cache, node_local, pod_local
from tests.support.engine_pods import pod_v
from tests.support.resources import document
from tests.unit.controller.injection.asking import SIDECAR, ask

MANY = 30_000
"""So many that work for each pair of them takes minutes."""
LIMIT_S = 10.0
OVERRIDES = "spec.integration.engineOverrides"


def policy_with(ttl: str) -> None:
    assert unreadable_values(document("CachePolicy", spec={"evictionTTL": ttl}), CachePolicy)


def ratio_of(ratio: str) -> None:
    assert judge_backend(change(hi_cache(), "spec.hiCache.ratio", ratio), None, [])


def label_of(path: str, value: object) -> None:
    """An update of an object with many violations, none of them new."""
    backend = change(pod_local(), path, value)
    assert judge_backend(backend, backend, []) == []


def wiring(pod: Document, overrides: Document) -> None:
    backend = change(node_local(), "spec.observation", {"modelID": "m"})
    answer = ask(pod, change(backend, OVERRIDES, overrides), sidecar=SIDECAR)
    assert "not wired" not in answer.message


def variables(prefix: str) -> list[Document]:
    return [{"name": f"{prefix}{number}", "value": "1"} for number in range(MANY)]


NODE_IP = {"name": "INFERENCECACHE_NODE_IP", "value": "1"}


@pytest.mark.rule("ADM-13", "ADM-88", "ADM-11", "ADM-211", "ADM-213", "ADM-230")
@pytest.mark.parametrize(
    "judge",
    [
        pytest.param(lambda: policy_with("1" * MANY), id="duration without unit"),
        pytest.param(lambda: policy_with("9" * 10 * MANY + "s"), id="long duration"),
        pytest.param(lambda: policy_with("1s" * MANY + "x"), id="duration of many parts"),
        pytest.param(lambda: ratio_of("1" * MANY + "x"), id="ratio"),
        pytest.param(lambda: label_of(OVERRIDES, {"env": [{"name": ""}] * MANY}), id="old violations"),
        pytest.param(lambda: wiring(pod_v(env=variables("V")), {"env": variables("E")}), id="variables"),
        pytest.param(lambda: wiring(pod_v(), {"env": [NODE_IP] * MANY}), id="one variable"),
        pytest.param(lambda: wiring(pod_v(*["--a"] * 2 * MANY), {"args": ["-b"] * MANY}), id="arguments"),
        pytest.param(
            lambda: wiring(pod_v(*["--port=$(A)"] * MANY, env=variables("V")), {}), id="ports by variable"
        ),
    ],
)
def test_what_is_long_is_judged_at_once(judge: Callable[[], None]) -> None:
    began = time.process_time()
    judge()
    assert time.process_time() - began < LIMIT_S
