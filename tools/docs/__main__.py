"""Builds the documentation site into `site/`: `make docs`, and with ARGS=--serve shows it on this machine.

A link to nothing, or a page that is in no menu, fails the build.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent


def build(folder: Path, config: Path = ROOT / "mkdocs.yml") -> None:
    """Write the site there. Raises `subprocess.CalledProcessError` when it is not whole.

    Without `--quiet`, which keeps warnings from those that `--strict` counts.
    """
    subprocess.run(
        (sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "--site-dir", str(folder)),
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        check=True,
    )


def server(folder: Path, port: int) -> ThreadingHTTPServer:
    """A listener on this machine that serves the site; port 0 is any free one."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    return ThreadingHTTPServer(("127.0.0.1", port), handler)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--serve", type=int, nargs="?", const=8000, metavar="PORT", help="and serve it")
    arguments = parser.parse_args()
    folder = ROOT / "site"
    try:
        build(folder)
    except subprocess.CalledProcessError:
        return 1
    print(f"the site is in {folder}; 'make docs ARGS=--serve' shows it with its search")
    if arguments.serve is not None:
        with server(folder, arguments.serve) as listener:
            print(f"http://127.0.0.1:{listener.server_port}/", flush=True)
            listener.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
