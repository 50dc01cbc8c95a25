"""How much memory an index takes: the table of docs/sizing.md.

`make bench ARGS=sizing` makes it; `python -m benchmarks.sizing_bench --keys N` measures one index instead.
Each index is filled in a process of its own, which has imported what an indexer imports, and written as a
snapshot, which a router's process then loads; what counts is the most that each of the two processes took.
"""

from __future__ import annotations

import argparse
import importlib
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.index_bench import ADAPTER, SCHEME, Log, fold_all
from inferencecache.core.index.fold import Fold, LogMessage
from inferencecache.core.index.snapshot import encode_snapshot, load_view
from inferencecache.schemas.ids import LogEpoch, ModelId, OwnerId, ReplicaId, TenantId
from inferencecache.schemas.positions import Position
from inferencecache.schemas.records import Batch, Claim, DecodedBatch, Stored
from inferencecache.schemas.senders import ReplicaSender

TABLE: Final = (100_000, 500_000, 1_000_000, 1_500_000)
"""Storage entries of its rows."""
MIB: Final = 1024 * 1024
BLOCK_TOKENS: Final = 16
HEADROOM: Final = 1.2


def at_least(minimum: int) -> Callable[[str], int]:
    """Parser of whole numbers from `minimum` on [OPS-106]."""

    def parse(text: str) -> int:
        value = int(text)
        if value < minimum:
            raise argparse.ArgumentTypeError(f"{value} is too small; the least is {minimum}")
        return value

    return parse


def stored(log: Log, form: argparse.Namespace) -> Iterator[LogMessage]:
    """Every key once by each of its replicas, in batches; keys go round tenants and models."""
    rng = np.random.default_rng(1)
    places = [(tenant, model) for tenant in range(form.tenants) for model in range(form.models)]
    for number, first in enumerate(range(0, form.keys, form.batch)):
        count = min(form.batch, form.keys - first)
        tenant, model = places[number % len(places)]
        record = Stored(
            SCHEME,
            ADAPTER,
            1,
            form.hash_bytes,
            rng.bytes(count * form.hash_bytes),
            (np.arange(1, count + 1) * BLOCK_TOKENS).astype(np.int32).tobytes(),
        )
        for replica in range(form.replicas):
            sender = ReplicaSender(
                TenantId(f"tenant-{tenant}"), ModelId(f"model-{model}"), ReplicaId(f"replica-{replica}"), "g"
            )
            yield LogMessage(log.position(), sender, DecodedBatch(Batch(records=(record,))))


def most_memory() -> int:
    """Bytes that this process has taken at most.

    Not by `getrusage` where there is another way: on Linux that counts the process from which it was started.
    """
    status = Path("/proc/self/status")
    if status.exists():
        [line] = (each for each in status.read_text().splitlines() if each.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measure_indexer(form: argparse.Namespace) -> dict[str, float]:
    """Fill an index whose cap is what it is given, and write it down."""
    importlib.import_module("inferencecache.indexer.serve")
    base = most_memory()
    log, fold = Log(), Fold(form.keys * form.replicas)
    fold_all(fold, [log.owner(Claim(OwnerId("bench"), LogEpoch("bench"))), log.tick()])
    fold_all(fold, stored(log, form))
    with form.snapshot.open("wb") as snapshot:
        snapshot.writelines(encode_snapshot(fold, Position()))
    entries, table = fold.view.entries, fold.view.table.used_bytes
    return {
        "ingested": entries,
        "table_mib": table / MIB,
        "base_mib": base / MIB,
        "peak_mib": most_memory() / MIB,
        "bytes_an_entry": (most_memory() - base) / entries,
    }


def measure_router(form: argparse.Namespace) -> dict[str, float]:
    """Load what the indexer wrote."""
    importlib.import_module("inferencecache.router.serve")
    base = most_memory()
    with form.snapshot.open("rb") as snapshot:
        view = load_view(iter(lambda: snapshot.read(MIB), b""), form.keys * form.replicas)
    return {"loaded": view.entries, "base_mib": base / MIB, "peak_mib": most_memory() / MIB}


def measure(form: argparse.Namespace) -> dict[str, dict[str, float]]:
    """One index, in processes of its own."""
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        for role in ("indexer", "router"):
            command = [sys.executable, "-m", "benchmarks.sizing_bench", "--role", role]
            command += ["--snapshot", str(Path(folder) / "snapshot")]
            for name in ("keys", "replicas", "hash_bytes", "tenants", "models", "batch"):
                command += [f"--{name.replace('_', '-')}", str(getattr(form, name))]
            done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
            figures[role] = json.loads(done.stdout)
    return figures


def print_table(form: argparse.Namespace) -> None:
    """As docs/sizing.md has it."""
    print("| Storage entries | Indexer, most | Router, most | Memory limit of a pod |")
    print("|---|---|---|---|")
    rows = []
    for entries in TABLE:
        form.keys = entries // form.replicas
        figures = measure(form)
        peaks = [figures[role]["peak_mib"] for role in ("indexer", "router")]
        limit = -(-max(peaks) * HEADROOM // 128) * 128
        print(f"| {entries:,} | {peaks[0]:.0f} MiB | {peaks[1]:.0f} MiB | {limit:.0f} MiB |", flush=True)
        rows.append((figures["indexer"]["ingested"], peaks[0]))
    (few, small), (many, large) = rows[0], rows[-1]
    slope = (large - small) * MIB / (many - few)
    print(f"\nindexer: {small - slope * few / MIB:.0f} MiB and {slope:.0f} bytes an entry")


def read_form(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """What to measure; what cannot be measured ends the process with 2."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=at_least(1), help="measure one index of so many distinct keys")
    parser.add_argument("--replicas", type=at_least(1), default=1, help="that hold each key")
    parser.add_argument("--hash-bytes", type=at_least(8), default=8)
    parser.add_argument("--tenants", type=at_least(1), default=1)
    parser.add_argument("--models", type=at_least(1), default=1)
    parser.add_argument("--batch", type=at_least(1), default=64, help="keys a batch")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--role", choices=("indexer", "router"), help=argparse.SUPPRESS)
    parser.add_argument("--snapshot", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main() -> None:
    """Print the figures."""
    form = read_form()
    if form.role is not None:
        print(json.dumps(measure_indexer(form) if form.role == "indexer" else measure_router(form)))
        return
    if form.keys is None:
        print_table(form)
        return
    figures = measure(form)
    if form.json:
        print(json.dumps(figures))
        return
    for role, of_role in figures.items():
        for name, figure in of_role.items():
            print(f"{role:>8} {name:>16} {figure:12.1f}")


if __name__ == "__main__":
    main()
