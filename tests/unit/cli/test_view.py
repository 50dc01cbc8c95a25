"""The live view on a terminal."""

from __future__ import annotations

import io
import threading

from rich.console import Console
from rich.text import Text

from inferencecache.cli.view import shown_live
from tests.support.waiting import eventually


class Recorded:
    """A view that notes which thread draws it."""

    def __init__(self) -> None:
        self.drawn_by: list[int] = []

    def __rich__(self) -> Text:
        self.drawn_by.append(threading.get_ident())
        return Text("figures")


async def test_the_view_is_drawn_again_and_again_and_by_nobody_but_the_event_loop() -> None:
    view = Recorded()
    async with shown_live(view, Console(file=io.StringIO(), force_terminal=True)):
        await eventually(lambda: len(view.drawn_by) > 3)
    assert set(view.drawn_by) == {threading.get_ident()}
