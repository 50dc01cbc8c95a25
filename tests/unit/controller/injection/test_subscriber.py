"""The sidecar: when it is attached, what it is told, and that it understands all of it."""

from __future__ import annotations

import copy
import re

import pytest

from inferencecache.controller import settings as controller_settings
from inferencecache.controller.injection import SidecarSettings
from inferencecache.kvevent_subscriber.settings import SubscriberSettings, read_settings
from tests.support.backends import change, events_only, hi_cache, node_local, pod_local
from tests.support.engine_pods import SIDECAR_IMAGE, engine_pod, pod_local_wired, pod_v, sidecar, wired
from tests.unit.controller.injection.asking import SIDECAR, Document, ask, stay, wire

BACKENDS = {
    "vllm-pod": pod_local(),
    "vllm-node": node_local(),
    "vllm-observed": events_only(),
    "sglang-pod": pod_local("SGLang"),
    "sglang-node": node_local("SGLang"),
    "sglang-observed": events_only("SGLang"),
    "sglang-hicache": hi_cache(),
}


def observed(backend: Document, model: str = "m") -> Document:
    return change(backend, "spec.observation", {"modelID": model})


def engine_for(backend: Document) -> Document:
    return engine_pod("--page-size=64", name=backend["spec"]["runtime"].lower())


def sidecar_of(pod: Document) -> Document:
    last: Document = pod["spec"]["containers"][-1]
    assert last["name"] == "kvevent-subscriber"
    return last


def as_started(container: Document, fields: dict[str, str], **secrets: str) -> SubscriberSettings:
    """The settings of the real program, started as a kubelet would start this container."""
    env = {}
    for entry in container["env"]:
        source = entry["valueFrom"]
        field = source.get("fieldRef", {}).get("fieldPath")
        env[entry["name"]] = fields[field] if field else secrets[source["secretKeyRef"]["name"]]

    def expanded(argument: str) -> str:
        return re.sub(r"\$\$|\$\((\w+)\)", lambda m: "$" if m[0] == "$$" else env.get(m[1], m[0]), argument)

    return read_settings([expanded(argument) for argument in container["args"]], env)


POD_FIELDS = {"metadata.name": "engine-7", "metadata.namespace": "team-a", "metadata.uid": "p-1"}


@pytest.mark.rule("ADM-223", "ADM-239")
@pytest.mark.parametrize("name", BACKENDS)
def test_all_adapters_attach_it_last_when_there_are_image_and_model(name: str) -> None:
    backend = observed(BACKENDS[name])
    pod = engine_for(backend)
    pod["spec"]["containers"].append({"name": "side", "image": "own:1"})
    containers = wire(pod, backend, sidecar=SIDECAR)["spec"]["containers"]
    assert [c["name"] for c in containers] == [
        pod["spec"]["containers"][0]["name"],
        "side",
        "kvevent-subscriber",
    ]


@pytest.mark.rule("ADM-223", "ADM-225", "ADM-226", "ADM-229", "ADM-231", "ADM-232", "ADM-233")
def test_a_wired_engine_gets_it_whole() -> None:
    expected = pod_local_wired(pod_v(), "--model", "x", sidecars=(sidecar(),))
    assert wire(pod_v(), observed(pod_local()), sidecar=SIDECAR) == expected


@pytest.mark.rule("ADM-226", "ADM-237", "ADM-W32")
@pytest.mark.parametrize("runtime", ["vllm", "sglang"])
def test_an_observed_engine_gets_it_without_the_offload_flag_and_nothing_else(runtime: str) -> None:
    backend = BACKENDS[f"{runtime}-observed"]
    pod = engine_for(backend)
    port = {"vllm": 8000, "sglang": 30000}[runtime]
    expected = wired(pod, sidecars=(sidecar(offload=False, scheme=runtime, port=port),))
    assert wire(pod, backend, sidecar=SIDECAR) == expected


@pytest.mark.rule("ADM-230", "ADM-148")
def test_an_observed_engine_need_not_be_told_apart() -> None:
    pod = pod_v("--port=9", name="engine")
    pod["spec"]["containers"].append({"name": "side", "image": "own:1"})
    added = sidecar_of(wire(pod, events_only(), sidecar=SIDECAR))
    assert added == sidecar(offload=False, port=8000)


@pytest.mark.rule("ADM-223")
def test_one_of_the_authors_is_left_as_it_is() -> None:
    pod = pod_v()
    own = {"name": "kvevent-subscriber", "image": "own:1"}
    pod["spec"]["containers"].append(own)
    backend = observed(pod_local())
    assert sidecar_of(wire(pod, backend, sidecar=SIDECAR)) == own
    assert "already" in ask(pod, backend, sidecar=SIDECAR).message


