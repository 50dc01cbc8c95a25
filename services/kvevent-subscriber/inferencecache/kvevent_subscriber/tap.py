"""`kvevent-tap`: shows what an engine publishes, as this product reads it [SUB-203].

Of a prompt it shows nothing: token ids are counted before anything is written, a cache salt or extra
key is only said to be there, and what cannot be read is told by its length and the class of the error.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TextIO

import msgspec
import zmq.asyncio

from inferencecache.core.service import (
    SettingsParser,
    add_log_settings,
    at_least,
    configure_logging,
    get_logger,
    run,
)
from inferencecache.kvevent_subscriber.diary import MAX_TEXT
from inferencecache.kvevent_subscriber.endpoints import check_endpoint
from inferencecache.kvevent_subscriber.events import (
    AllCleared,
    Event,
    Malformed,
    Removed,
    Stored,
    Unknown,
    UnreadableBatchError,
    decode_batch,
)
from inferencecache.kvevent_subscriber.frames import read_message
from inferencecache.kvevent_subscriber.sockets import LiveSocket, Parts

_DESCRIPTION: Final = (
    "Prints the KV-cache events that an engine publishes, decoded as the sidecar reads them. It is one "
    "more subscriber beside the sidecar and changes nothing. Token ids are replaced by their number, and "
    "of what cannot be read only length and error are shown."
)
_EPILOG: Final = """examples:
  kvevent-tap --engine-endpoint=tcp://127.0.0.1:5557
  kvevent-tap --count=1                   the topic that the engine really uses, then the end
  kvevent-tap --json | jq .events

Nothing comes? Events are published while blocks are stored or removed, so send the engine a new
prompt of more than one block; then check port and topic of its --kv-events-config."""

Shown = dict[str, Any]
"""A message or an event as it may be printed."""

logger = get_logger("tap")


class TapSettings(msgspec.Struct, frozen=True):
    """`count` is the most messages to print, 0 for no end; `as_json` makes a JSON object of each."""

    endpoint: str
    topic: str
    count: int
    as_json: bool
    log_format: str
    log_level: str


def read_settings(
    arguments: Sequence[str] | None = None, environment: Mapping[str, str] | None = None
) -> TapSettings:
    """Settings from the command line and the environment; a wrong one ends the process with 2."""
    parser = SettingsParser("kvevent-tap", _DESCRIPTION, epilog=_EPILOG, environment=environment)
    parser.setting(
        "--engine-endpoint",
        default="tcp://127.0.0.1:5557",
        parse=check_endpoint,
        help="The engine's PUB socket. Host * binds, for engines that connect; the port must be free then.",
    )
    parser.setting(
        "--topic",
        default="",
        help="Topic prefix to subscribe to; empty for every message, whatever its topic.",
    )
    parser.setting(
        "--count", default=0, parse=at_least(0), help="End after this many messages; 0 = go on until stopped."
    )
    parser.setting(
        "--json",
        default=False,
        parse=bool,
        help="One JSON object a message and line, in place of a line an event.",
    )
    add_log_settings(parser)
    args = parser.parse_args(arguments)
    return TapSettings(
        args.engine_endpoint, args.topic, args.count, args.json, args.log_format, args.log_level
    )


class Tap:
    """Prints an endpoint's messages to `out`. `run` returns after `count` of them, or when `stop` is set."""

    def __init__(self, settings: TapSettings, out: TextIO) -> None:
        self._settings = settings
        self._write = _json_writer(out) if settings.as_json else _line_writer(out)
        self._printed = 0
        self._ended = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> int:
        """Read and print; the exit code."""
        context = zmq.asyncio.Context()
        live = LiveSocket(
            context,
            self._settings.endpoint,
            self._settings.topic,
            on_message=self._heard,
            on_connected=lambda: None,
            on_disconnected=lambda: logger.warning("engine_lost", endpoint=self._settings.endpoint),
        )
        tasks = [asyncio.create_task(work) for work in (live.run(), stop.wait(), self._ended.wait())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except BrokenPipeError:
            logger.info("stopped", msg="nobody reads the output any more")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            context.destroy(linger=0)
        return 0

    def _heard(self, parts: Parts) -> None:
        shown = show_message(parts)
        if shown is None or self._ended.is_set():
            return
        self._write(shown)
        self._printed += 1
        if self._printed == self._settings.count:
            self._ended.set()


def show_message(parts: Sequence[bytes]) -> Shown | None:
    """What may be printed of a message; None when it has no parts."""
    frame = read_message(parts)
    if frame is None:
        return None
    shown: Shown = {
        "topic": parts[0].decode(errors="replace")[:MAX_TEXT] if len(parts) > 1 else "",
        "sequence": frame.sequence,
        "bytes": len(frame.payload),
    }
    try:
        batch = decode_batch(frame.payload)
    except UnreadableBatchError as error:
        return shown | {"error": error.reason}
    return shown | {"time_s": batch.time_s, "rank": batch.rank, "events": [*map(show_event, batch.events)]}


def show_event(event: Event) -> Shown:
    """What may be printed of an event: no token ids, no salts, and fields only where the engine set them."""
    return {
        name: value[:MAX_TEXT] if isinstance(value, str) else value
        for name, value in _fields_of(event).items()
        if value is not None
    }


def _fields_of(event: Event) -> Shown:
    match event:
        case Stored():
            return {
                "type": "BlockStored",
                "block_hashes": [hash_.hex() for hash_ in event.hashes],
                "parent": None if event.parent is None else event.parent.hex(),
                "token_count": len(event.tokens),
                "block_size": event.block_size,
                "lora_id": event.lora_id,
                "lora_name": event.lora_name,
                "medium": event.medium,
                "group": event.group,
                "kind": event.kind,
                "locality": event.locality,
                "ownership": event.ownership,
                "has_extra_keys": any(event.extra_keys or ()) or None,
                "has_cache_salt": bool(event.cache_salt) or None,
            }
        case Removed():
            return {
                "type": "BlockRemoved",
                "block_hashes": [hash_.hex() for hash_ in event.hashes],
                "medium": event.medium,
                "group": event.group,
                "locality": event.locality,
                "ownership": event.ownership,
            }
        case AllCleared():
            return {"type": "AllBlocksCleared"}
        case Unknown():
            return {"type": event.type[:MAX_TEXT], "error": "unknown_type"}
        case Malformed():
            return {"type": None, "error": event.reason}


def _json_writer(out: TextIO) -> Callable[[Shown], None]:
    def write(shown: Shown) -> None:
        out.write(msgspec.json.encode(shown).decode() + "\n")
        out.flush()

    return write


def _line_writer(out: TextIO) -> Callable[[Shown], None]:
    def write(shown: Shown) -> None:
        events = shown.pop("events", [])
        out.write("message  " + _in_line(shown) + "\n")
        out.writelines("  " + _in_line(event) + "\n" for event in events)
        out.flush()

    return write


def _in_line(shown: Shown) -> str:
    """`name=value` for each field. Texts are as JSON, so that no engine can write to the terminal."""
    return "  ".join(f"{name}={msgspec.json.encode(value).decode()}" for name, value in shown.items())


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `kvevent-tap`."""
    settings = read_settings(arguments)
    configure_logging(settings.log_format, settings.log_level)

    async def work(stop: asyncio.Event) -> int:
        return await Tap(settings, sys.stdout).run(stop)

    run(work)


if __name__ == "__main__":
    main()
