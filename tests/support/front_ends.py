"""What may serve the router's gRPC port, each as a conformance suite sees it: an address and a stop.

A front end is known here by how a router with it is started. The suite asks over the network only, so
one that runs in a process of its own is judged as one in this process is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final, Protocol

from inferencecache.router.tls import certificate_files, grpc_credentials
from tests.support.router import Router, served_router


class Served(Protocol):
    """A router that serves."""

    @property
    def address(self) -> str:
        """HOST:PORT of its gRPC port."""

    async def stop(self) -> None:
        """Stop it as SIGTERM does, and return once its port is closed and its calls have ended."""


class Start(Protocol):
    """Starts a router over an empty log; `tls` are files of a certificate and its key, None is plaintext."""

    def __call__(
        self, *, tls: tuple[Path, Path] | None = None, reflection: bool = True
    ) -> AbstractAsyncContextManager[Served]: ...


class _InThisProcess:
    def __init__(self, router: Router) -> None:
        self._router = router

    @property
    def address(self) -> str:
        return self._router.server.address

    async def stop(self) -> None:
        self._router.servicer.stop()
        await self._router.server.stop()


@asynccontextmanager
async def _grpcio(*, tls: tuple[Path, Path] | None = None, reflection: bool = True) -> AsyncIterator[Served]:
    credentials = None if tls is None else grpc_credentials(certificate_files(*tls))
    async with served_router(reflection=reflection, credentials=credentials) as router:
        yield _InThisProcess(router)


FRONT_ENDS: Final[dict[str, Start]] = {"grpcio": _grpcio}
"""By the name that the documentation gives them."""
