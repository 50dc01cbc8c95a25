"""`kvevent-sim-engine`: run a simulated engine, or with `--fake` the fake publisher."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence

import zmq
from aiohttp import web

from inferencecache.simengine import fake
from inferencecache.simengine.engine import Engine, EngineSettings
from inferencecache.simengine.publisher import EventPublisher
from inferencecache.simengine.server import EngineServer
from inferencecache.simengine.timing import Speed

_EPILOG = """\
Try it:
  kvevent-sim-engine --http-bind-address 127.0.0.1:8000
  curl -s http://127.0.0.1:8000/v1/completions -d '{"prompt": "Once upon a time, ", "max_tokens": 8}'
  curl -s http://127.0.0.1:8000/metrics | grep prefix_cache

The second identical request reports cached tokens: the engine keeps its prompts in blocks of
--block-size tokens until it needs their memory. Text is tokenised into its bytes; "prompt" may be a
list of token ids instead. GET /debug/cache lists the cached blocks, POST /reset_prefix_cache forgets
them. A kvevent-subscriber beside it takes --engine-endpoint tcp://127.0.0.1:5557, --replay-endpoint
tcp://127.0.0.1:5558 and --engine-metrics-url http://127.0.0.1:8000/metrics.

With --fake as first argument it is a publisher without an engine that repeats one message; see
kvevent-sim-engine --fake --help.
"""


def parser() -> argparse.ArgumentParser:
    """Command line of the simulated engine."""
    result = argparse.ArgumentParser(
        prog="kvevent-sim-engine",
        description="A simulated inference engine: a real prefix cache, real KV events, made-up tokens.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_EPILOG,
        allow_abbrev=False,
    )
    add = result.add_argument
    add("--http-bind-address", default=":8000", metavar="HOST:PORT", type=_address,
        help="API, /metrics and /health; :8000 listens on all addresses (default :8000)")  # fmt: skip
    add(
        "--served-model-name",
        default="sim-model",
        metavar="NAME",
        help="model id of the API (default sim-model)",
    )
    add(
        "--num-blocks",
        default=2048,
        type=_positive_int,
        metavar="N",
        help="cache size in blocks (default 2048)",
    )
    add("--block-size", default=16, type=_positive_int, metavar="TOKENS",
        help="tokens a block; must equal the router's --engine-block-size (default 16)")  # fmt: skip
    add("--prefill-tokens-per-second", default=8000.0, type=_positive, metavar="RATE",
        help="how fast uncached prompt tokens are computed, one prompt at a time (default 8000)")  # fmt: skip
    add("--decode-tokens-per-second", default=50.0, type=_positive, metavar="RATE",
        help="how fast each running request generates (default 50)")  # fmt: skip
    add("--time-scale", default=1.0, type=_positive, metavar="FACTOR",
        help="run this many times faster: 10 makes a simulated second last 100 ms (default 1)")  # fmt: skip
    add("--events-endpoint", default="tcp://*:5557", metavar="ENDPOINT",
        help="where KV events are published; empty publishes none (default tcp://*:5557)")  # fmt: skip
    add("--replay-endpoint", default="tcp://*:5558", metavar="ENDPOINT",
        help="where past events are asked for; empty: no replay (default tcp://*:5558)")  # fmt: skip
    add("--topic", default="kv-events", help="first part of each message (default kv-events)")
    add("--buffer-steps", default=10_000, type=_positive_int, metavar="N",
        help="messages kept for replay (default 10000)")  # fmt: skip
    add("--event-encoding", default="map", choices=("map", "tuple"),
        help="map: as vLLM 0.24 and later; tuple: as vLLM 0.22 and 0.23 (default map)")  # fmt: skip
    add("--replay-topic", default="true", choices=("true", "false"),
        help="whether replay answers carry the topic, as from vLLM 0.26 on (default true)")  # fmt: skip
    add("--hash-seed", default="", metavar="TEXT",
        help="seed of the block hashes; empty: another one in each process (default empty)")  # fmt: skip
    return result


async def serve(settings: argparse.Namespace) -> int:
    """Run until SIGINT or SIGTERM. Exit code 1 when a port cannot be bound."""
    try:
        publisher = EventPublisher(
            settings.events_endpoint,
            settings.replay_endpoint if settings.events_endpoint else "",
            topic=settings.topic,
            buffer_steps=settings.buffer_steps,
            encoding=settings.event_encoding,
            replay_topic=settings.replay_topic == "true",
        )
    except zmq.ZMQError as error:
        return _fail(f"cannot bind the event sockets: {error}; change --events-endpoint or --replay-endpoint")
    engine = Engine(
        EngineSettings(
            num_blocks=settings.num_blocks,
            block_size=settings.block_size,
            speed=Speed(
                settings.prefill_tokens_per_second, settings.decode_tokens_per_second, settings.time_scale
            ),
            hash_root=settings.hash_seed.encode() or os.urandom(32),
        ),
        publisher.publish,
    )
    server = EngineServer(engine, settings.served_model_name)
    runner = web.AppRunner(server.application(), access_log=None, shutdown_timeout=2.0)
    await runner.setup()
    host, port = settings.http_bind_address
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        await runner.cleanup()
        await publisher.close()
        return _fail(f"cannot listen: {error}; change --http-bind-address")
    publisher.start()
    addresses = ", ".join(f"http://{address[0]}:{address[1]}" for address in runner.addresses)
    sys.stderr.write(
        f"serving {settings.served_model_name} on {addresses}, "
        f"events on {publisher.endpoint or 'none'}, replay on {publisher.replay_endpoint or 'none'}\n"
    )
    await _signalled()
    await runner.cleanup()
    await publisher.close()
    return 0


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `kvevent-sim-engine`."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["--fake"]:
        fake.main(given[1:])
    settings = parser().parse_args(given)
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(asyncio.run(serve(settings)))


async def _signalled() -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()


def _fail(message: str) -> int:
    sys.stderr.write(f"kvevent-sim-engine: {message}\n")
    return 1


def _address(text: str) -> tuple[str, int]:
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no address; write HOST:PORT or :PORT")
    return host or "0.0.0.0", int(port)  # noqa: S104 - no host means every address, as elsewhere


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def _positive_int(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return value


if __name__ == "__main__":
    main()
