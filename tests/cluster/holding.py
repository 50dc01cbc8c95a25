"""The first process of a cluster's namespaces: prepares them, then takes in what others leave behind.

It ends with its standard input, that is with the test run however that ends, and everything in the namespaces
ends with it: processes by the kernel, mounts, addresses and rules with the last process. `python holding.py
ADDRESS/BITS GROUP` gives the bridge that address and puts everything into control groups of that name.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

OWN_FOLDERS = ("/run", "/var/lib", "/var/log", "/dev/shm")
"""What programs of a node write to besides the folders that they are given."""
GROUPS = Path("/sys/fs/cgroup")
READY = "ready\n"
BRIDGE = "cni0"


def prepare(address: str) -> None:
    """Private folders, and a bridge that pods are attached to."""
    commands = [["mount", "--make-rshared", "/"]]
    commands += [["mount", "-t", "tmpfs", "cluster", folder] for folder in OWN_FOLDERS]
    commands += [
        ["ip", "link", "set", "lo", "up"],
        ["ip", "link", "add", BRIDGE, "type", "bridge"],
        ["ip", "address", "add", address, "dev", BRIDGE],
        ["ip", "link", "set", BRIDGE, "up"],
        ["sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"],
    ]
    for command in commands:
        subprocess.run(command, check=True)


def enter(name: str) -> None:
    """Go into a group of each hierarchy, below the one this process is in; containers' will be below it."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        mounted = controllers.removeprefix("name=") or "unified"
        hierarchy = GROUPS / mounted / path.lstrip("/")
        if not (hierarchy / "cgroup.procs").is_file():
            continue
        group = hierarchy / name
        group.mkdir()
        for inherited in ("cpuset.cpus", "cpuset.mems"):
            if (hierarchy / inherited).is_file():
                (group / inherited).write_text((hierarchy / inherited).read_text())
        (group / "cgroup.procs").write_text("0")


def hold() -> None:
    """Until nobody holds the other end of standard input."""
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    while True:
        readable, _, _ = select.select([0, woken], [], [])
        if woken in readable:
            os.read(woken, 512)
            _reap()
        if 0 in readable and not os.read(0, 512):
            return


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


if __name__ == "__main__":
    enter(sys.argv[2])
    prepare(sys.argv[1])
    os.write(1, READY.encode())
    hold()
