"""SGLang's own host cache: flags that are added, kept, or in the way."""

from __future__ import annotations

import pytest

from tests.support.backends import DOMAIN, change, hi_cache
from tests.support.engine_pods import engine_pod, wired
from tests.unit.controller.injection.asking import SIDECAR, Document, stay, wire

FULL = {
    "sizeGB": 8,
    "writePolicy": "write_back",
    "ioBackend": "kernel",
    "memoryLayout": "page_first",
}
FULL_FLAGS = (
    "--enable-hierarchical-cache --hicache-size 8 --hicache-write-policy write_back "
    "--hicache-io-backend kernel --hicache-mem-layout page_first --enable-metrics"
)


def full() -> Document:
    return change(hi_cache(), "spec.hiCache", dict(FULL))


def sglang(args: str) -> Document:
    return engine_pod(*args.split(), name="sglang")


@pytest.mark.rule("ADM-221", "ADM-222", "ADM-W31")
def test_flags_of_set_fields_are_appended_in_order_and_nothing_else_happens() -> None:
    pod = sglang("--model-path m")
    assert wire(pod, full()) == wired(pod, {"args": ["--model-path", "m", *FULL_FLAGS.split()]})
    ratio = change(hi_cache(), "spec.hiCache.ratio", "2.50")
    added = "--enable-hierarchical-cache --hicache-ratio 2.50 --enable-metrics"
    assert wire(pod, ratio) == wired(pod, {"args": ["--model-path", "m", *added.split()]})


@pytest.mark.rule("ADM-220", "ADM-221")
@pytest.mark.parametrize(
    ("there", "added"),
    [
        (FULL_FLAGS, ""),
        ("--hicache-size=08", FULL_FLAGS.replace("--hicache-size 8 ", "")),
        (
            "--enable-metrics --hicache-size +8",
            FULL_FLAGS.replace("--hicache-size 8 ", "").rpartition(" ")[0],
        ),
        ("--hicache-io-backend=kernel", FULL_FLAGS.replace("--hicache-io-backend kernel ", "")),
    ],
)
def test_a_flag_that_says_the_same_is_left_byte_for_byte(there: str, added: str) -> None:
    args = wire(sglang(there), full())["spec"]["containers"][0]["args"]
    assert args == [*there.split(), *added.split()]


@pytest.mark.rule("ADM-220", "ADM-W31")
@pytest.mark.parametrize("there", ["--hicache-ratio=2.0", "--hicache-ratio 2", "--hicache-ratio=2e0"])
def test_ratios_are_compared_as_numbers(there: str) -> None:
    args = wire(sglang(there), hi_cache())["spec"]["containers"][0]["args"]
    assert args == [*there.split(), "--enable-hierarchical-cache", "--enable-metrics"]


@pytest.mark.rule("ADM-220")
def test_a_flag_of_an_unset_field_may_say_anything_once() -> None:
    there = "--hicache-write-policy=write_back --hicache-mem-layout page_head"
    args = wire(sglang(there), hi_cache())["spec"]["containers"][0]["args"]
    assert args[:3] == there.split()
    for broken in (
        "--hicache-write-policy",
        "--hicache-io-backend=",
        "--hicache-mem-layout a --hicache-mem-layout a",
    ):
        assert broken.split()[0].partition("=")[0] in stay(sglang(broken), hi_cache())


@pytest.mark.rule("ADM-217", "ADM-218", "ADM-219", "ADM-220", "ADM-W31", "ADM-250")
@pytest.mark.parametrize(
    "there",
    [
        "--enable-lmcache",
        "--enable-lmcache=true",
        "--lmcache-config-file x",
        "--lmcache-config-file=x",
        "--enable-hierarchical-cache=true",
        "--enable-hierarchical-cache --enable-hierarchical-cache",
        "--hicache-ratio 2",
        "--hicache-ratio",
        "--hicache-size 9",
        "--hicache-size",
        "--hicache-size=",
        "--hicache-size eight",
        "--hicache-size 8 --hicache-size 8",
        "--hicache-size --enable-metrics",
        "--hicache-write-policy write_through",
        "--hicache-io-backend=direct",
        "--hicache-mem-layout layer_first",
    ],
)
def test_a_flag_that_says_otherwise_leaves_the_pod_alone(there: str) -> None:
    flag = there.split(maxsplit=1)[0].partition("=")[0]
    assert flag in stay(sglang(there), full())


@pytest.mark.rule("ADM-219")
def test_a_size_is_in_the_way_of_a_ratio() -> None:
    assert "--hicache-size" in stay(sglang("--hicache-size=8"), hi_cache())
    assert "--hicache-ratio" in stay(
        sglang("--hicache-ratio=x"), change(hi_cache(), "spec.hiCache", {"sizeGB": 1})
    )


@pytest.mark.rule("ADM-216", "ADM-250")
@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.integration.role", "ReadOnly"),
        ("spec.integration.failOpen", False),
        ("spec.hiCache", None),
        ("spec.hiCache", {}),
        ("spec.hiCache.sizeGB", 4),
        ("spec.hiCache.ratio", "0"),
        ("spec.hiCache.ratio", "NaN"),
        ("spec.hiCache.writePolicy", "sometimes"),
        ("spec.integration.engineOverrides.suppressArgs", ["--hicache-ratio"]),
    ],
    ids=str,
)
def test_a_backend_that_bypassed_admission_leaves_the_pod_alone(path: str, value: object) -> None:
    assert "spec." in stay(sglang(""), change(hi_cache(), path, value))


@pytest.mark.rule("ADM-206")
def test_a_kernel_check_of_the_authors_is_none_of_its_business() -> None:
    pod = change(sglang(""), "spec.initContainers", [{"name": "lmcache-kernel-check", "image": "own:1"}])
    strict = change(hi_cache(), "metadata.annotations", {"inferencecache.io/lmcache-kernel-check": "strict"})
    assert wire(pod, strict)["spec"]["initContainers"] == pod["spec"]["initContainers"]


@pytest.mark.rule("ADM-223", "ADM-226", "ADM-221")
def test_its_engines_are_observed_like_others() -> None:
    observed = change(hi_cache(), "spec.observation", {"modelID": "m"})
    (_, sidecar) = wire(sglang(""), observed, sidecar=SIDECAR)["spec"]["containers"]
    assert {"--hash-scheme=sglang", "--ignore-block-removed=true"} <= set(sidecar["args"])
    assert "--engine-metrics-url=http://127.0.0.1:30000/metrics" in sidecar["args"]
    assert DOMAIN in observed["spec"]["engineSelector"]["matchLabels"]
