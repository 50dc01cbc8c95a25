"""The fake engine as a process; what it sends is decided in `fake`."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Sequence
from typing import Final, NoReturn

import zmq
from aiohttp import web

from inferencecache.simengine.fake import FakeSettings, RejectedError, expectation, messages, payload
from inferencecache.simengine.publisher import EventSockets, Faults
from inferencecache.simengine.settings import address, boolean, duration

METRICS: Final = {
    "vllm": ("vllm:num_requests_running", "vllm:num_requests_waiting"),
    "sglang": ("sglang:num_running_reqs", "sglang:num_queue_reqs"),
}


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
    add("--omit-token-ids", nargs="?", const=True, default=False, type=boolean,
        help="send null instead of token ids: nothing may be indexed")  # fmt: skip
    add("--encoding", default="tuple", choices=("tuple", "map"),
        help="how an event is written (default tuple)")  # fmt: skip
    add("--hash-kind", default="int", choices=("int", "bytes"),
        help="block hashes as numbers or as 32 bytes (default int)")  # fmt: skip
    add("--ts", default="zero", choices=("zero", "now"), help="the time of every batch (default zero)")
    add("--lora-id", type=int, metavar="N", help="number of the blocks' adapter (default none)")
    add("--lora-name", metavar="NAME", help="name of the blocks' adapter (default none)")
    add("--medium", metavar="NAME", help="where the blocks are, as in CPU (default not said)")
    add("--replay-bind", default="", metavar="ENDPOINT", help="ROUTER socket for replays (default none)")
    add("--replay-topic", default=True, type=boolean, metavar="true|false",
        help="whether replays carry the topic (default true)")  # fmt: skip
    add("--evict-after", default=0, type=int, metavar="N",
        help="after N messages remove the blocks instead; 0: never (default 0)")  # fmt: skip
    add("--clear-every", default=0, type=int, metavar="N",
        help="each Nth message clears everything; 0: none (default 0)")  # fmt: skip
    add("--skip-sequence", default=0, type=int, metavar="N",
        help="after each N messages skip a number; 0: never (default 0)")  # fmt: skip
    add("--restart-every", default=0, type=int, metavar="N",
        help="after each N messages number from 0 again; 0: never (default 0)")  # fmt: skip
    add("--count", default=0, type=int, metavar="N", help="end after N messages; 0: never (default 0)")
    add("--metrics-bind", type=address, metavar="HOST:PORT",
        help="serve a metrics page of an idle engine (default none)")  # fmt: skip
    add("--metrics-profile", default="vllm", choices=("vllm", "sglang"),
        help="whose names it has (default vllm)")  # fmt: skip
    return result


async def run(given: argparse.Namespace, settings: FakeSettings) -> None:
    """Publish until the messages are over, or SIGINT or SIGTERM. Raises `RejectedError`."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        sockets = EventSockets(
            given.bind,
            given.replay_bind,
            topic=given.topic,
            replay_topic=given.replay_topic,
            faults=Faults(burns_every=given.skip_sequence),
        )
    except zmq.ZMQError as error:
        raise RejectedError(f"cannot bind: {error}; change --bind or --replay-bind") from None
    page = await _serve_page(given)
    sockets.start()
    sys.stdout.write(expectation(settings) + "\n")
    sys.stdout.flush()
    try:
        for message in messages(settings):
            if message.restarts:
                sockets.forget()
            sockets.send(payload(settings, message.kind, time.time() if given.ts == "now" else 0.0))
            if await _ends(stop, settings.interval_s):
                break
    finally:
        await sockets.close()
        await page.cleanup()


async def _ends(stop: asyncio.Event, within_s: float) -> bool:
    try:
        return await asyncio.wait_for(stop.wait(), within_s)
    except TimeoutError:
        return False


async def _serve_page(given: argparse.Namespace) -> web.ServerRunner:
    text = "".join(f"# TYPE {name} gauge\n{name} 0\n" for name in METRICS[given.metrics_profile])

    async def page(request: web.BaseRequest) -> web.Response:
        return web.Response(text=text)

    runner = web.ServerRunner(web.Server(page))
    await runner.setup()
    if given.metrics_bind is not None:
        try:
            await web.TCPSite(runner, *given.metrics_bind).start()
        except OSError as error:
            raise RejectedError(f"cannot listen: {error}; change --metrics-bind") from None
    return runner


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Entry point: exit code 0 at the end, 1 for rejected settings, 2 for unreadable ones [SUB-201]."""
    given = parser().parse_args(arguments)
    try:
        settings = FakeSettings(
            block_size=given.block_size,
            num_blocks=given.num_blocks,
            events=given.events,
            start_token=given.start_token,
            interval_s=given.interval,
            omit_token_ids=given.omit_token_ids,
            encoding=given.encoding,
            hash_kind=given.hash_kind,
            lora_id=given.lora_id,
            lora_name=given.lora_name,
            medium=given.medium,
            evict_after=given.evict_after,
            clear_every=given.clear_every,
            restart_every=given.restart_every,
            count=given.count,
        )
        asyncio.run(run(given, settings))
    except RejectedError as error:
        sys.stderr.write(f"kvevent-sim-engine --fake: {error}\n")
        sys.exit(1)
    sys.exit(0)
