"""What the documentation says, taken apart: pages, the commands they show, the names in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
_FENCE: Final = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_CODE: Final = re.compile(r"``?([^`\n]+)``?")


class Shown(NamedTuple):
    """A command that a page shows, whole and without the comment behind it."""

    page: str
    line: str


def pages() -> list[Path]:
    """Every page, and the two at the root of the repository."""
    return [*sorted(DOCS.rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def commands() -> list[Shown]:
    """What stands behind a `$` in the console blocks of all pages."""
    return [Shown(name_of(page), line) for page in pages() for line in _commands(page.read_text())]


def _commands(text: str) -> Iterator[str]:
    for _, language, body in _FENCE.findall(text):
        if language == "console":
            for line in re.sub(r"\\\n\s*", "", body).splitlines():
                if line.strip().startswith("$ "):
                    yield re.sub(r"\s+#.*", "", line.strip().removeprefix("$ "))


def code(text: str) -> Iterator[str]:
    """What stands in backticks, outside of blocks."""
    for match in _CODE.finditer(_FENCE.sub("", text)):
        yield match[1].replace("\\|", "|")
