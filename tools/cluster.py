"""Gets what a whole one-node cluster is made of, for the tests of suite `cluster`: `python -m tools.cluster`.

Programs of the control plane and of the node are built as `tools.kube` says, the container runtime comes from
Debian, images of our own from the Docker engine that `tools.docker` gets. Two images are made here and kept
as archives in the cache folder: the one that holds a pod's namespaces, and a Redis of Debian's package.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from tools import docker, kube
from tools.cache import cache_folder, exclusive

SANDBOX_IMAGE: Final = "docker.io/inference-cache-test/sandbox:1"
REDIS_IMAGE: Final = "docker.io/inference-cache-test/redis:1"
CNI_PROGRAMS: Final = Path("/usr/lib/cni")
PACKAGES: Final = ("containerd", "runc", "containernetworking-plugins", "iptables", "conntrack", "socat")
_PROGRAMS: Final = ("containerd", "runc", "ctr", "iptables", "conntrack", "socat", "unshare", "nsenter", "ip")
_NETWORK: Final = ("bridge", "host-local", "loopback", "portmap")
_ALL_KUBE: Final = (*kube.PROGRAMS, *kube.NODE_PROGRAMS)
_SANDBOX: Final = """\
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGINT, syscall.SIGTERM)
	<-ended
}
"""


def archive(image: str) -> Path:
    """Where an image of this module lies, as `docker save` would write it."""
    name, _, version = image.rpartition("/")[2].partition(":")
    return cache_folder("cluster") / f"{name}-{version}.tar"


def present() -> bool:
    """Is everything there, and may this process make namespaces?"""
    return (
        os.geteuid() == 0
        and all(map(shutil.which, _PROGRAMS))
        and all((CNI_PROGRAMS / name).is_file() for name in _NETWORK)
        and kube.present(_ALL_KUBE)
        and archive(SANDBOX_IMAGE).is_file()
        and archive(REDIS_IMAGE).is_file()
        and docker.present()
    )


def prepare() -> None:
    """Get what is missing. Raises `CalledProcessError` when a program fails, which has then said why."""
    if not all(map(shutil.which, _PROGRAMS)) or not CNI_PROGRAMS.is_dir():
        print(f"installing {', '.join(PACKAGES)}", flush=True)
        subprocess.run(["apt-get", "update", "-q"], check=True)
        subprocess.run(["apt-get", "install", "-qy", "--no-install-recommends", *PACKAGES], check=True)
    docker.prepare()
    kube.build(_ALL_KUBE)
    with exclusive(cache_folder("cluster")):
        if not archive(SANDBOX_IMAGE).is_file():
            _make_sandbox()
        if not archive(REDIS_IMAGE).is_file():
            _make_redis()


def _make_sandbox() -> None:
    """One layer with one program that waits for a signal."""
    with tempfile.TemporaryDirectory(dir=cache_folder("cluster"), prefix=".sandbox-") as folder:
        Path(folder, "main.go").write_text(_SANDBOX)
        Path(folder, "go.mod").write_text("module sandbox\n")
        variables = os.environ | {"CGO_ENABLED": "0", "GOWORK": "off"}
        command = ["go", "build", "-trimpath", "-ldflags", "-s -w", "-o", "sandbox"]
        subprocess.run(command, cwd=folder, check=True, env=variables)
        layer = _packed({"sandbox": Path(folder, "sandbox").read_bytes()}, mode=0o755)
        configuration = {
            "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), "amd64"),
            "os": "linux",
            "config": {"Entrypoint": ["/sandbox"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        }
        manifest = [{"Config": "config.json", "RepoTags": [SANDBOX_IMAGE], "Layers": ["layer.tar"]}]
        files = {
            "layer.tar": layer,
            "config.json": json.dumps(configuration).encode(),
            "manifest.json": json.dumps(manifest).encode(),
        }
        made = Path(folder, "image.tar")
        made.write_bytes(_packed(files))
        made.rename(archive(SANDBOX_IMAGE))


def _packed(files: dict[str, bytes], mode: int = 0o644) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def _make_redis() -> None:
    docker.import_debian(REDIS_IMAGE, ("redis-server",))
    saved = archive(REDIS_IMAGE).with_suffix(".part")
    subprocess.run(["docker", "save", "--output", str(saved), REDIS_IMAGE], check=True)
    saved.rename(archive(REDIS_IMAGE))


def main() -> int:
    try:
        prepare()
    except (OSError, kube.NoGoError, subprocess.CalledProcessError) as error:
        print(f"{error}; this needs Debian's apt-get, the rights of root, and Go 1.24 or newer")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
