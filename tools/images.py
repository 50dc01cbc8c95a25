"""Builds the container images: `python -m tools.images` (`make images`), or those whose names are given.

Settings are the environment's, as docker-compose.yaml takes them: `IMAGE_PREFIX` (with its slash),
`IMAGE_TAG`, `BASE_IMAGE`, and pip's `PIP_INDEX_URL`, `PIP_EXTRA_INDEX_URL` and `PIP_CERT`, a path in the base
image. The images know the commit that is checked out, if git does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
IMAGES: Final = ("server", "indexer", "controller", "subscriber", "cli", "simengine")
_GIT_S: Final = 60.0
_ARGUMENTS: Final = ("BASE_IMAGE", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CERT")


def tag(name: str, environment: Mapping[str, str] = os.environ) -> str:
    """What an image is called."""
    prefix, version = environment.get("IMAGE_PREFIX", ""), environment.get("IMAGE_TAG", "latest")
    return f"{prefix}inference-cache-{name}:{version}"


def commit(root: Path = ROOT) -> str:
    """The commit that is checked out, `-dirty` behind it where something is changed; empty if unknown."""
    git = shutil.which("git")
    if git is None:
        return ""
    try:
        asked = subprocess.run(
            (git, "-C", str(root), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"),
            capture_output=True,
            text=True,
            timeout=_GIT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return asked.stdout.strip()


def build(names: Iterable[str] = IMAGES, *, environment: Mapping[str, str] = os.environ) -> None:
    """Build them; what has not changed is taken from the engine's cache. Raises `CalledProcessError`."""
    given = [f"--build-arg={name}={environment[name]}" for name in _ARGUMENTS if environment.get(name)]
    if known := commit():
        given.append(f"--build-arg=COMMIT={known}")
    for name in names:
        command = ("docker", "build", "--network=host", f"--target={name}", f"--tag={tag(name, environment)}")
        print(f"building {tag(name, environment)}", flush=True)
        subprocess.run((*command, *given, str(ROOT)), check=True, env=dict(environment))


def main() -> int:
    try:
        build(sys.argv[1:] or IMAGES)
    except FileNotFoundError:
        print("there is no program 'docker'; install Docker, or run 'make docker-assets' on Debian")
        return 1
    except subprocess.CalledProcessError as error:
        print(f"docker ended with {error.returncode}; does an engine run, and can it fetch BASE_IMAGE?")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