@pytest.mark.rule("ADM-226", "ADM-229", "ADM-233", "ADM-236")
@pytest.mark.parametrize("name", BACKENDS)
def test_the_sidecar_understands_every_flag_and_variable_that_it_gets(name: str) -> None:
    backend = observed(BACKENDS[name], "org/model $(POD_NAME) $x")
    settings = as_started(sidecar_of(wire(engine_for(backend), backend, sidecar=SIDECAR)), POD_FIELDS)
    runtime = name.partition("-")[0]
    assert (settings.replica, settings.tenant, settings.pod_uid) == ("engine-7", "team-a", "p-1")
    assert settings.model == "org/model $(POD_NAME) $x"
    assert settings.scheme == runtime
    assert settings.endpoints == ("tcp://127.0.0.1:5557",)
    assert settings.nats.url.startswith("nats://inference-cache-nats.inference-cache-system.svc")
    assert settings.metrics_url == f"http://127.0.0.1:{ {'vllm': 8000, 'sglang': 30000}[runtime] }/metrics"
    assert settings.mapping.ignore_block_removed is not name.endswith("observed")
    defaults = read_settings(["--replica-id=r", "--model-id=m"], {})
    for field in ("topic", "stats_interval_s", "stats", "producer", "health_address", "on_gap"):
        assert getattr(settings, field) == getattr(defaults, field)


@pytest.mark.rule("ADM-225")
def test_its_health_port_is_the_one_that_it_serves() -> None:
    container = sidecar_of(wire(pod_v(), observed(pod_local()), sidecar=SIDECAR))
    address = as_started(container, POD_FIELDS).health_address
    assert address is not None
    assert container["ports"] == [{"name": "kvevents-http", "containerPort": address[1], "protocol": "TCP"}]
    assert not {"command", "volumeMounts", "livenessProbe", "readinessProbe"} & container.keys()


@pytest.mark.rule("ADM-227", "ADM-228")
def test_address_and_credentials_are_the_controllers() -> None:
    settings = SidecarSettings(
        image=SIDECAR_IMAGE, nats_url="nats://user:pa$$word@nats:4222", credentials_secret="nats-creds"
    )
    container = sidecar_of(wire(pod_v(), observed(pod_local()), sidecar=settings))
    assert container["env"][3:] == [
        {
            "name": "NATS_CREDS",
            "valueFrom": {"secretKeyRef": {"name": "nats-creds", "key": "nats.creds", "optional": True}},
        }
    ]
    started = as_started(container, POD_FIELDS, **{"nats-creds": "the text"})
    assert started.nats.url == "nats://user:pa$$word@nats:4222"
    assert started.nats.creds_text == "the text"


@pytest.mark.rule("ADM-224", "ADM-252", "ADM-133")
def test_a_model_that_the_sidecar_would_refuse_leaves_it_out_and_the_rest_goes_on() -> None:
    backend = observed(pod_local(), "m" * 256)
    assert wire(pod_v(), backend, sidecar=SIDECAR) == pod_local_wired(pod_v(), "--model", "x")
    assert "spec.observation.modelID" in ask(pod_v(), backend, sidecar=SIDECAR).message
    assert "spec.observation.modelID" in stay(pod_v(), events_only(model="m" * 256), sidecar=SIDECAR)


@pytest.mark.rule("ADM-144", "ADM-240")
def test_an_observed_engine_whose_sidecar_is_ours_stays_marked() -> None:
    once = wire(pod_v(), events_only(), sidecar=SIDECAR)
    stored = copy.deepcopy(once)
    sidecar_of(stored).update(
        terminationMessagePolicy="File", volumeMounts=[{"name": "token", "mountPath": "/var/run/secrets"}]
    )
    for pod in (once, stored):
        assert stay(pod, events_only(), sidecar=SIDECAR) == ""
    other = copy.deepcopy(once)
    sidecar_of(other)["args"].pop()
    assert "annotations" not in wire(other, events_only(), sidecar=SIDECAR)["metadata"]


NATS = ("--nats-url=nats://127.0.0.1:4222", "--insecure-nats")


@pytest.mark.rule("ADM-227", "ADM-228")
@pytest.mark.parametrize(
    ("setting", "value"), [("nats-url", "http://x"), ("credentials-secret", "Not a name")]
)
def test_a_setting_that_sidecars_or_the_api_would_refuse_ends_the_controller(
    capsys: pytest.CaptureFixture[str], setting: str, value: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        controller_settings.read_settings([*NATS, f"--kvevent-subscriber-{setting}={value}"], {})
    assert ended.value.code == 2
    assert f"--kvevent-subscriber-{setting}" in capsys.readouterr().err


@pytest.mark.rule("ADM-223")
@pytest.mark.parametrize("blank", ["", " "])
def test_an_image_is_taken_without_the_blanks_around_it(blank: str) -> None:
    flags = [*NATS, f"--kvevent-subscriber-image={blank}", f"--kvevent-subscriber-credentials-secret={blank}"]
    assert controller_settings.read_settings(flags, {}).sidecar == SidecarSettings()
    flags[2] += f"i:1{blank}"
    assert controller_settings.read_settings(flags, {}).sidecar == SidecarSettings(image="i:1")


@pytest.mark.rule("ADM-227")
def test_without_an_address_sidecars_get_that_of_the_manifests() -> None:
    empty = controller_settings.read_settings([*NATS, "--kvevent-subscriber-image=i"], {}).sidecar
    container = sidecar_of(wire(pod_v(), observed(pod_local()), sidecar=empty))
    assert container["args"] == sidecar()["args"]
