"""What tests may need beyond Python and its packages, and how to get it.

One row a facility; its name is the pytest marker of the tests that need it, and it stands behind those
that it is built on. A row is added together with its first test. `python -m tools.facilities all` (`make
assets`) gets everything, `python -m tools.facilities NAME` (`make NAME-assets`) one of them.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from tools import chromium, cluster, docker, engines, envoy, faketime, kube, prometheus

ROOT: Final = Path(__file__).resolve().parent.parent


class Facility(NamedTuple):
    """`missing` says in a few words what is not there, `remedy` what to do and what that takes.

    `present` answers quickly and changes nothing. `install` is the command of `make NAME-assets`, run
    at the root of the repository; it ends at once when there is nothing left to do. Tests of one that is
    `only_when_required` do not run merely because it is present: they take minutes.
    """

    name: str
    present: Callable[[], bool]
    missing: str
    remedy: str
    install: tuple[str, ...]
    only_when_required: bool = False

    @property
    def not_run(self) -> str:
        """The line that a test run without this facility ends with."""
        return f"NOT RUN {self.name}: {self.missing}; {self.remedy}"


FACILITIES: tuple[Facility, ...] = (
    Facility(
        name="chromium",
        present=chromium.present,
        missing="no Chromium browser",
        remedy="run 'make chromium-assets' (downloads 120 MB and unpacks 400 MB; needs apt)",
        install=(sys.executable, "-m", "tools.chromium"),
    ),
    Facility(
        name="docker",
        present=docker.present,
        missing="no Docker engine with Docker Compose and the images that tests build on",
        remedy="run 'make docker-assets' (needs Debian, root and Go; some minutes, 600 MB)",
        install=(sys.executable, "-m", "tools.docker"),
    ),
    Facility(
        name="engines",
        present=engines.present,
        missing="no event publishers of released engines",
        remedy="run 'make engines-assets' (downloads 650 MB once and keeps 200 kB of them)",
        install=(sys.executable, "-m", "tools.engines"),
    ),
    Facility(
        name="envoy",
        present=envoy.present,
        missing="no Envoy",
        remedy="run 'make envoy-assets' (downloads 37 MB, for Linux and macOS 15)",
        install=(sys.executable, "-m", "tools.envoy"),
    ),
    Facility(
        name="faketime",
        present=faketime.present,
        missing="no libfaketime, which gives processes a wrong clock",
        remedy="run 'make faketime-assets' (downloads 50 kB; needs apt)",
        install=(sys.executable, "-m", "tools.faketime"),
    ),
    Facility(
        name="kube",
        present=kube.present,
        missing="no kube-apiserver, kube-controller-manager and etcd",
        remedy="run 'make kube-assets' (builds them once with Go, about seven minutes of two cores)",
        install=(sys.executable, "-m", "tools.kube"),
    ),
    Facility(
        name="prometheus",
        present=prometheus.present,
        missing="no prometheus and promtool",
        remedy="run 'make prometheus-assets' (downloads 20 MB and unpacks 95 MB; needs apt)",
        install=(sys.executable, "-m", "tools.prometheus"),
    ),
    Facility(
        name="cluster",
        present=cluster.present,
        missing="a whole Kubernetes node takes minutes",
        remedy="run 'make cluster-assets' (needs Debian, root and Go; some minutes after docker-assets and "
        "kube-assets, 700 MB) and 'make test REQUIRE=cluster'",
        install=(sys.executable, "-m", "tools.cluster"),
        only_when_required=True,
    ),
)


def main() -> int:
    wanted = sys.argv[1] if len(sys.argv) > 1 else "all"
    chosen = [facility for facility in FACILITIES if wanted in (facility.name, "all")]
    if not chosen and wanted != "all":
        known = ", ".join(facility.name for facility in FACILITIES) or "none yet"
        print(f"assets: no facility is called {wanted}; known: {known}")
        return 2
    if not chosen:
        print("assets: no test needs anything beyond Python and its packages; nothing to do")
    for facility in chosen:
        if facility.present():
            print(f"assets: {facility.name} is there")
            continue
        print(f"assets: getting {facility.name}: {' '.join(facility.install)}", flush=True)
        subprocess.run(facility.install, cwd=ROOT, check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
