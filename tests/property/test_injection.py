"""What holds of every pod that the webhook answers about, however odd pod and backends are."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferencecache.controller.adapters import find_adapter
from inferencecache.controller.admission.patches import patch_between
from inferencecache.controller.admission.reviews import Allowed
from inferencecache.controller.admission.validation.overrides import override_violations
from inferencecache.core.kube.backends import Backend
from tests.support.backends import DOMAIN, REDIS, change, events_only, hi_cache, node_local, pod_local
from tests.support.engine_pods import MARKS, PREFIX, SKIPPED
from tests.unit.controller.injection.asking import SIDECAR, ask

Document = dict[str, Any]
Some = st.SearchStrategy[Document]

FLAGS = (
    "--model", "x", "--page-size=64", "--page-size", "64", "-tp", "2", "-dp=1", "--port=9", "--port", "$(A)",
    "--kv-transfer-config", "{}", "--kv-transfer-config={}", "--disable-hybrid-kv-cache-manager",
    "--enable-lmcache", "--lmcache-config-file=x", "--enable-metrics", "--enable-hierarchical-cache",
    "--hicache-ratio=2.0", "--hicache-ratio", "--mine", "--mine=1", "word", "-1",
)  # fmt: skip
VARIABLES = (
    "A", "PYTHONHASHSEED", "INFERENCECACHE_FAIL_OPEN", "INFERENCECACHE_NODE_IP", "KERNEL_CHECK_STRICT",
    "LMCACHE_USE_EXPERIMENTAL", "INFERENCECACHE_MP_SERVER", "INFERENCECACHE_NODE_LOCAL_GATE",
)  # fmt: skip
CONTAINERS = ("vllm", "sglang", "engine", "side", "kvevent-subscriber")
INIT_CONTAINERS = ("own", "lmcache-mp-server", "lmcache-node-local-gate", "lmcache-kernel-check")
VOLUMES = ("own", "lmcache-mp-shm", "lmcache-mp-config", "lmcache-node-shm", "lmcache-node-config")
PATHS = ("/dev/shm", "/dev/shm/", "/var/run/inference-cache/lmcache", "/data")

variable: Some = st.one_of(
    st.builds(
        lambda name, value: {"name": name, "value": value},
        st.sampled_from(VARIABLES),
        st.sampled_from(["0", "true", "7"]),
    ),
    st.builds(
        lambda name: {
            "name": name,
            "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.hostIP"}},
        },
        st.sampled_from(VARIABLES),
    ),
)
some_flags = st.lists(st.sampled_from(FLAGS), max_size=6)
some_variables = st.lists(variable, max_size=4)
volume_source: Some = st.sampled_from(
    [
        {"emptyDir": {}},
        {"emptyDir": {"medium": "Memory", "sizeLimit": "6Gi"}},
        {"emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
        {"hostPath": {"path": "/dev/shm/inference-cache/u-1", "type": "DirectoryOrCreate"}},
    ]
)


def unique_by(
    key: str, items: st.SearchStrategy[Document], most: int = 4
) -> st.SearchStrategy[list[Document]]:
    return st.lists(items, max_size=most, unique_by=lambda item: item[key])


mount: Some = st.fixed_dictionaries(
    {"name": st.sampled_from(VOLUMES), "mountPath": st.sampled_from(PATHS)},
    optional={"subPath": st.just("s"), "readOnly": st.booleans()},
)
mounts = unique_by("mountPath", mount, 2)
gpus: Some = st.sampled_from([{}, {"limits": {"nvidia.com/gpu": "1"}}])
container: Some = st.fixed_dictionaries(
    {"name": st.sampled_from(CONTAINERS), "image": st.just("engine:1")},
    optional={"args": some_flags, "env": some_variables, "volumeMounts": mounts, "resources": gpus},
)
init_container: Some = st.fixed_dictionaries(
    {"name": st.sampled_from(INIT_CONTAINERS), "image": st.just("own:1")}, optional={"env": some_variables}
)
volume: Some = st.builds(
    lambda name, source: {"name": name} | source, st.sampled_from(VOLUMES), volume_source
)
some_annotations = st.dictionaries(
    st.sampled_from([*MARKS, *SKIPPED, f"{PREFIX}skip-inject", "own"]), st.sampled_from(["", "x", "false"])
)
pods: Some = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {"name": st.just("engine"), "labels": st.just({DOMAIN: "engine"})},
            optional={"annotations": some_annotations},
        ),
        "spec": st.fixed_dictionaries(
            {"containers": unique_by("name", container, 3).filter(bool)},
            optional={
                "initContainers": unique_by("name", init_container),
                "volumes": unique_by("name", volume),
                "nodeSelector": st.just({"pool": "x"}),
            },
        ),
    }
)

flags_with_values = st.lists(
    st.sampled_from(
        ["--mine", "--mine=2", "--other=3", "--kv-events-config={}", "--enable-metrics", "--hicache-ratio=4"]
    ),
    max_size=3,
)
overrides: Some = st.fixed_dictionaries(
    {},
    optional={
        "args": flags_with_values,
        "suppressArgs": st.lists(st.sampled_from(FLAGS), max_size=2),
        "env": some_variables,
        "suppressEnv": st.lists(st.sampled_from(VARIABLES), max_size=2),
    },
)


@st.composite
def backends(draw: st.DrawFn) -> Document:
    """Any profile, with what may go with it and some of what may not."""
    backend: Document = draw(
        st.sampled_from(
            [
                *(
                    make(runtime)
                    for make in (pod_local, node_local, events_only)
                    for runtime in ("VLLM", "SGLang")
                ),
                hi_cache(),
            ]
        )
    )
    if draw(st.booleans()):
        backend = change(backend, "spec.observation", {"modelID": "m"})
    if draw(st.booleans()):
        overridden = change(backend, "spec.integration.engineOverrides", draw(overrides))
        # What is reserved gets past admission only while the webhooks are off.
        if not any(override_violations(Backend(overridden), find_adapter(Backend(overridden)))):
            backend = overridden
    if draw(st.booleans()):
        backend = change(backend, "spec.remoteStorage", REDIS)
        backend = change(backend, "status.remoteStorage.endpoint", draw(st.sampled_from([None, "r:6379"])))
    mode = draw(st.sampled_from([None, "strict", "off", "report-only"]))
    if mode is not None:
        backend = change(backend, "metadata.annotations", {f"{PREFIX}lmcache-kernel-check": mode})
    return backend


def answer_to(pod: Document, backend: Document) -> Allowed:
    answer = ask(pod, backend, sidecar=SIDECAR)
    assert isinstance(answer, Allowed)
    return answer


def is_canonical(pod: Document, backend: Document) -> bool:
    runtime = backend["spec"]["runtime"].lower()
    return any(container["name"] == runtime for container in pod["spec"]["containers"])


@pytest.mark.rule("ADM-240")
@given(pods, backends())
def test_the_webhooks_own_result_needs_no_change(pod: Document, backend: Document) -> None:
    once = answer_to(pod, backend).changed or pod
    if is_canonical(pod, backend):
        again = answer_to(once, backend)
        assert again.changed is None, patch_between(once, again.changed or {})


@pytest.mark.rule("ADM-133", "ADM-134", "ADM-146")
@given(pods, backends())
def test_a_pod_is_wired_with_marks_or_keeps_all_but_its_marks(pod: Document, backend: Document) -> None:
    came_out = answer_to(pod, backend).changed or pod
    marked = came_out["metadata"].get("annotations", {})
    if marked.get(f"{PREFIX}injected-by") == "team-a/cache":
        for before, after in zip(pod["spec"]["containers"], came_out["spec"]["containers"], strict=False):
            assert before["name"] == after["name"]
            for key in ("image", "command", "resources"):
                assert before.get(key) == after.get(key)
        assert pod["spec"].get("nodeSelector") == came_out["spec"].get("nodeSelector")
        return
    assert came_out["spec"] == pod["spec"]
    assert not [mark for mark in MARKS if marked.get(mark)]


@pytest.mark.rule("ADM-189", "ADM-198", "ADM-240")
@given(pods, st.sampled_from([pod_local, node_local]), st.sampled_from(["VLLM", "SGLang"]))
def test_a_changed_backend_comes_out_as_if_it_had_always_been_so(
    pod: Document, make: Any, runtime: str
) -> None:
    backend = make(runtime)
    block = f"spec.lmCache.{'podLocal' if make is pod_local else 'nodeLocal'}.server"
    changed = change(backend, f"{block}.port", 7000)
    changed = change(changed, f"{block}.l1Capacity", "2Gi")
    changed = change(changed, "metadata.generation", 4)
    before = answer_to(pod, backend).changed
    straight = answer_to(pod, changed).changed
    if before is None or straight is None or not is_canonical(pod, backend):
        return
    assert (answer_to(copy.deepcopy(before), changed).changed or before) == straight


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "value", "args", "a", "mountPath"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@st.composite
def damaged_pods(draw: st.DrawFn) -> Document:
    """A pod with any JSON somewhere in it."""
    pod = copy.deepcopy(draw(pods))
    part: Any = pod
    while True:
        keys = list(part) if isinstance(part, dict) else list(range(len(part)))
        key = draw(st.sampled_from(keys))
        if draw(st.booleans()) or not isinstance(part[key], dict | list) or not part[key]:
            part[key] = draw(json_values)
            return pod
        part = part[key]


@pytest.mark.rule("ADM-242")
@given(damaged_pods(), backends())
def test_a_pod_that_is_no_pod_is_answered_like_others(pod: Document, backend: Document) -> None:
    came_out = answer_to(pod, backend).changed
    if came_out is not None:
        assert patch_between(pod, came_out)
