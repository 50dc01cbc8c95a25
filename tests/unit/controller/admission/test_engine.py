"""HiCache, events only, annotation, role, adapters and overrides: what engines can do."""

from __future__ import annotations

from typing import Any

import pytest

from inferencecache.controller.adapters import ADAPTERS
from tests.support.backends import REDIS, Document, events_only, hi_cache, pod_local
from tests.support.judging import Found, changed, details, judged

rule = pytest.mark.rule
RATIO = ("Invalid", "spec.hiCache.ratio")
OVERRIDES = "spec.integration.engineOverrides"
KERNEL_CHECK = "inferencecache.io/lmcache-kernel-check"


def hi(**block: Any) -> Document:
    return changed(hi_cache(), {"spec.hiCache": block})


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        pytest.param(
            changed(pod_local(), {"spec.hiCache": {}}), [("Forbidden", "spec.hiCache")], marks=rule("ADM-83")
        ),
        pytest.param(
            changed(hi_cache(), {"spec.hiCache": None}), [("Required", "spec.hiCache")], marks=rule("ADM-84")
        ),
        pytest.param(hi(), [("Required", "spec.hiCache")], marks=rule("ADM-85", "ADM-W18")),
        pytest.param(hi(sizeGB=8, ratio="2"), [("Invalid", "spec.hiCache")], marks=rule("ADM-86", "ADM-W18")),
        pytest.param(hi(sizeGB=0), [("Invalid", "spec.hiCache.sizeGB")], marks=rule("ADM-87")),
        pytest.param(hi(sizeGB=1), [], marks=rule("ADM-87")),
        *(
            pytest.param(
                hi(ratio=ratio), [("Invalid", "spec.hiCache.ratio")], marks=rule("ADM-88", "ADM-W18")
            )
            for ratio in ("NaN", "0", "-1", "inf", "1e999", " 2", "2 ", "", "two", "0x2", "1_0", "1e-999")
        ),
        *(
            pytest.param(hi(ratio=ratio), [], marks=rule("ADM-88"))
            for ratio in ("2", "0.5", ".5", "2.", "+1", "1e3")
        ),
        *(
            pytest.param(
                hi(ratio="2", **{field: "other"}),
                [("NotSupported", f"spec.hiCache.{field}")],
                marks=rule("ADM-89"),
            )
            for field in ("writePolicy", "ioBackend", "memoryLayout")
        ),
        pytest.param(hi(ratio="2", writePolicy="", ioBackend="kernel"), [], marks=rule("ADM-89")),
        pytest.param(
            changed(hi_cache(), {"spec.runtime": "VLLM"}),
            [("Invalid", "spec.runtime")] * 2,
            marks=rule("ADM-90", "ADM-W18"),
        ),
        pytest.param(
            changed(hi_cache(), {"spec.integration.mode": "EventsOnly"}),
            [("Forbidden", "spec.integration.mode"), ("NotSupported", "spec.integration.mode")],
            marks=rule("ADM-80", "ADM-92"),
        ),
        pytest.param(
            changed(hi_cache(), {"spec.integration.role": "ReadOnly"}),
            [("NotSupported", "spec.integration.role")],
            marks=rule("ADM-93"),
        ),
        pytest.param(
            changed(hi_cache(), {"spec.integration.failOpen": False}),
            [("NotSupported", "spec.integration.failOpen")],
            marks=rule("ADM-94"),
        ),
        pytest.param(
            changed(hi_cache(), {"spec.remoteStorage": REDIS}),
            [("Invalid", "spec.remoteStorage.provider")],
            marks=rule("ADM-99", "ADM-W18"),
        ),
        pytest.param(
            changed(events_only(), {"spec.remoteStorage": REDIS}),
            [("Forbidden", "spec.remoteStorage")],
            marks=rule("ADM-81", "ADM-W8"),
        ),
        *(
            pytest.param(
                changed(make(), {"spec.integration.role": role}),
                [("Invalid", "spec.integration.role")],
                marks=rule("ADM-96"),
            )
            for make in (pod_local, events_only)
            for role in ("ReadOnly", "WriteOnly")
        ),
        pytest.param(
            changed(pod_local(), {"spec.type": None, "spec.runtime": "X"}), [], marks=rule("ADM-97")
        ),
    ],
)
def test_a_backend_asks_for_what_its_engines_can_do(document: Document, expected: Found) -> None:
    assert judged(document) == expected


