"""When the API server counts as away, and as back."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from inferencecache.controller.kube.returning import returned
from inferencecache.core.kube.api import KubeApi


class Answering:
    """Answers as told, and then never again."""

    def __init__(self, *answers: bool) -> None:
        self._answers = list(answers)
        self.ran_out = asyncio.Event()

    async def is_ready(self, limit_s: float) -> bool:
        if self._answers:
            return self._answers.pop(0)
        self.ran_out.set()
        await asyncio.Event().wait()
        return False


def noticing(api: Answering) -> asyncio.Future[Any]:
    return asyncio.ensure_future(returned(cast("KubeApi", api), every_s=0.0))


async def test_a_server_is_back_when_it_answers_after_two_questions_without_an_answer() -> None:
    await asyncio.wait_for(noticing(Answering(True, False, False, True)), 10.0)


@pytest.mark.parametrize(
    "answers",
    [(True, True), (True, False, True, False, True), (True, False, False, False)],
    ids=["there all the time", "too busy for single answers", "still away"],
)
async def test_a_server_that_was_not_away_or_still_is_does_not_return(answers: tuple[bool, ...]) -> None:
    api = Answering(*answers)
    watched = noticing(api)
    await asyncio.wait_for(api.ran_out.wait(), 10.0)
    assert not watched.done()
    watched.cancel()
