"""What is done to a fleet on purpose. A fault lasts as long as it is told to: only here a test sleeps."""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

from inferencecache.core.log import Objects
from inferencecache.core.log.jetstream import call, purge_stream, read_message, stream_info
from inferencecache.core.log.objects import _chunk_id
from inferencecache.core.log.subjects import SNAPSHOTS, control_subject
from inferencecache.schemas.records import AnyRecord, Batch, encode_batch
from tests.support.fleet.processes import NATS, Fleet
from tests.support.fleet.witness import PartitionCopy, Witness
from tools import faketime

Role = Literal["o", "c", "r"]


async def lasting(seconds: float) -> None:
    """Leave the fault as it is for a while."""
    await asyncio.sleep(seconds)


@asynccontextmanager
async def stopped(fleet: Fleet, *names: str) -> AsyncIterator[None]:
    """SIGSTOP inside the block: the processes are there, connected, and do nothing."""
    for name in names:
        fleet.signal(name, signal.SIGSTOP)
    try:
        yield
    finally:
        for name in names:
            fleet.signal(name, signal.SIGCONT)


def wrong_clock(hours: int) -> tuple[str, ...]:
    """Environment of a process whose wall clock is off; it measures time as ever."""
    library = faketime.library()
    assert library is not None
    return (f"LD_PRELOAD={library}", f"FAKETIME={hours:+}h", "FAKETIME_DONT_FAKE_MONOTONIC=1")


async def lose_storage(fleet: Fleet) -> None:
    """The server comes back without anything."""
    await fleet.kill(NATS)
    shutil.rmtree(fleet.store)
    await fleet.start(NATS)


async def copy_storage(fleet: Fleet, to: Path) -> None:
    """Keep a copy of what the server has stored."""
    await fleet.kill(NATS)
    shutil.copytree(fleet.store, to)
    await fleet.start(NATS)


async def bring_back_storage(fleet: Fleet, copy: Path) -> None:
    """The server comes back with what it had when the copy was made."""
    await fleet.kill(NATS)
    shutil.rmtree(fleet.store)
    shutil.copytree(copy, fleet.store)
    await fleet.start(NATS)


async def lose_tail(fleet: Fleet, stream: str, *, share: float = 0.2) -> None:
    """The server comes back with a stream whose file ends too early, in the middle of a message."""
    await fleet.kill(NATS)
    [folder] = fleet.store.rglob(f"streams/{stream}/msgs")
    last = max(folder.glob("*.blk"), key=lambda block: int(block.stem))
    with last.open("r+b") as block:
        block.truncate(int(last.stat().st_size * (1 - share)))
    (folder / "index.db").unlink(missing_ok=True)
    await fleet.start(NATS)


async def cut_log(witness: Witness, stream: str, *, below: int) -> None:
    """Remove the messages below a place in the log, as its retention does."""
    await purge_stream(witness.log, stream, below=below)
    assert (await stream_info(witness.log, stream)).state.first_seq == below


async def damage_object(witness: Witness, name: str) -> None:
    """Other bytes in the place of an object's last chunk."""
    stream, subject = f"OBJ_{SNAPSHOTS}", Objects(witness.log, SNAPSHOTS)._chunks(_chunk_id(name))
    stored = await read_message(witness.log, stream, last_of=subject)
    assert stored is not None
    await call(witness.log, f"STREAM.MSG.DELETE.{stream}", {"seq": stored.sequence}, dict[str, object])
    await witness.log.publisher.publish(subject, bytes(byte ^ 0xFF for byte in stored.payload))


async def append(witness: Witness, subject: str, payload: bytes) -> int:
    """Put a message into the log that none of the fleet's processes sends; its place."""
    return (await witness.log.publisher.publish(subject, payload, timeout_s=10)).sequence


async def append_as(witness: Witness, copy: PartitionCopy, role: Role, *records: AnyRecord) -> int:
    """Put records about a partition into the log as an owner, a controller or a router would."""
    subject = control_subject(copy.generation, copy.number, role)
    return await append(witness, subject, encode_batch(Batch(records=records)))
