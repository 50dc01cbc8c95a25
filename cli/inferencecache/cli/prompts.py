"""Prompts as they are given on the command line: token ids and hashes. Text is for routers to tokenize."""

from __future__ import annotations

from pathlib import Path

import typer

from inferencecache.core.index.request import MAX_TOKENS


def token_ids(text: str, option: str) -> list[int]:
    """The ids of `1,2,7..9` or of `@FILE` with such. Raises `BadParameter`."""
    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text(encoding="utf-8")
        except OSError as error:
            raise typer.BadParameter(f"{option}: cannot read {text[1:]}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise typer.BadParameter(f"{option}: {text[1:]} is not a text file") from None
    ids: list[int] = []
    for item in text.replace(",", " ").split():
        first, dots, last = item.partition("..")
        try:
            run = range(int(first), int(last if dots else first) + 1)
        except ValueError:
            raise typer.BadParameter(f"{option}: write whole numbers or ranges, as in 1,2,7..9") from None
        if run.stop - run.start + len(ids) > MAX_TOKENS:
            raise typer.BadParameter(f"{option}: a lookup takes at most {MAX_TOKENS} tokens")
        ids += run
    if not ids or not all(0 <= token < 2**32 for token in ids):
        raise typer.BadParameter(f"{option}: write one or more numbers from 0 to 4294967295")
    return ids


def hash_chain(text: str, option: str) -> list[bytes]:
    """The hashes of `a1b2…,c3d4…`. Raises `BadParameter`."""
    return [hash_of(item, option) for item in text.replace(",", " ").split() or [""]]


def hash_of(text: str, option: str) -> bytes:
    """One hash in hexadecimal. Raises `BadParameter`."""
    try:
        found = bytes.fromhex(text)
    except ValueError:
        raise typer.BadParameter(f"{option}: {text!r} is not hexadecimal") from None
    if not found:
        raise typer.BadParameter(f"{option}: write a hash in hexadecimal")
    return found
