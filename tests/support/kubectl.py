"""The real kubectl, as an administrator of a test's API server uses it."""

from __future__ import annotations

import asyncio
from typing import Final

import yaml

from tests.support.kube import Administered, Document
from tools.kube import find

WAIT_S: Final = 45
_LIMIT_S: Final = 60.0


class KubectlError(AssertionError):
    """It refused; the message is what it said."""


class Kubectl:
    """Answers with what kubectl prints."""

    def __init__(self, server: Administered, namespace: str) -> None:
        program = find("kubectl")
        assert program is not None, "no program kubectl; run 'make kube-assets'"
        self.command = (
            str(program),
            f"--kubeconfig={server.kubeconfig}",
            f"--cache-dir={server.folder / 'kubectl'}",
            f"--namespace={namespace}",
        )

    async def __call__(self, *arguments: str, given: str = "", limit_s: float = _LIMIT_S) -> str:
        """Run it with `given` as its standard input. Raises `KubectlError` and TimeoutError."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *self.command, *arguments, stdin=pipe, stdout=pipe, stderr=pipe
        )
        try:
            async with asyncio.timeout(limit_s):
                told, complaint = await process.communicate(given.encode())
        finally:
            if process.returncode is None:
                process.kill()
        if process.returncode != 0:
            raise KubectlError(f"kubectl {' '.join(arguments)}: {complaint.decode()}")
        return told.decode()

    async def apply(self, *documents: Document) -> str:
        """`kubectl apply -f -`"""
        return await self("apply", "--filename=-", given=yaml.safe_dump_all(documents))

    async def value(self, of: str, path: str) -> str:
        """What a JSON path such as `.spec.type` finds in an object named `kind/name`."""
        return await self("get", of, f"--output=jsonpath={{{path}}}")

    async def table(self, *arguments: str) -> list[dict[str, str]]:
        """The rows of `kubectl get`, by the columns' headings; no cell may have a space or be empty."""
        heading, *rows = (await self("get", *arguments)).splitlines()
        return [dict(zip(heading.split(), row.split(), strict=True)) for row in rows]

    async def wait(self, of: str, until: str, within_s: float = WAIT_S) -> None:
        """`kubectl wait` for a condition, a path's value, creation or deletion, as `--for` names it."""
        limit_s = within_s + _LIMIT_S
        await self("wait", of, f"--for={until}", f"--timeout={within_s:.0f}s", limit_s=limit_s)
