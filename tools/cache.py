"""Where downloads and builds of test facilities are kept: outside the repository, shared by all its clones.

`INFERENCECACHE_CACHE_DIR` names the folder; without it, it is in the user's cache folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

CACHE_VARIABLE: Final = "INFERENCECACHE_CACHE_DIR"


def cache_folder(facility: str) -> Path:
    """Folder of one facility; it need not exist."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen) / facility
    users = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(users) / "inference-cache" / facility


@contextlib.contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Make the folder and hold it, so that of several processes only one fills it at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another process that fills {folder}", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
