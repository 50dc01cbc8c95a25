"""Draws the picture of the live view from a run of the demo: `make pictures`, a minute or two.

The picture is what people see after `TURNS` turns, with the figures of the machine that drew it.
"""

from __future__ import annotations

import asyncio
import io
import re
import sys
import tempfile
from pathlib import Path
from typing import Final

from rich.console import Console

from inferencecache.cli.load.conversations import Workload
from inferencecache.cli.load.run import LoadRun
from inferencecache.cli.stack import StackSettings, Supervisor, plan_stack
from inferencecache.cli.stack.ports import Ports
from inferencecache.cli.view import PANEL_WIDTH, RunView
from inferencecache.core.service import configure_logging

PICTURE: Final = Path(__file__).resolve().parent.parent.parent / "docs" / "images" / "live-view.svg"
TURNS: Final = 600
USERS: Final = 24
LIMIT_S: Final = 600.0
_FONT: Final = re.compile(r"@font-face {.*?}\s*", re.DOTALL)


def picture(view: RunView) -> str:
    """The view as SVG, in a font of the reader's machine: rich's own would be fetched from elsewhere."""
    console = Console(record=True, file=io.StringIO(), width=PANEL_WIDTH, force_terminal=True)
    console.print(view)
    return _FONT.sub("", console.export_svg(title="make demo", unique_id="live-view"))


async def draw(folder: Path) -> str:
    """Run the demo's load there, and draw how it ends. Raises TimeoutError."""
    settings = StackSettings(folder)
    plan = plan_stack(settings, Ports(well_known=False))
    async with Supervisor(plan, folder, lambda line: print(line, file=sys.stderr)) as supervisor:
        await supervisor.start()
        load = LoadRun(plan, Workload(seed=1, users=USERS), settings.model, TURNS)
        async with asyncio.timeout(LIMIT_S):
            await load.run(asyncio.Event())
        return picture(RunView(load))


def main() -> int:
    configure_logging("text", "error")
    with tempfile.TemporaryDirectory(prefix="inferencecache-picture-") as folder:
        PICTURE.write_text(asyncio.run(draw(Path(folder))))
    print(f"wrote {PICTURE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
