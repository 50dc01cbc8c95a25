"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


def cell(text: str) -> str:
    """Text that stands on one line of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def one_of(choices: Sequence[str]) -> str:
    """What may be written, behind the meaning of an option; nothing where anything may."""
    return f" One of {', '.join(f'`{choice}`' for choice in choices)}." if choices else ""


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a table; its cells are Markdown."""
    yield f"| {' | '.join(heading)} |"
    yield "|" + "---|" * len(heading)
    for row in rows:
        yield f"| {' | '.join(row)} |"
