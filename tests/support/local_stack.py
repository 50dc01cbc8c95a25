"""`inferencecache up` as a test sees it: a process, its folder, and clients of what it started."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, Self

import grpc
import grpc.aio
import yaml
from aiohttp import ClientError, ClientSession

from inferencecache.v1alpha1 import inferencecache_pb2 as pb
from inferencecache.v1alpha1.inferencecache_pb2_grpc import InferenceCacheStub
from tests.support.waiting import eventually

START_LIMIT_S = 180.0
STOP_LIMIT_S = 45.0
COMMAND = (sys.executable, "-m", "inferencecache.cli", "up", "--free-ports")
MODEL = "demo-model"


class LocalStack:
    """The whole system without load, inside `async with`."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self._arguments = arguments

    async def __aenter__(self) -> Self:
        self._output = (self.folder / "up.log").open("wb")
        self._process = await asyncio.create_subprocess_exec(
            *COMMAND,
            *("--no-load", "--state-dir", str(self.folder)),
            *self._arguments,
            stdout=self._output,
            stderr=self._output,
        )
        self.http = ClientSession()
        await eventually(self._is_up, within_s=START_LIMIT_S)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.close()
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGINT)
        await asyncio.wait_for(self._process.wait(), STOP_LIMIT_S)
        self._output.close()

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode

    @property
    def output(self) -> str:
        return (self.folder / "up.log").read_text()

    @property
    def processes(self) -> dict[str, Any]:
        """Name to process id, command line, readiness address and log."""
        document: dict[str, Any] = json.loads((self.folder / "processes.json").read_text())
        return document

    def option(self, name: str, flag: str) -> str:
        """Value that a process was started with."""
        command: list[str] = self.processes[name]["command"]
        return command[command.index(flag) + 1]

    @property
    def gateway(self) -> str:
        """URL of the Envoy in front."""
        config = yaml.safe_load(Path(self.option("envoy", "-c")).read_text())
        (listener,) = config["static_resources"]["listeners"]
        where = listener["address"]["socket_address"]
        return f"http://{where['address']}:{where['port_value']}"

    async def kill(self, name: str) -> None:
        """SIGKILL one process and wait until its successor is ready."""
        before = self.processes[name]["pid"]
        os.kill(before, signal.SIGKILL)
        await eventually(lambda: self._is_back(name, before), within_s=30)

    async def complete(self, engine: str, prompt: list[int], max_tokens: int = 1) -> dict[str, Any]:
        """A completion from one engine."""
        url = f"http://{self.option(engine, '--http-bind-address')}/v1/completions"
        async with self.http.post(url, json={"prompt": prompt, "max_tokens": max_tokens}) as response:
            assert response.status == 200
            answer: dict[str, Any] = await response.json()
            return answer | {"stored_at": float(response.headers.get("x-sim-stored-at", 0))}

    async def lookup(self, router: str, prompt: list[int]) -> pb.LookupRouteResponse | None:
        """A router's answer for a prompt; None while it does not answer."""
        request = pb.LookupRouteRequest(
            model_id=MODEL, tenant_id="demo", hash_scheme="vllm", token_ids=prompt
        )
        async with grpc.aio.insecure_channel(self.option(router, "--grpc-bind-address")) as channel:
            try:
                answer: pb.LookupRouteResponse = await InferenceCacheStub(channel).LookupRoute(
                    request, timeout=2
                )
            except grpc.aio.AioRpcError:
                return None
            return answer

    async def is_hinted(self, router: str, prompt: list[int], replica: str) -> bool:
        """Whether a router says that the replica holds the prompt."""
        answer = await self.lookup(router, prompt)
        return (
            answer is not None
            and answer.reason_code == "PREFIX_MATCH"
            and replica in {score.replica_id for score in answer.replica_scores}
        )

    async def _is_up(self) -> bool:
        assert self._process.returncode is None, self.output
        return "everything is up" in self.output

    async def _is_back(self, name: str, before: int) -> bool:
        process = self.processes.get(name)
        if process is None or process["pid"] in (0, before):
            return False
        ready: str = process["ready"]
        if ready.startswith("tcp://"):
            return True
        try:
            async with self.http.get(ready) as response:
                return response.status == 200
        except ClientError:
            return False
