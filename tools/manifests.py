"""Writes Kubernetes objects as files that kubectl applies and people read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml


def manifest(documents: Iterable[dict[str, Any]], *, source: str) -> str:
    """The documents of one generated file; its first line says where they come from."""
    parts = (yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=100) for document in documents)
    return f"# Written by `make generate` from {source}.\n" + "---\n".join(parts)


class _Dumper(yaml.SafeDumper):
    """Writes everything out: no references to what stands elsewhere in the file, lines of a text as lines."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)
