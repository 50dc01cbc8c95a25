"""The worked cases about pods, field by field."""

from __future__ import annotations

import pytest

from inferencecache.controller.admission.reviews import Allowed, Denied
from tests.support.engine_pods import POD_CASES, PodCase
from tests.unit.controller.injection.asking import SIDECAR, ask


@pytest.mark.rule(
    "ADM-W23", "ADM-W24", "ADM-W25", "ADM-W26", "ADM-W27", "ADM-W28", "ADM-W29", "ADM-W30", "ADM-W31",
    "ADM-W32", "ADM-W33", "ADM-W34", "ADM-W35", "ADM-W36", "ADM-W37", "ADM-W38", "ADM-W41", "ADM-W42",
    "ADM-W43", "ADM-W44", "ADM-W45", "ADM-W46", "ADM-W47", "ADM-W48", "ADM-W49",
)  # fmt: skip
@pytest.mark.parametrize("case", POD_CASES, ids=str)
def test_a_pod_comes_out_as_the_case_says(case: PodCase) -> None:
    answer = ask(case.pod, *case.backends, sidecar=SIDECAR if case.observed else None)
    assert case.message in answer.message
    if case.denied:
        assert isinstance(answer, Denied)
        return
    assert isinstance(answer, Allowed)
    assert answer.changed == case.expected
    if answer.changed is None:
        assert answer.message


@pytest.mark.rule("ADM-W39", "ADM-240")
@pytest.mark.parametrize("case", [case for case in POD_CASES if case.expected], ids=str)
def test_what_came_out_comes_out_again(case: PodCase) -> None:
    answer = ask(case.expected or {}, *case.backends, sidecar=SIDECAR if case.observed else None)
    assert isinstance(answer, Allowed)
    assert answer.changed is None
