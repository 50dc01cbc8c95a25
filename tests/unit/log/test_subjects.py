"""Subjects carry any id, both ways, and partitions follow from ids and layout alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferencecache.core.log import subjects
from inferencecache.schemas.ids import ModelId, ReplicaId, TenantId
from inferencecache.schemas.layout import Lanes, Layout
from inferencecache.schemas.senders import ControlSender, ReplicaSender

ids = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@given(ids)
def test_every_id_becomes_one_token_and_comes_back(id_: str) -> None:
    token = subjects.escape(id_)
    assert token
    assert not set(token) & set(". *>\t\r\n")
    assert set(token) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_/=")
    assert token != "_"
    assert subjects.unescape(token) == id_


@pytest.mark.parametrize(
    ("id_", "token"),
    [
        ("", "="),
        ("_", "=5F"),
        ("__", "__"),
        ("=", "=3D"),
        ("meta-llama/Llama-3.1-8B", "meta-llama/Llama-3=2E1-8B"),
        ("pod-0@dp1", "pod-0=40dp1"),
        ("é", "=C3=A9"),
    ],
)
def test_tokens_are_spelled_as_documented(id_: str, token: str) -> None:
    assert subjects.escape(id_) == token


@pytest.mark.parametrize("token", ["", "_", "==", "=5", "=41", "=c3=a9", "=FF", "=5F=5F", "a=", "a.b", "a*"])
def test_other_spellings_of_an_id_are_refused(token: str) -> None:
    with pytest.raises(subjects.UnknownSubjectError):
        subjects.unescape(token)


def test_ids_of_255_bytes_fit_and_longer_ones_are_refused() -> None:
    assert subjects.unescape(subjects.escape("é" * 127)) == "é" * 127
    assert subjects.escape("a" * 255) == "a" * 255
    for too_long in ("a" * 256, "é" * 128):
        with pytest.raises(subjects.InvalidIdError):
            subjects.escape(too_long)
    with pytest.raises(subjects.InvalidIdError):
        subjects.escape("\ud800")


@given(ids, ids, ids, st.sampled_from(["e", "g"]))
def test_a_replica_subject_names_its_sender(tenant: str, model: str, replica: str, channel: str) -> None:
    sender = ReplicaSender(TenantId(tenant), ModelId(model), ReplicaId(replica), channel)  # type: ignore[arg-type]
    assert subjects.parse_subject(subjects.replica_subject(3, 11, sender)) == (3, 11, sender)


@pytest.mark.parametrize("role", ["o", "c", "r"])
def test_a_control_subject_names_its_role(role: str) -> None:
    subject = subjects.control_subject(1, 0, role)  # type: ignore[arg-type]
    assert subject == f"ic.ev.1.0._.{role}"
    assert subjects.parse_subject(subject) == (1, 0, ControlSender(role))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "subject",
    [
        "",
        "ic.ev.1.0._.x",
        "ic.ev.1.0._",
        "ic.ev.1.0.t.m.r",
        "ic.ev.1.0.t.m.r.x",
        "ic.ev.1.0.t.m.r.e.e",
        "ic.ev.01.0.t.m.r.e",
        "ic.ev.1.x.t.m.r.e",
        "ic.ev.1.0.=74.m.r.e",
        "ic.dl.1.0",
        "ic.ev.1.0._.m.r.e",
    ],
)
def test_other_subjects_are_refused(subject: str) -> None:
    with pytest.raises(subjects.UnknownSubjectError):
        subjects.parse_subject(subject)


@given(ids, ids, ids, st.integers(1, 16), st.integers(1, 20))
def test_a_replica_lives_in_one_of_the_partitions_of_its_model(
    tenant: str, model: str, replica: str, partitions: int, lanes: int
) -> None:
    layout = Layout(1, partitions, (Lanes(TenantId(tenant), ModelId(model), lanes),))
    of_model = subjects.partitions_of(tenant, model, layout)
    assert len(set(of_model)) == len(of_model) == min(lanes, partitions)
    assert subjects.partition_of(tenant, model, replica, layout) in of_model


def test_partitions_do_not_change_between_versions() -> None:
    layout = Layout(1, 8, (Lanes(TenantId("t"), ModelId("wide"), 4),))
    assert subjects.partitions_of("", "m", layout) == (subjects.partition_of("", "m", "r", layout),)
    assert [subjects.partition_of("t", f"m{i}", "r", layout) for i in range(6)] == GOLDEN_MODELS
    assert [subjects.partition_of("t", "wide", f"r{i}", layout) for i in range(6)] == GOLDEN_LANES


def test_the_length_prefix_keeps_tenant_and_model_apart() -> None:
    layout = Layout(1, 1 << 30)
    assert subjects.partition_of("a", "bc", "r", layout) != subjects.partition_of("ab", "c", "r", layout)


GOLDEN_MODELS = [6, 1, 1, 7, 6, 5]
GOLDEN_LANES = [4, 7, 7, 5, 4, 7]
