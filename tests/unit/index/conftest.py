"""Worked cases run on the naive model and on the product."""

from __future__ import annotations

import pytest

from tests.oracle.indexes import NaiveIndex, ProductIndex, RoutedIndex
from tests.oracle.story import Story


@pytest.fixture(params=[NaiveIndex, RoutedIndex, ProductIndex])
def story(request: pytest.FixtureRequest) -> Story:
    return Story(request.param())
