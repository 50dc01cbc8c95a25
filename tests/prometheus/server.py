"""A real Prometheus that scrapes a test's targets every second."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import yaml
from aiohttp import ClientError, ClientSession

from tests.support.ports import free_port
from tests.support.waiting import eventually
from tools import prometheus

START_LIMIT_S = 30.0
STOP_LIMIT_S = 20.0


class QueryError(AssertionError):
    """Prometheus does not understand an expression."""


class Prometheus:
    """Runs inside `async with`. `targets` are addresses by the label `pod`; all are of namespace `demo`."""

    def __init__(self, folder: Path, targets: Mapping[str, str]) -> None:
        self._folder = folder
        self._address = f"127.0.0.1:{free_port()}"
        configuration = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
            "scrape_configs": [
                {
                    "job_name": "demo",
                    "static_configs": [
                        {"targets": [address], "labels": {"namespace": "demo", "pod": pod}}
                        for pod, address in targets.items()
                    ],
                }
            ],
        }
        self._configuration = folder / "prometheus.yml"
        self._configuration.write_text(yaml.safe_dump(configuration))

    async def __aenter__(self) -> Self:
        with (self._folder / "prometheus.log").open("wb") as output:
            self._process = await asyncio.create_subprocess_exec(
                str(prometheus.program("prometheus")),
                f"--config.file={self._configuration}",
                f"--storage.tsdb.path={self._folder / 'tsdb'}",
                f"--web.listen-address={self._address}",
                stdout=output,
                stderr=output,
            )
        self._http = ClientSession()
        await eventually(self._is_ready, within_s=START_LIMIT_S)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()
        self._process.terminate()
        await asyncio.wait_for(self._process.wait(), STOP_LIMIT_S)

    async def query(self, expression: str) -> list[dict[str, Any]]:
        """What the expression is now: metrics with their values. Raises `QueryError`."""
        parameters = {"query": expression}
        async with self._http.get(f"http://{self._address}/api/v1/query", params=parameters) as response:
            answer = json.loads(await response.text())
        if answer["status"] != "success":
            raise QueryError(f"{expression}: {answer['error']}")
        result: list[dict[str, Any]] = answer["data"]["result"]
        return result

    async def _is_ready(self) -> bool:
        assert self._process.returncode is None, (self._folder / "prometheus.log").read_text()
        try:
            async with self._http.get(f"http://{self._address}/-/ready") as response:
                return response.status == 200
        except ClientError:
            return False
