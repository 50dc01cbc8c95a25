"""Command line of the simulated engine."""

from __future__ import annotations

import argparse
import math
import re
from typing import Final

_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0}

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
    add("--http-bind-address", default=":8000", metavar="HOST:PORT", type=address,
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
    add("--engine", default="vllm", choices=("vllm", "sglang"),
        help="whose events and metrics it has (default vllm)")  # fmt: skip
    add("--event-encoding", default="map", choices=("map", "tuple"),
        help="map: as vLLM since 0.24 and SGLang since 0.5.20; tuple: as before (default map)")  # fmt: skip
    add("--hash-kind", default="int", choices=("int", "bytes"),
        help="block hashes as integers or, of vLLM, as all their bytes (default int)")  # fmt: skip
    add("--lora-adapters", default=(), type=_names, metavar="NAMES",
        help="LoRA adapters, with commas; a request names one in the place of the model")  # fmt: skip
    add("--host-blocks", default=0, type=_count, metavar="N",
        help="size of a second tier in host memory, in blocks; 0: none (default 0)")  # fmt: skip
    add("--host-medium", default="", metavar="NAME",
        help="what events call that tier (default CPU, of SGLang CPU_PINNED)")  # fmt: skip
    add("--host-tokens", default="false", choices=("true", "false"),
        help="whether vLLM tells the tokens of copies on the host; SGLang does (default false)")  # fmt: skip
    add("--replay-topic", default="true", choices=("true", "false"),
        help="whether replays carry the topic, as since vLLM 0.26, SGLang 0.5.22 (default true)")  # fmt: skip
    faults = result.add_argument_group("faults", "What can go wrong on the way of events, on purpose.")
    add_fault = faults.add_argument
    add_fault("--skip-sequence", default=0, type=_count, metavar="N",
        help="after each N messages take a number and never send it; 0: never (default 0)")  # fmt: skip
    add_fault("--first-sequence", default=0, type=_count, metavar="N",
        help="number of the first message, which engines give 0 (default 0)")  # fmt: skip
    add_fault("--lose-live", default=0, type=_count, metavar="N",
        help="each Nth message is not sent live, but can be replayed; 0: none (default 0)")  # fmt: skip
    add_fault("--replay-delay", default=0.0, type=_pause, metavar="TIME",
        help="how late replay requests are answered (default 0s)")  # fmt: skip
    add_fault("--replay-cut", default=0, type=_count, metavar="N",
        help="replays stop after N messages, without their end; 0: none does (default 0)")  # fmt: skip
    add_fault("--restart-every", default=0.0, type=_pause, metavar="TIME",
        help="crash and start again with an empty cache; 0s: never (default 0s)")  # fmt: skip
    add("--hash-seed", default="", metavar="TEXT",
        help="seed of the block hashes; empty: another one in each process (default empty)")  # fmt: skip
    return result


def duration(text: str) -> float:
    """Seconds of 500ms, 2s or 1m."""
    match = re.fullmatch(r"(-?\d+(?:\.\d+)?)(ms|s|m)", text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration; write 500ms, 2s or 1m")
    seconds = float(match[1]) * _SECONDS[match[2]]
    if not math.isfinite(seconds):
        raise argparse.ArgumentTypeError("the duration has no end; write 500ms, 2s or 1m")
    return seconds


def boolean(text: str) -> bool:
    """Exactly true or false."""
    if text not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return text == "true"


def address(text: str) -> tuple[str, int]:
    """Host and port of HOST:PORT or :PORT."""
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no address; write HOST:PORT or :PORT")
    return host or "0.0.0.0", int(port)  # noqa: S104 - no host means every address, as elsewhere


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return value


def _pause(text: str) -> float:
    seconds = duration(text)
    if seconds < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return seconds


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (name.strip() for name in text.split(","))))


def _positive_int(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return value
