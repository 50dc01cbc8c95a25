"""A backend's selector, and who owns a cache domain."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.backends import DOMAIN, Document, events_only, hi_cache, node_local, pod_local
from tests.support.judging import DOMAIN_PATH, Found, changed, details, judged

rule = pytest.mark.rule
MATCH_LABELS = "spec.engineSelector.matchLabels"


def selecting(labels: dict[str, Any] | None) -> Document:
    return changed(pod_local(), {MATCH_LABELS: labels})


@rule("ADM-22")
@pytest.mark.parametrize("selector", [None, {}, {"matchLabels": {}}])
def test_a_pod_local_backend_may_go_without_a_selector(selector: Document | None) -> None:
    assert judged(changed(pod_local(), {"spec.engineSelector": selector})) == []


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param({"app": "x"}, [("Required", DOMAIN_PATH)], marks=rule("ADM-23")),
        pytest.param({DOMAIN: ""}, [("Required", DOMAIN_PATH)], marks=rule("ADM-23")),
        pytest.param({DOMAIN: "Qwen/Qwen"}, [("Invalid", DOMAIN_PATH)], marks=rule("ADM-24")),
        pytest.param({DOMAIN: "-a"}, [("Invalid", DOMAIN_PATH)], marks=rule("ADM-24")),
        pytest.param({DOMAIN: "a" * 64}, [("Invalid", DOMAIN_PATH)], marks=rule("ADM-24")),
        pytest.param({DOMAIN: "a" * 63}, [], marks=rule("ADM-24")),
        pytest.param({DOMAIN: "A_b.c-9"}, [], marks=rule("ADM-24")),
        pytest.param({DOMAIN: "d", "app": "x"}, [("Forbidden", MATCH_LABELS)], marks=rule("ADM-25")),
        pytest.param({DOMAIN: "a/b", "app": "x"}, [("Invalid", DOMAIN_PATH)], marks=rule("ADM-25")),
    ],
)
def test_a_selector_is_one_domain_and_only_its_first_error_is_told(
    labels: dict[str, str], expected: Found
) -> None:
    assert judged(selecting(labels)) == expected


@rule("ADM-26", "ADM-W10")
def test_a_bad_selector_is_refused_at_every_update() -> None:
    stored = selecting({"app": "x"})
    relabelled = changed(stored, {"metadata.labels": {"a": "b"}})
    assert judged(relabelled, old=stored) == [("Required", DOMAIN_PATH)]
    assert judged(selecting({DOMAIN: "d"}), old=stored) == []


@rule("ADM-44", "ADM-91")
@pytest.mark.parametrize("make", [node_local, hi_cache])
def test_shared_servers_and_hi_cache_need_a_selector(make: Any) -> None:
    assert judged(changed(make(), {"spec.engineSelector": None})) == [("Required", MATCH_LABELS)]


@rule("ADM-82")
def test_events_only_needs_neither_selector_nor_model() -> None:
    assert judged(events_only(model="", domain="")) == []


@rule("ADM-113", "ADM-16")
def test_the_owner_of_a_domain_that_comes_first_by_name_is_told() -> None:
    others = [pod_local(name=name, domain="d") for name in ("zeta", "alpha", "beta")]
    mine = pod_local(name="mine", domain="d")
    assert judged(mine, siblings=others) == [("Forbidden", DOMAIN_PATH)]
    (detail,) = details(mine, others)
    assert all(word in detail for word in ("'d'", "alpha", "team-a"))
    assert "zeta" not in detail
    assert judged(mine, siblings=[pod_local(name="other", domain="e")]) == []
    assert judged(pod_local(name="mine", domain=""), siblings=[pod_local(name="o", domain="")]) == []


@rule("ADM-15")
def test_a_backend_does_not_collide_with_itself() -> None:
    assert judged(pod_local(), siblings=[pod_local()]) == []


@rule("ADM-114")
def test_a_shared_domain_refuses_every_update_of_both() -> None:
    first, second = (pod_local(name=name, domain="d") for name in ("first", "second"))
    for stored in (first, second):
        relabelled = changed(stored, {"metadata.labels": {"a": "b"}})
        assert judged(relabelled, old=stored, siblings=[first, second]) == [("Forbidden", DOMAIN_PATH)]


@rule("ADM-13")
@pytest.mark.parametrize(
    "spec", [None, "text", {"engineSelector": []}, {"engineSelector": {"matchLabels": 1}}]
)
def test_a_sibling_that_cannot_be_read_harms_no_other(spec: Any) -> None:
    broken = {"metadata": {"name": "broken"}, "spec": spec}
    assert judged(pod_local(), siblings=[broken]) == []


@rule("ADM-23")
def test_the_words_name_the_label_to_set() -> None:
    assert DOMAIN in details(selecting({"app": "x"}))[0]