@rule("ADM-95", "ADM-W19")
@pytest.mark.parametrize("make", [pod_local, hi_cache, events_only])
def test_the_kernel_check_annotation_is_one_of_its_words(make: Any) -> None:
    def annotated(value: str) -> Document:
        document: Document = make()
        return changed(document, {"metadata.annotations": {KERNEL_CHECK: value, "other": "x"}})

    for word in ("auto", "report-only", "strict", "off", ""):
        assert judged(annotated(word)) == []
    for word in ("strcit", "Strict", " auto"):
        assert judged(annotated(word)) == [("Invalid", f"metadata.annotations[{KERNEL_CHECK}]")]


@rule("ADM-97", "ADM-07")
def test_a_pair_without_an_adapter_is_told_with_those_there_are() -> None:
    detail = details(changed(hi_cache(), {"spec.runtime": "VLLM"}))[-1]
    assert "sglang/LMCache, sglang/SGLangHiCache, vllm/LMCache" in detail
    assert "'vllm'" in detail
    assert "'SGLangHiCache'" in detail


@rule("ADM-99")
def test_a_refused_protocol_is_told_with_runtime_and_type() -> None:
    (detail,) = details(changed(hi_cache(), {"spec.remoteStorage": REDIS}))
    assert all(word in detail for word in ("'sglang'", "'SGLangHiCache'", "'resp'"))


@rule("ADM-115")
@pytest.mark.parametrize("runtime", ["VLLM", "SGLang"])
@pytest.mark.parametrize("type_", ["LMCache", "SGLangHiCache"])
@pytest.mark.parametrize("mode", ["Offload", "EventsOnly"])
@pytest.mark.parametrize("with_lm_cache", [True, False])
@pytest.mark.parametrize("with_hi_cache", [True, False])
@pytest.mark.parametrize("with_storage", [True, False])
def test_only_the_combinations_of_the_table_are_accepted(
    runtime: str, type_: str, mode: str, with_lm_cache: bool, with_hi_cache: bool, with_storage: bool
) -> None:
    document = changed(
        pod_local(runtime),
        {
            "spec.type": type_,
            "spec.integration.mode": mode,
            "spec.lmCache": pod_local()["spec"]["lmCache"] if with_lm_cache else None,
            "spec.hiCache": {"ratio": "2"} if with_hi_cache else None,
            "spec.remoteStorage": REDIS if with_storage else None,
        },
    )
    accepted = {
        ("LMCache", "Offload", True, False, False),
        ("LMCache", "Offload", True, False, True),
        ("LMCache", "EventsOnly", False, False, False),
    }
    if runtime == "SGLang":
        accepted.add(("SGLangHiCache", "Offload", False, True, False))
    row = (type_, mode, with_lm_cache, with_hi_cache, with_storage)
    assert (judged(document) == []) == (row in accepted)


def overriding(base: Document, **lists: Any) -> Document:
    return changed(base, {OVERRIDES: lists})


REF = {"fieldRef": {"fieldPath": "metadata.name"}}


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        pytest.param({"value": "v"}, [("Required", ".name")], marks=rule("ADM-100")),
        pytest.param({"name": ""}, [("Required", ".name")], marks=rule("ADM-100")),
        *(
            pytest.param({"name": name}, [("Invalid", ".name")], marks=rule("ADM-101"))
            for name in ("1A", "A B", ".", "..", "..A", "A=B", "Ä")
        ),
        *(pytest.param({"name": name}, [], marks=rule("ADM-101")) for name in ("A", "_a", "-x", ".a", "A.1")),
        pytest.param(
            {"name": "A", "value": "v", "valueFrom": REF}, [("Invalid", "")], marks=rule("ADM-102", "ADM-W20")
        ),
        pytest.param({"name": "A", "value": "", "valueFrom": REF}, [], marks=rule("ADM-102")),
        pytest.param(
            {"name": "A", "valueFrom": {}}, [("Required", ".valueFrom")], marks=rule("ADM-103", "ADM-W20")
        ),
        pytest.param(
            {"name": "A", "valueFrom": REF | {"fileKeyRef": {}}},
            [("Invalid", ".valueFrom")],
            marks=rule("ADM-104"),
        ),
    ],
)
def test_a_variable_has_a_name_and_one_source(variable: Document, expected: Found) -> None:
    found = [(kind, f"{OVERRIDES}.env[0]{path}") for kind, path in expected]
    assert judged(overriding(pod_local(), env=[variable])) == found
    without_adapter = overriding(changed(pod_local(), {"spec.lmCache": None}), env=[variable])
    assert judged(without_adapter)[2:] == found, "the shape is judged without an adapter too"


