"""Partitions and lanes, joined, are one logical index."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferencecache.core.index.fold import Fold
from inferencecache.core.index.joined import JoinedView, Lane
from inferencecache.core.log.subjects import partition_of, partitions_of
from inferencecache.schemas.ids import ModelId, TenantId
from inferencecache.schemas.layout import Lanes, Layout
from inferencecache.schemas.senders import ControlSender
from tests.oracle.aggregate import naive_aggregate, product_aggregate
from tests.oracle.indexes import product_route
from tests.oracle.model import NaiveFold
from tests.oracle.random_log import Mix, RandomLog
from tests.oracle.routing import naive_route
from tests.oracle.view import NaiveView


@pytest.mark.rule("IDX-176", "IDX-201", "IDX-203", "IDX-204", "WIRE-183")
@settings(max_examples=60, deadline=None)
@given(
    random=st.randoms(use_true_random=False),
    messages=st.integers(0, 60),
    partitions=st.integers(1, 4),
    lanes=st.integers(1, 4),
)
def test_partitions_and_lanes_joined_answer_as_one_index(
    random: Random, messages: int, partitions: int, lanes: int
) -> None:
    layout = Layout(partitions=partitions, lanes=(Lanes(TenantId("t"), ModelId("m"), lanes),))
    folds = [Fold(1 << 8) for _ in range(partitions)]
    whole = NaiveFold()
    log = RandomLog(random, Mix(evictions=False))
    for _ in range(messages):
        message = log.message()
        whole.fold(message)
        sender = message.sender
        if isinstance(sender, ControlSender):
            for fold in folds:
                fold.fold(message)
        else:
            folds[partition_of(sender.tenant, sender.model, sender.replica, layout)].fold(message)
    views = [fold.view for fold in folds]
    assert product_aggregate(*views)["replicas"] == naive_aggregate(whole)["replicas"]
    model = NaiveView(whole)
    for _ in range(5):
        question = log.question()
        policy = log.policy(question.tenant)
        now_us = model.time_us + log.later_us()
        pair = TenantId(question.tenant), ModelId(question.model)
        numbers = partitions_of(*pair, layout)
        joined = JoinedView([Lane(views[n], now_us) for n in numbers], views)
        expected = naive_route(model, policy, question, now_us)
        assert product_route(joined, policy, question, now_us) == expected
        assert joined.stats(*pair) == model.stats(*pair)
        if len(numbers) == 1:
            assert joined.distinct_keys(*pair) == model.distinct_keys(*pair)
