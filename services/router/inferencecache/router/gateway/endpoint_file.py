"""Endpoints from a file, which is read again when it changes.

```yaml
endpoints:
- address: 10.0.0.5:8000     # IP:PORT; an IP of version 6 in brackets
  replica: engine-1          # as its producer reports it
  ready: true                # the default
```
"""

from __future__ import annotations

import asyncio
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import msgspec

from inferencecache.core.gateway import Endpoint, EndpointId
from inferencecache.core.service import get_logger
from inferencecache.router.gateway.sources import Tell
from inferencecache.schemas.ids import ReplicaId

POLL_S: Final = 0.25

log = get_logger("endpoints")


class EndpointFileError(Exception):
    """The file does not say which endpoints there are."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"--gateway-endpoints-file={path}: {problem}")
        self.path = path
        self.problem = problem


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    address: str
    replica: str
    ready: bool = True


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    endpoints: list[_Entry]


def read_endpoints(path: Path) -> tuple[Endpoint, ...]:
    """The endpoints of a file. Raises `EndpointFileError`."""
    try:
        document = msgspec.yaml.decode(path.read_bytes(), type=_Document)
    except OSError as error:
        raise EndpointFileError(path, error.strerror or str(error)) from error
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise EndpointFileError(path, str(error)) from error
    for entry in document.endpoints:
        if not is_address(entry.address):
            raise EndpointFileError(
                path, f"{entry.address!r} is not IP:PORT as proxies write it: 10.0.0.5:8000, [fd00::5]:8000"
            )
    return tuple(
        Endpoint(EndpointId(entry.address, ReplicaId(entry.replica)), entry.ready)
        for entry in document.endpoints
    )


def is_address(text: str) -> bool:
    """Whether a proxy can be told this: IP:PORT, an IP of version 6 in brackets."""
    host, _, port = text.rpartition(":")
    try:
        ip = ip_address(host.removeprefix("[").removesuffix("]"))
        number = int(port)
    except ValueError:
        return False
    shown = f"[{ip}]" if ip.version == 6 else str(ip)
    # As it is written and no other way: proxies compare addresses as texts.
    return 0 < number < 1 << 16 and text == f"{shown}:{number}"


class EndpointFile:
    """A file as a source. While it cannot be read, what it said last holds."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def run(self, tell: Tell) -> None:
        seen: object = ()
        while True:
            version = self._version()
            if version != seen:
                # The version was taken before the content, so that a write in between is seen next time.
                seen = version
                try:
                    endpoints = read_endpoints(self._path)
                except EndpointFileError as error:
                    log.warning("endpoints_unreadable", msg=str(error))
                else:
                    tell(endpoints)
                    log.info("endpoints_read", file=str(self._path), count=len(endpoints))
            await asyncio.sleep(POLL_S)

    def _version(self) -> tuple[int, ...] | None:
        """What changes with the file, also where another file takes its name."""
        try:
            status = self._path.stat()
        except OSError:
            return None
        return (status.st_mtime_ns, status.st_size, status.st_ino)
