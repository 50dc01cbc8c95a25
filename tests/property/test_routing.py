"""The product's routing gives the model's answer to every question about every state."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracle.indexes import product_credits, product_route
from tests.oracle.model import NaiveFold
from tests.oracle.random_log import RandomLog
from tests.oracle.routing import naive_credits, naive_route
from tests.oracle.view import NaiveView


@pytest.mark.rule(
    "IDX-07",
    "IDX-94",
    "IDX-131",
    "IDX-137",
    "IDX-138",
    "IDX-140",
    "IDX-144",
    "IDX-145",
    "WIRE-056",
    "WIRE-079",
    "WIRE-143",
)
@settings(max_examples=60, deadline=None)
@given(random=st.randoms(use_true_random=False), messages=st.integers(0, 60))
def test_routing_agrees_with_the_model(random: Random, messages: int) -> None:
    log = RandomLog(random)
    fold = NaiveFold()
    for _ in range(messages):
        fold.fold(log.message())
    view = NaiveView(fold)
    for _ in range(5):
        question = log.question()
        policy = log.policy(question.tenant)
        now_us = view.time_us + log.later_us()
        expected = naive_route(view, policy, question, now_us, block_size=8)
        assert product_route(view, policy, question, now_us, block_size=8) == expected
        accesses = naive_credits(view, policy, question, now_us, block_size=8)
        assert product_credits(view, policy, question, now_us, block_size=8) == accesses
