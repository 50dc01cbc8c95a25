"""Updates: what was stored already stays editable."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.backends import REDIS, Document, pod_local
from tests.support.judging import SERVER, Found, changed, judged

rule = pytest.mark.rule
OLD = changed(
    pod_local(), {f"{SERVER}.image": "x:1", "spec.remoteStorage": REDIS | {"redis": {"database": 1}}}
)
IMAGE = ("Invalid", f"{SERVER}.image")
DATABASE = ("Forbidden", "spec.remoteStorage.redis.database")


@rule("ADM-11", "ADM-W11")
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"metadata.labels": {"a": "b"}}, []),
        ({"spec.remoteStorage.redis.database": 2}, []),
        ({f"{SERVER}.image": "x:2"}, [IMAGE]),
        ({"spec.remoteStorage.redis.tls": {}}, [("Forbidden", "spec.remoteStorage.redis.tls")]),
        ({f"{SERVER}.image": " "}, [("Required", f"{SERVER}.image")]),
        ({f"{SERVER}.port": 8080}, [("Invalid", f"{SERVER}.port")]),
    ],
)
def test_an_update_is_refused_for_what_it_introduces(changes: dict[str, Any], expected: Found) -> None:
    assert judged(OLD) == [IMAGE, DATABASE], "the stored object breaks two rules"
    assert judged(changed(OLD, changes), old=OLD) == expected


@rule("ADM-13")
@pytest.mark.parametrize(
    "broken",
    [
        {f"{SERVER}.l1Capacity": "much"},
        {f"{SERVER}.port": 2**40},
        {"spec.observation.firstEventTimeout": "1d"},
        {"spec.lmCache": "text"},
        {"spec": None},
    ],
)
def test_a_stored_object_that_cannot_be_read_can_be_repaired(broken: Document) -> None:
    stored = changed(pod_local(), broken)
    assert judged(pod_local(), old=stored) == []
    assert judged(OLD, old=stored) == [IMAGE, DATABASE], "and nothing is let go for it"
