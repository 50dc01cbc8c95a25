"""Gets a Docker engine and what tests of the suite `docker` build on: `python -m tools.docker`.

On Debian, as root, it installs the engine and starts it where none answers. Tests fetch no images: the base
of ours is put together from Debian's packages (debootstrap), and that of the NATS server is the program that
is installed anyway. Docker Compose is a Go module and built like the programs of Kubernetes; it is kept in
the cache folder, as are Docker's own settings for tests.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.cache import cache_folder, exclusive

PYTHON_IMAGE: Final = "inference-cache-test/python:1"
NATS_IMAGE: Final = "inference-cache-test/nats:1"
COMPOSE: Final = "v2.40.3"
CERTIFICATES: Final = "/etc/ssl/certs/ca-certificates.crt"
SUITE: Final = "bookworm"
PACKAGES: Final = ("docker.io", "debootstrap", "iptables")
_BASE_PACKAGES: Final = ("ca-certificates", "python3-minimal", "python3-venv")
_START_LIMIT_S: Final = 60.0
_ANSWER_LIMIT_S: Final = 10.0


def environment() -> dict[str, str]:
    """What `docker` and `docker compose` of tests run with."""
    return os.environ | {
        "DOCKER_CONFIG": str(_settings()),
        "DOCKER_BUILDKIT": "0",  # a client may have no BuildKit of its own; the build needs none
        "BASE_IMAGE": PYTHON_IMAGE,
        "NATS_IMAGE": NATS_IMAGE,
        "PIP_CERT": CERTIFICATES,
    }


def present() -> bool:
    """Is everything there, and does an engine answer?"""
    return _compose().is_file() and all(map(_has_image, (PYTHON_IMAGE, NATS_IMAGE)))


def prepare() -> None:
    """Get what is missing. Raises `CalledProcessError` when a program fails, which has then said why."""
    with exclusive(cache_folder("docker")):
        if not all(map(shutil.which, ("dockerd", "debootstrap", "iptables"))):
            print(f"installing {', '.join(PACKAGES)}", flush=True)
            subprocess.run(["apt-get", "update", "-q"], check=True)
            subprocess.run(["apt-get", "install", "-qy", "--no-install-recommends", *PACKAGES], check=True)
        if not _answers():
            _start_engine()
        if not _compose().is_file():
            _build_compose()
        if not _has_image(NATS_IMAGE):
            _import_nats()
        if not _has_image(PYTHON_IMAGE):
            _import_python()


def _settings() -> Path:
    return cache_folder("docker") / "settings"


def _compose() -> Path:
    return _settings() / "cli-plugins" / "docker-compose"


def _docker(*arguments: str) -> bool:
    try:
        ended = subprocess.run(
            ("docker", *arguments), capture_output=True, timeout=_ANSWER_LIMIT_S, check=False
        )
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return False
    return ended.returncode == 0


def _answers() -> bool:
    return _docker("version")


def _has_image(name: str) -> bool:
    return _docker("image", "inspect", name)


def _start_engine() -> None:
    """It outlives this process; its log is in the cache folder.

    What tells of running processes is in a folder of its own: an engine that was killed leaves numbers behind
    that may be another process's by now.
    """
    log_file = cache_folder("docker") / "dockerd.log"
    state = tempfile.mkdtemp(prefix="docker-", dir="/run")
    command = ["dockerd", f"--exec-root={state}/exec", f"--pidfile={state}/pid"]
    print(f"starting dockerd, which logs to {log_file}", flush=True)
    with log_file.open("wb") as log:
        engine = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    deadline = time.monotonic() + _START_LIMIT_S
    while not _answers():
        if engine.poll() is not None or time.monotonic() > deadline:
            sys.exit("dockerd does not answer:\n" + "\n".join(log_file.read_text().splitlines()[-10:]))
        time.sleep(0.2)


def _build_compose() -> None:
    module = "github.com/docker/compose/v2"
    print(f"building docker compose {COMPOSE}, about two minutes of two cores", flush=True)
    with tempfile.TemporaryDirectory(dir=cache_folder("docker"), prefix=".build-") as folder:
        Path(folder, "go.mod").write_text(f"module build\nrequire {module} {COMPOSE}\n")
        stamp = f"-s -w -X {module}/internal.Version={COMPOSE}"
        build = ["go", "build", "-mod=mod", "-trimpath", "-ldflags", stamp, "-o", "made"]
        variables = os.environ | {"CGO_ENABLED": "0", "GOWORK": "off"}
        subprocess.run([*build, f"{module}/cmd"], cwd=folder, check=True, env=variables)
        _compose().parent.mkdir(parents=True, exist_ok=True)
        Path(folder, "made").rename(_compose())


def _import_nats() -> None:
    program = Path(sysconfig.get_path("scripts")) / "nats-server"
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(program, "nats-server")
    command = ["docker", "import", "--change", 'ENTRYPOINT ["/nats-server"]', "-", NATS_IMAGE]
    subprocess.run(command, input=archive.getvalue(), check=True)


def _import_python() -> None:
    import_debian(PYTHON_IMAGE, _BASE_PACKAGES)


def import_debian(image: str, packages: Sequence[str]) -> None:
    """Put an image together from Debian's packages, and the certificates that this machine trusts."""
    print(f"putting {image} together from Debian's packages, about a minute", flush=True)
    with tempfile.TemporaryDirectory(dir=cache_folder("docker"), prefix=".base-") as folder:
        root = Path(folder, "root")
        bootstrap = ["debootstrap", "--variant=minbase", f"--include={','.join(packages)}"]
        subprocess.run([*bootstrap, SUITE, str(root)], check=True, stdout=subprocess.DEVNULL)
        trusted = root / CERTIFICATES.lstrip("/")
        trusted.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(CERTIFICATES, trusted)
        archive = Path(folder, "root.tar")
        left_out = ("./proc/*", "./sys/*", "./dev/*", "./var/cache/apt/*", "./var/lib/apt/lists/*")
        excluded = [f"--exclude={pattern}" for pattern in left_out]
        subprocess.run(["tar", "-C", str(root), *excluded, "-cf", str(archive), "."], check=True)
        subprocess.run(["docker", "import", str(archive), image], check=True)


def main() -> int:
    try:
        prepare()
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"{error}; this needs Debian's apt-get, the rights of root, and Go 1.24 or newer")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
