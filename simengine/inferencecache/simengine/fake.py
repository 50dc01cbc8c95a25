"""The fake engine: a publisher that repeats one message, for smoke tests of a sidecar [SUB-190..201].

Before it publishes, it prints the keys that the index must show. All events ride in one message, so
a subscriber that comes late never sees a suffix without its parent [SUB-198].
"""

from __future__ import annotations

import argparse
import asyncio
import re
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

import msgspec
import zmq

from inferencecache.core.fingerprint import prefix_hashes

FIRST_HASH: Final = 0xE000
MAX_TOKENS: Final = 2**24
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0}


class RejectedError(ValueError):
    """The settings are readable, but nothing can be published with them; exit code 1 [SUB-201]."""


@dataclass(frozen=True)
class FakeSettings:
    """What is published. Raises `RejectedError` when it cannot be [SUB-201]."""

    block_size: int = 128
    num_blocks: int = 1
    events: int = 1
    start_token: int = 0
    interval_s: float = 0.5
    omit_token_ids: bool = False

    def __post_init__(self) -> None:
        tokens = self.block_size * self.num_blocks
        wrong = {
            "--block-size must be at least 1": self.block_size < 1,
            "--num-blocks must be at least 1": self.num_blocks < 1,
            f"--block-size times --num-blocks must be at most {MAX_TOKENS}": tokens > MAX_TOKENS,
            "--start-token must be at least 0": self.start_token < 0,
            "the last token must be below 2**32; lower --start-token": self.start_token + tokens > 2**32,
            "--interval must be above 0": self.interval_s <= 0,
            "--events must be at least 1 and at most --num-blocks": not 1 <= self.events <= self.num_blocks,
        }
        for message, is_wrong in wrong.items():
            if is_wrong:
                raise RejectedError(message)

    @property
    def tokens(self) -> range:
        """All token ids, in order."""
        return range(self.start_token, self.start_token + self.block_size * self.num_blocks)


def payload(settings: FakeSettings) -> bytes:
    """The one message: array events of six elements, time 0 and no rank [SUB-198, SUB-199]."""
    events: list[tuple[object, ...]] = []
    first = 0
    for index in range(settings.events):
        count = settings.num_blocks // settings.events + (index < settings.num_blocks % settings.events)
        tokens = settings.tokens[first * settings.block_size : (first + count) * settings.block_size]
        hashes = [FIRST_HASH + block for block in range(first, first + count)]
        parent = FIRST_HASH + first - 1 if first else None
        sent = None if settings.omit_token_ids else list(tokens)
        events.append(("BlockStored", hashes, parent, sent, settings.block_size, None))
        first += count
    return msgspec.msgpack.encode([0.0, events])


def expectation(settings: FakeSettings) -> str:
    """What the index must show, a line a block [SUB-200]."""
    if settings.omit_token_ids:
        return "EXPECT no index entries: the events carry no token ids"
    size = settings.block_size
    return "\n".join(
        f"EXPECT prefix_hash[{block}]={key:016x} token_count={(block + 1) * size}"
        for block, key in enumerate(prefix_hashes(settings.tokens, size))
    )


def parser() -> argparse.ArgumentParser:
    """Command line of the fake engine."""
    result = argparse.ArgumentParser(
        prog="kvevent-sim-engine --fake",
        description="Publish one KV event message again and again, without any engine behind it.",
        allow_abbrev=False,
    )
    add = result.add_argument
    add(
        "--bind",
        default="tcp://0.0.0.0:5557",
        metavar="ENDPOINT",
        help="PUB socket (default tcp://0.0.0.0:5557)",
    )
    add("--topic", default="kv-events", help="first part of each message (default kv-events)")
    add("--block-size", default=128, type=int, metavar="TOKENS", help="tokens a block (default 128)")
    add("--num-blocks", default=1, type=int, metavar="N", help="full blocks (default 1)")
    add(
        "--events",
        default=1,
        type=int,
        metavar="N",
        help="BlockStored events they are split over (default 1)",
    )
    add("--start-token", default=0, type=int, metavar="ID", help="tokens are this, this + 1, … (default 0)")
    add(
        "--interval",
        default=0.5,
        type=duration,
        metavar="TIME",
        help="time between messages (default 500ms)",
    )
    add("--omit-token-ids", nargs="?", const=True, default=False, type=_boolean,
        help="send null instead of token ids: nothing may be indexed")  # fmt: skip
    return result


async def publish_for_ever(endpoint: str, topic: str, settings: FakeSettings) -> None:
    """Publish the message at each interval, numbered from 0, until SIGINT or SIGTERM."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    with zmq.Context() as context, context.socket(zmq.PUB) as socket:
        socket.linger = 0
        try:
            socket.bind(endpoint)
        except zmq.ZMQError as error:
            raise RejectedError(f"cannot bind {endpoint}: {error}; change --bind") from None
        sys.stdout.write(expectation(settings) + "\n")
        sys.stdout.flush()
        message = payload(settings)
        sequence = 0
        while not stop.is_set():
            socket.send_multipart([topic.encode(), sequence.to_bytes(8, "big"), message], zmq.NOBLOCK)
            sequence += 1
            try:
                await asyncio.wait_for(stop.wait(), settings.interval_s)
            except TimeoutError:
                continue


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Entry point: exit code 0 after a signal, 1 for rejected settings, 2 for unreadable ones."""
    given = parser().parse_args(arguments)
    try:
        settings = FakeSettings(
            block_size=given.block_size,
            num_blocks=given.num_blocks,
            events=given.events,
            start_token=given.start_token,
            interval_s=given.interval,
            omit_token_ids=given.omit_token_ids,
        )
        asyncio.run(publish_for_ever(given.bind, given.topic, settings))
    except RejectedError as error:
        sys.stderr.write(f"kvevent-sim-engine --fake: {error}\n")
        sys.exit(1)
    sys.exit(0)


def duration(text: str) -> float:
    """Seconds of 500ms, 2s or 1m."""
    match = re.fullmatch(r"(-?\d+(?:\.\d+)?)(ms|s|m)", text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration; write 500ms, 2s or 1m")
    return float(match[1]) * _SECONDS[match[2]]


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return text == "true"


if __name__ == "__main__":
    main()
