"""When engines get the kernel check, what is in it, and what its script finds."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from inferencecache.controller.injection.scripts import script_text
from tests.support.backends import change, events_only, node_local, pod_local
from tests.support.engine_pods import (
    SIDECAR_IMAGE,
    engine_of,
    engine_pod,
    kernel_check,
    pod_local_wired,
    pod_v,
    with_init,
)
from tests.unit.controller.injection.asking import SIDECAR, Document, wire

NAME = "lmcache-kernel-check"
ANNOTATION = "inferencecache.io/lmcache-kernel-check"


def with_mode(mode: str | None, backend: Document | None = None) -> Document:
    annotations = None if mode is None else {ANNOTATION: mode}
    return change(backend or pod_local(), "metadata.annotations", annotations)


def checks_of(pod: Document) -> list[Document]:
    return [init for init in pod["spec"].get("initContainers", []) if init["name"] == NAME]


def gpus(**amounts: str | int) -> Document:
    return pod_v(resources={side: {"nvidia.com/gpu": amount} for side, amount in amounts.items()})


@pytest.mark.rule("ADM-200", "ADM-203", "ADM-W38")
@pytest.mark.parametrize(
    ("mode", "on_cpu", "on_gpu"),
    [
        (None, None, "0"),
        ("", None, "0"),
        ("auto", None, "0"),
        ("stirct", None, "0"),
        ("report-only", "0", "0"),
        ("strict", "1", "1"),
        ("off", None, None),
    ],
)
def test_the_mode_says_when_it_is_injected_and_how_strict(
    mode: str | None, on_cpu: str | None, on_gpu: str | None
) -> None:
    for pod, strict in ((pod_v(), on_cpu), (gpus(limits="1"), on_gpu)):
        checks = checks_of(wire(pod, with_mode(mode)))
        assert [check["env"][-1]["value"] for check in checks] == ([] if strict is None else [strict])


@pytest.mark.rule("ADM-200")
def test_a_gpu_counts_by_request_or_limit_above_zero() -> None:
    assert checks_of(wire(gpus(requests=2), pod_local()))
    assert checks_of(wire(gpus(limits="0", requests="1"), pod_local()))
    assert not checks_of(wire(gpus(limits="0"), pod_local()))


@pytest.mark.rule("ADM-201", "ADM-238")
def test_it_is_the_engine_as_it_will_run_with_another_command() -> None:
    pod = gpus(limits="1")
    engine_of(pod).update(
        imagePullPolicy="Always",
        securityContext={"runAsUser": 7},
        workingDir="/w",
        envFrom=[{"configMapRef": {"name": "c"}}],
        volumeDevices=[{"name": "d", "devicePath": "/d"}],
        env=[{"name": "KERNEL_CHECK_STRICT", "value": "1"}, {"name": "U", "value": "u"}],
        command=["serve"],
        ports=[{"containerPort": 8000}],
        livenessProbe={"periodSeconds": 1},
    )
    backend = change(pod_local(), "spec.integration.engineOverrides", {"env": [{"name": "O", "value": "o"}]})
    wired = wire(with_init(pod, "own"), backend)
    engine = engine_of(wired)
    copied = ("imagePullPolicy", "securityContext", "workingDir", "envFrom", "volumeDevices")
    expected = kernel_check(engine, "0") | {key: engine[key] for key in copied}
    assert {"name": "O", "value": "o"} in expected["env"]
    assert [init["name"] for init in wired["spec"]["initContainers"]] == ["own", "lmcache-mp-server", NAME]
    assert checks_of(wired) == [expected]


@pytest.mark.rule("ADM-201", "ADM-238")
def test_it_follows_the_gate_too() -> None:
    wired = wire(gpus(limits="1"), node_local())
    assert [init["name"] for init in wired["spec"]["initContainers"]] == ["lmcache-node-local-gate", NAME]
    assert checks_of(wired) == [kernel_check(engine_of(wired), "0")]


@pytest.mark.rule("ADM-203", "ADM-204")
@pytest.mark.parametrize("image", [None, ""])
def test_without_an_image_there_is_nothing_to_check(image: str | None) -> None:
    pod = with_init(gpus(limits="1"), NAME)
    engine_of(pod)["image"] = image
    assert not checks_of(wire(pod, with_mode("strict")))


@pytest.mark.rule("ADM-204", "ADM-W38")
def test_the_name_is_its_own() -> None:
    pod = with_init(with_init(gpus(limits="1"), NAME), "own")
    wired = wire(pod, pod_local())
    assert [init["name"] for init in wired["spec"]["initContainers"]] == [NAME, "own", "lmcache-mp-server"]
    assert checks_of(wired) == [kernel_check(engine_of(wired), "0")]
    assert wire(with_init(pod_v(), NAME), pod_local()) == pod_local_wired(pod_v(), "--model", "x")


@pytest.mark.rule("ADM-204", "ADM-251", "ADM-133")
def test_what_cannot_be_rendered_is_left_out_and_the_rest_goes_on() -> None:
    pod = with_init(gpus(limits=f"1e{10**6}"), NAME)
    wired = wire(pod, pod_local())
    assert checks_of(wired) == checks_of(pod)
    assert len(wired["spec"]["initContainers"]) == 2


@pytest.mark.rule("ADM-205")
def test_an_observed_engine_has_none() -> None:
    pod = with_init(gpus(limits="1"), NAME)
    backend = with_mode("strict", events_only())
    assert not checks_of(wire(pod, backend, sidecar=SIDECAR))
    assert SIDECAR.image == SIDECAR_IMAGE


@pytest.mark.rule("ADM-206")
def test_sglang_has_none_and_keeps_the_authors() -> None:
    pod = with_init(engine_pod("--page-size=64", name="sglang"), NAME)
    before = copy.deepcopy(checks_of(pod))
    assert checks_of(wire(pod, with_mode("strict", pod_local("SGLang")))) == before


# ------------------------------------------------------------------------------- the script


class Image:
    """A folder of made-up packages as the script's Python sees them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "termination-log"

    def add(self, package: str, *files: str, code: str = "") -> None:
        home = self.folder / package
        home.mkdir(exist_ok=True)
        (home / "__init__.py").write_text(code)
        for file in files:
            (home / file).write_text("")

    def library(self, path: str) -> None:
        """A shared library that loads: one of an installed package."""
        (self.folder / path).symlink_to(msgspec._core.__file__)

    def check(self, strict: str = "0") -> tuple[int, str]:
        """Exit code and message."""
        script = script_text("kernel_check").replace("/dev/termination-log", str(self.log))
        ran = subprocess.run(
            [sys.executable, "-S", "-c", script],
            env={"PYTHONPATH": str(self.folder), "KERNEL_CHECK_STRICT": strict},
            check=False,
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert self.log.exists(), ran.stderr
        message = self.log.read_text()
        assert ran.stdout == f"{message}\n"
        return ran.returncode, message


@pytest.fixture
def image(tmp_path: Path) -> Image:
    """An image in which all is well."""
    made = Image(tmp_path)
    made.add("lmcache", code="raise RuntimeError('must not be imported')")
    made.library("lmcache/c_ops.cpython-311.so")
    made.add("torch")
    made.add("vllm", "_C.py")
    return made


@pytest.mark.rule("ADM-202")
def test_an_image_whose_native_code_loads_is_ok(image: Image) -> None:
    assert image.check() == (0, "OK")
    assert image.check("1") == (0, "OK")


@pytest.mark.rule("ADM-200", "ADM-202")
def test_each_thing_that_is_wrong_is_named_and_strictness_makes_it_fail(image: Image) -> None:
    def finds(reason: str) -> None:
        for strict, code in (("0", 0), ("1", 1)):
            assert image.check(strict)[0] == code
            assert image.check(strict)[1].startswith(f"FAIL: {reason}"), image.check(strict)

    stable = image.folder / "vllm" / "_C_stable_libtorch.py"
    stable.write_text("raise ImportError('stable is tried first')")
    finds("ImportError: stable is tried first")
    stable.unlink()
    (image.folder / "vllm" / "_C.py").unlink()
    finds("no supported vLLM native core extension present")
    broken = image.folder / "lmcache" / "c_ops.a.so"
    broken.write_text("no library")
    finds("OSError: ")
    image.add("torch", code="raise ValueError('no driver')")
    finds("ValueError: no driver")
    for library in image.folder.glob("lmcache/*.so"):
        library.unlink()
    finds("no native c_ops extension present")
    (image.folder / "lmcache").rename(image.folder / "elsewhere")
    finds("lmcache not importable")


@pytest.mark.rule("ADM-202")
def test_a_long_reason_is_cut(image: Image) -> None:
    image.add("torch", code="raise ValueError('x' * 9000)")
    message = image.check()[1]
    assert len(message) == 3500
    assert message.startswith("FAIL: ValueError: xxx")


@pytest.mark.parametrize("name", ["gate", "kernel_check"])
def test_a_script_survives_the_expansion_of_variables_in_arguments(name: str) -> None:
    assert "$" not in script_text(name)
