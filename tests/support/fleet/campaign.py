"""A fleet under load and chaos, and in the end what must hold after any fault."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.fleet.asking import Asking, answering
from tests.support.fleet.chaos import Chaos, Mix
from tests.support.fleet.checks import answers_equal_log, index_equals_engines, views_equal_log
from tests.support.fleet.load import Load, under
from tests.support.fleet.processes import BLOCK_SIZE, Fleet
from tests.support.fleet.witness import Witness

FLAGS: Final = {
    "engine": ("--buffer-steps=1000000",),  # it can replay all that it ever sent
    # NATS is often away for longer than the outbox lasts, and a busy machine is no silent engine.
    "sidecar": ("--outbox-max=32", "--replay-timeout=30s"),
}
PROMPT: Final = tuple(range(2, 2 + 8 * BLOCK_SIZE))
BEARABLE: Final = {"UNAVAILABLE", "DEADLINE_EXCEEDED"}
"""What a lookup may end with: its router was killed or stopped."""


class Outcome(NamedTuple):
    """What engines and routers have answered, and what was right in the end, `settled_s` after the last
    fault: holds in the index, views that routers told of, and lookups that found something.
    """

    faults: Counter[str]
    answered: int
    lookups: int
    holds: int
    compared: int
    matched: int
    settled_s: float

    def __str__(self) -> str:
        faults = ", ".join(f"{kind} {count}" for kind, count in sorted(self.faults.items()))
        return (
            f"{self.answered} answers of engines and {self.lookups} of routers; {faults}; right are "
            f"{self.holds} holds, {self.compared} views, {self.matched} matches, {self.settled_s:.1f} s later"
        )


class ChaosFoundError(AssertionError):
    """Something does not hold in the end; the message ends with what happened."""


async def unleash(
    folder: Path,
    *,
    seed: int,
    seconds: float,
    mix: Mix,
    engines: int,
    indexers: int = 2,
    clients: int = 12,
    say: Callable[[str], None] | None = None,
) -> Outcome:
    """Chaos for so long, then settling and checks. Raises ChaosFoundError."""
    fleet = Fleet(folder, engines=engines, indexers=indexers, flags=FLAGS)
    async with fleet, Witness(fleet.nats) as witness:
        chaos = Chaos(seed, fleet, witness, mix, say)
        load = Load(seed, fleet.engines, fleet.http, clients=clients)
        asking = Asking(fleet.routers, PROMPT, fleet.engines[0].replica)
        async with under(load), answering(asking):
            await chaos.run(seconds)
        try:
            await fleet.all_ready()
            ended_at = time.monotonic()
            truth = await index_equals_engines(fleet, witness)
            settled_s = time.monotonic() - ended_at
            compared = await views_equal_log(fleet, witness, ever=False)
            matched = await answers_equal_log(fleet, witness, load.recent)
            assert {failure.code for failure in asking.failures} <= BEARABLE
        except AssertionError as error:
            report = (f"seed {seed}, logs in {folder / 'logs'}", *chaos.log, str(error))
            raise ChaosFoundError("\n".join(report)) from None
    holds = sum(map(len, truth.values()))
    return Outcome(chaos.counts, load.answered, len(asking.answers), holds, compared, matched, settled_s)
