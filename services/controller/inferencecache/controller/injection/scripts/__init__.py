"""Scripts that run in containers of an engine's pod, by the Python of their images.

They are read as text and never imported, and import nothing but the standard library. The pod spec
expands `$(NAME)`, so none of them contains that.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def script_text(name: str) -> str:
    """The source of `name`."""
    return files(__name__).joinpath(f"{name}.py").read_text(encoding="utf-8")
