"""`kvevent-sim-engine`: run a simulated engine, or with `--fake` the fake publisher."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

import zmq
from aiohttp import web

from inferencecache.simengine import fake_process
from inferencecache.simengine.engine import Engine, EngineSettings
from inferencecache.simengine.events import AllCleared, Form, UnwritableError
from inferencecache.simengine.metrics import MetricsPage, SglangCollector, VllmCollector
from inferencecache.simengine.publisher import EventPublisher, Faults
from inferencecache.simengine.server import EngineServer
from inferencecache.simengine.settings import parser
from inferencecache.simengine.sglang_form import SglangForm
from inferencecache.simengine.timing import Speed
from inferencecache.simengine.vllm_form import VllmForm


async def serve(settings: argparse.Namespace, crash: Callable[[], NoReturn]) -> int:
    """Run until SIGINT or SIGTERM, or until it is time to crash. Exit code 1 when it cannot be set up."""
    try:
        form = _form(settings)
    except UnwritableError as error:
        return _fail(str(error))
    try:
        publisher = EventPublisher(
            settings.events_endpoint,
            settings.replay_endpoint if settings.events_endpoint else "",
            form=form,
            topic=settings.topic,
            buffer_steps=settings.buffer_steps,
            replay_topic=settings.replay_topic == "true",
            faults=Faults(
                settings.skip_sequence,
                settings.lose_live,
                settings.replay_delay,
                settings.replay_cut,
                settings.first_sequence,
            ),
        )
    except zmq.ZMQError as error:
        return _fail(f"cannot bind the event sockets: {error}; change --events-endpoint or --replay-endpoint")
    engine = Engine(
        EngineSettings(
            num_blocks=settings.num_blocks,
            host_blocks=settings.host_blocks,
            block_size=settings.block_size,
            speed=Speed(
                settings.prefill_tokens_per_second, settings.decode_tokens_per_second, settings.time_scale
            ),
            hash_root=settings.hash_seed.encode() or os.urandom(32),
        ),
        publisher.publish,
    )
    is_sglang = settings.engine == "sglang"
    collector = (SglangCollector if is_sglang else VllmCollector)(engine, settings.served_model_name)
    server = EngineServer(
        engine, settings.served_model_name, form, MetricsPage(collector), settings.lora_adapters
    )
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
    if is_sglang:
        publisher.publish([AllCleared()])  # its tree was built [SUB-224]
    addresses = ", ".join(f"http://{address[0]}:{address[1]}" for address in runner.addresses)
    sys.stderr.write(
        f"serving {settings.served_model_name} on {addresses}, "
        f"events on {publisher.endpoint or 'none'}, replay on {publisher.replay_endpoint or 'none'}\n"
    )
    if not await _signalled(settings.restart_every or None):
        crash()
    await runner.cleanup()
    await publisher.close()
    return 0


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `kvevent-sim-engine`."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["--fake"]:
        fake_process.main(given[1:])
    settings = parser().parse_args(given)
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(asyncio.run(serve(settings, lambda: _start_again(given))))


def _start_again(arguments: Sequence[str]) -> NoReturn:
    """Nothing of this process remains, its sockets included."""
    command = [sys.executable, "-m", "inferencecache.simengine", *arguments]
    os.execv(sys.executable, command)  # noqa: S606 - no shell is wanted


def _form(settings: argparse.Namespace) -> Form:
    medium = {"host_medium": settings.host_medium} if settings.host_medium else {}
    if settings.engine == "vllm":
        return VllmForm(
            settings.block_size,
            encoding=settings.event_encoding,
            hash_kind=settings.hash_kind,
            adapters=settings.lora_adapters,
            describes_host=settings.host_tokens == "true",
            **medium,
        )
    if settings.hash_kind == "bytes":
        raise UnwritableError("SGLang's hashes are integers; use --hash-kind int or --engine vllm")
    return SglangForm(
        settings.block_size, encoding=settings.event_encoding, adapters=settings.lora_adapters, **medium
    )


async def _signalled(within_s: float | None) -> bool:
    """Wait for a signal to end; False when none came in time."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    try:
        await asyncio.wait_for(stop.wait(), within_s)
    except TimeoutError:
        return False
    return True


def _fail(message: str) -> int:
    sys.stderr.write(f"kvevent-sim-engine: {message}\n")
    return 1


if __name__ == "__main__":
    main()