RESERVED = {
    "vllm/LMCache": (
        ["--kv-transfer-config", "--disable-hybrid-kv-cache-manager"],
        ["PYTHONHASHSEED", "INFERENCECACHE_FAIL_OPEN"],
    ),
    "sglang/LMCache": (
        ["--enable-lmcache", "--lmcache-config-file", "--enable-metrics"],
        ["LMCACHE_USE_EXPERIMENTAL", "INFERENCECACHE_FAIL_OPEN"],
    ),
    "sglang/SGLangHiCache": (
        [
            "--enable-hierarchical-cache",
            "--hicache-size",
            "--hicache-ratio",
            "--hicache-write-policy",
            "--hicache-io-backend",
            "--hicache-mem-layout",
            "--enable-metrics",
        ],
        [],
    ),
}
BASES = {
    "vllm/LMCache": pod_local(),
    "sglang/LMCache": pod_local("SGLang"),
    "sglang/SGLangHiCache": hi_cache(),
}


@rule("ADM-105", "ADM-106", "ADM-107", "ADM-108", "ADM-109", "ADM-111")
@pytest.mark.parametrize("pair", BASES)
def test_each_adapter_reserves_what_it_sets_and_nothing_else(pair: str) -> None:
    flags = sorted({flag for args, _ in RESERVED.values() for flag in args})
    names = [*sorted({name for _, env in RESERVED.values() for name in env}), "INFERENCECACHE_NODE_IP"]
    args, env = RESERVED[pair]

    def refused(path: str, written: list[str], reserved: list[str], after: str = "") -> Found:
        return [
            ("Forbidden", f"{OVERRIDES}.{path}[{n}]{after}") for n, x in enumerate(written) if x in reserved
        ]

    base = BASES[pair]
    for form in ("{}", "{}=alt"):
        written = [form.format(flag) for flag in flags]
        assert judged(overriding(base, args=written)) == refused("args", flags, args)
    assert judged(overriding(base, suppressArgs=flags)) == refused("suppressArgs", flags, args)
    variables = [{"name": name} for name in names]
    assert judged(overriding(base, env=variables)) == refused("env", names, env, ".name")
    assert judged(overriding(base, suppressEnv=names)) == refused("suppressEnv", names, env)


@rule("ADM-105", "ADM-106", "ADM-107", "ADM-112", "ADM-W20")
def test_only_flags_are_compared_and_only_as_a_whole() -> None:
    free = [
        "free-text",
        "kv-transfer-config",
        "--kv-transfer-config-x",
        "--max",
        "--max",
        "x=--kv-transfer-config",
    ]
    assert judged(overriding(pod_local(), args=free)) == []
    assert judged(overriding(pod_local(), suppressArgs=["--kv-transfer-config=x"])) == []
    assert (
        judged(overriding(pod_local(), env=[{"name": "pythonhashseed"}, {"name": "A"}, {"name": "A"}])) == []
    )


@rule("ADM-105")
def test_reserved_lists_need_an_adapter() -> None:
    document = overriding(changed(pod_local(), {"spec.lmCache": None}), args=["--kv-transfer-config"])
    assert judged(document) == [("Required", "spec.lmCache"), ("Invalid", "spec.runtime")]


@rule("ADM-110")
def test_a_reserved_entry_is_told_with_its_runtime() -> None:
    (detail,) = details(overriding(pod_local(), args=["--kv-transfer-config=alt"]))
    assert "--kv-transfer-config" in detail
    assert '"vllm"' in detail
    assert len(ADAPTERS) == len(RESERVED)
