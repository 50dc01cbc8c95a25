"""Which version this is, and from which commit, for `inferencecache --version` and reports of trouble."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from importlib.metadata import Distribution
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

_COMMIT: Final = "INFERENCECACHE_COMMIT"
_GIT_S: Final = 5.0


def version_line(distribution: Distribution, environment: Mapping[str, str] = os.environ) -> str:
    """`0.1.0, commit 1a2b3c4d`, without a commit where the installation has none.

    An image knows it from its build, by the variable `INFERENCECACHE_COMMIT`.
    """
    commit = environment.get(_COMMIT) or _commit(distribution)
    return f"{distribution.version}, commit {commit}" if commit else distribution.version


def _commit(distribution: Distribution) -> str:
    """What the installer noted of a repository, or what is checked out of an editable installation."""
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    if "vcs_info" in origin:
        return str(origin["vcs_info"].get("commit_id", ""))
    if not origin.get("dir_info", {}).get("editable"):
        return ""
    folder = Path(unquote(urlsplit(origin["url"]).path))
    git = shutil.which("git")
    if git is None:
        return ""
    try:
        asked = subprocess.run(  # noqa: S603 - the folder is where this code is run from
            (git, "-C", str(folder), "rev-parse", "HEAD"),
            capture_output=True,
            text=True,
            timeout=_GIT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return asked.stdout.strip()
