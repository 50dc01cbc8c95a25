"""The controller as a process of its own, beside a real API server."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import ssl
import sys
from pathlib import Path
from typing import Any, Final

import aiohttp

from tests.support.webhooks import TLS_DATA

JUDGE: Final = "/validate-inferencecache-io-v1alpha1-cachebackend"
START_LIMIT_S: Final = 30.0
STOP_LIMIT_S: Final = 10.0


class Controller:
    """A running `inferencecache-controller` on ports of the system's choice."""

    def __init__(self, process: asyncio.subprocess.Process, started: dict[str, Any]) -> None:
        self.process = process
        self.started = started
        self._draining = asyncio.ensure_future(self._drain())

    @classmethod
    async def start(cls, kubeconfig: Path, *flags: str, nats_url: str = "nats://127.0.0.1:1") -> Controller:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "inferencecache.controller", f"--kubeconfig={kubeconfig}"),
            *(f"--{name}-bind-address=127.0.0.1:0" for name in ("webhook", "metrics", "health-probe")),
            f"--webhook-cert-file={TLS_DATA / 'first.crt'}",
            f"--webhook-key-file={TLS_DATA / 'first.key'}",
            *(f"--nats-url={nats_url}", "--insecure-nats", *flags),
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stderr is not None
        line = await asyncio.wait_for(process.stderr.readline(), START_LIMIT_S)
        return cls(process, json.loads(line))

    async def stop(self) -> int:
        """The exit code after SIGTERM."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        return await self.ended()

    async def ended(self) -> int:
        """The exit code, once it has ended by itself."""
        await asyncio.wait_for(self._draining, STOP_LIMIT_S)
        await asyncio.wait_for(self.process.wait(), STOP_LIMIT_S)
        assert self.process.returncode is not None
        return self.process.returncode

    async def page(self, port: str, path: str) -> tuple[int, str]:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{self.started[port]}{path}") as response,
        ):
            return response.status, await response.text()

    async def judge(self, document: dict[str, Any]) -> dict[str, Any]:
        """The response to a CREATE of a backend."""
        trust = ssl.create_default_context(cafile=TLS_DATA / "first.crt")
        namespace = document["metadata"]["namespace"]
        request = {"uid": "u", "operation": "CREATE", "namespace": namespace, "object": document}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as session,
            session.post(f"https://127.0.0.1:{self.started['webhook_port']}{JUDGE}", json=review) as answer,
        ):
            response: dict[str, Any] = (await answer.json())["response"]
            return response

    @property
    def resident_bytes(self) -> int:
        """What it has in memory now."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * resource.getpagesize()

    @property
    def processor_s(self) -> float:
        """Seconds of a processor that it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def _drain(self) -> None:
        """A pipe that nobody reads would stop the process once it is full."""
        assert self.process.stderr is not None
        while await self.process.stderr.read(65536):
            pass
