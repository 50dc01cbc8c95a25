"""Runs the event publisher of a released engine, and nothing else of that engine, in a process of its own.

Started as a script with one JSON argument: `folder` and `module` say where the publisher is, `rank` and
`config` are what the engine would give it. The engine's other modules are stood in for. Commands come
on standard input and answers leave on standard output, MessagePack maps behind four bytes of length:

    (at start)                                  -> {"fields": {event type: [field names]}}
    {"do": "publish", "events": [{"type": …}]}  -> {}
    {"do": "publish", …, "lost": true}          -> {}  kept for replay, never sent on the live socket
    {"do": "spoil"}                             -> {}  a batch that cannot be encoded

A command that fails ends the process with its traceback on standard error.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.abc
import importlib.machinery
import json
import logging
import sys
import time
import types
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import msgspec


class StandIn(types.ModuleType):
    """A module of the engine that is not there. Most of its names are only mentioned in annotations."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return {"init_logger": logging.getLogger, "config": dataclasses.dataclass}.get(name, Any)


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a stand-in for every module of a package that nobody else finds."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.split(".", maxsplit=1)[0] != self._package:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return StandIn(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


class Deaf:
    """A live socket whose messages reach nobody."""

    def send_multipart(self, parts: object) -> None:
        pass


class Driver:
    """One publisher, made as the engine makes it."""

    def __init__(self, module: Any, rank: int, config: dict[str, Any]) -> None:
        self._module = module
        settings = module.KVEventsConfig
        # One engine keeps its configuration as parsed, another as the text from its command line.
        made = json.dumps(config) if hasattr(settings, "from_cli") else settings(**config)
        self._publisher = module.EventPublisherFactory.create(made, rank)

    def fields(self) -> dict[str, list[str]]:
        """Names of the fields of each event in the order of their positions."""
        events = (self._module.BlockStored, self._module.BlockRemoved, self._module.AllBlocksCleared)
        return {
            event.__name__: [field.encode_name for field in msgspec.structs.fields(event)] for event in events
        }

    def publish(self, events: Sequence[dict[str, Any]], *, lost: bool = False) -> None:
        batch = self._module.KVEventBatch(ts=time.time(), events=[self._event(**event) for event in events])
        if not lost:
            self._publisher.publish(batch)
            return
        self._publisher._event_queue.join()
        live, self._publisher._pub = self._publisher._pub, Deaf()
        self._publisher.publish(batch)
        self._publisher._event_queue.join()
        self._publisher._pub = live

    def spoil(self) -> None:
        self._publisher.publish(self._module.KVEventBatch(ts=time.time(), events=[object()]))

    def end(self) -> None:
        self._publisher.shutdown()

    def _event(self, type: str, **given: Any) -> Any:  # noqa: A002 - named as in the events
        """An event with what is given; what its class insists on beyond that is null."""
        event = getattr(self._module, type)
        insisted = {field.encode_name for field in msgspec.structs.fields(event) if field.required}
        return event(**(dict.fromkeys(insisted) | given))


def commands() -> Iterator[dict[str, Any]]:
    while head := sys.stdin.buffer.read(4):
        yield msgspec.msgpack.decode(sys.stdin.buffer.read(int.from_bytes(head, "big")))


def answer(**content: object) -> None:
    body = msgspec.msgpack.encode(content)
    sys.stdout.buffer.write(len(body).to_bytes(4, "big") + body)
    sys.stdout.buffer.flush()


def main() -> NoReturn:
    given = json.loads(sys.argv[1])
    logging.basicConfig(stream=sys.stderr)
    sys.path.insert(0, given["folder"])
    sys.meta_path.append(StandIns(given["module"].split(".")[0]))
    driver = Driver(importlib.import_module(given["module"]), given["rank"], given["config"])
    answer(fields=driver.fields())
    for command in commands():
        getattr(driver, command.pop("do"))(**command)
        answer()
    driver.end()
    sys.exit(0)


if __name__ == "__main__":
    main()
