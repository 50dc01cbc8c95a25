"""What happens when, drawn from a seed: work and faults as a list of steps that can be read and left out.

A step stands for itself: it takes effect on whatever is there at its time, and does nothing where there is
nothing for it, so any part of a plan is a plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final, NamedTuple

import msgspec

from inferencecache.core.index.eviction import UNBOUNDED

BEGIN_S: Final = 2.0
"""When work begins; the processes begin at 0."""
TTL_S: Final = 25
"""Longer than any fault, and than an engine is silent; a clock that is off by more must not be believed."""
LETTERS: Final = "abcdefgh"
LIMITED: Final = 1 / 3
"""So many of all plans have a cap or a quota."""


class Step(NamedTuple):
    """`verb` happens to `whom` at `at` seconds; what the numbers mean is the verb's, see `TEXTS`."""

    at: float
    verb: str
    whom: str = ""
    one: float = 0.0
    two: float = 0.0
    three: float = 0.0

    def __str__(self) -> str:
        text = TEXTS[self.verb].format(whom=self.whom, one=self.one, two=self.two, three=self.three)
        return f"{self.at:7.3f} s  {text}"


TEXTS: Final = {
    "store": "the engines of {whom} cache {two:.0f} blocks of prompt {one:.0f}",
    "evict": "the engines of {whom} evict a block (choice {one:.0f})",
    "clear": "the engines of {whom} clear their caches",
    "lose events": "the next {one:.0f} messages of {whom}'s engines do not reach their sidecars",
    "restart engine": "the engines of {whom} restart, down for {one:.2f} s, counting from {two:.0f}",
    "report": "a gRPC producer reports a block of {whom} by any router (choice {one:.0f})",
    "kill": "{whom} is killed (SIGKILL) and starts {one:.2f} s later; what it sent is up to {two:.2f} s late",
    "stop": "{whom} is stopped (SIGTERM) and starts {one:.2f} s later",
    "pause": "{whom} stands still (SIGSTOP) for {one:.2f} s",
    "begin": "{whom} is added",
    "second sidecar": "another engine with a sidecar runs as {whom} too",
    "delete pod": "{whom} is deleted; a pod of that name runs {one:.2f} s later (0: never); the controller "
    "says so after {two:.2f} s and again {three:.2f} s later",
    "stall": "nothing passes between {whom} and the server for {one:.2f} s",
    "mute": "{whom} gets no acknowledgements for {one:.2f} s",
    "reset": "the connection of {whom} breaks",
    "reset all": "all connections to the server break",
    "pause server": "the server stands still for {one:.2f} s",
    "restart server": "the server is killed, down for {one:.2f} s",
    "keep a copy": "a copy of the server's storage is made",
    "roll back": "the server is killed, down for {one:.2f} s, and starts with the copy of its storage",
    "wipe": "the server is killed, down for {one:.2f} s, and starts with empty storage",
    "lose tails": "the server loses power, down for {one:.2f} s; what was stored within {two:.3f} s is gone "
    "(streams by choice {three:.0f})",
    "delete stream": "somebody deletes a stream (choice {one:.0f})",
    "cut log": "the log reaches its limit: the oldest {one:.0%} of it go",
    "cut deltas": "the deltas reach their limit: the oldest {one:.0%} of them go",
    "corrupt": "a snapshot is damaged (which {one:.0f}, how {two:.0f})",
    "full": "the snapshot store is full for {one:.2f} s",
    "policy": "the policies are written anew",
    "quota": "the quota is set to {one:.0f} keys",
    "delete counts": "somebody deletes the bucket of counts and of how partitions share",
    "change layout": "the layout is set to {one:.0f} partitions, with {two:.0f} lanes",
    "prune layout": "older generations of the layout are pruned",
    "skew": "the clock of {whom} is {one:+.0f} s off from its next start on",
    "skew server": "the server's clock is {one:+.0f} s off",
}


class Plan(msgspec.Struct):
    """The installation that begins, and what happens to it."""

    seed: int
    partitions: int
    indexers: int
    routers: int
    pods: int
    replays: int
    outbox_max: int
    ttl_s: int
    """Of every hold; 0 is the default, which is longer than any plan."""
    steps: list[Step]
    lanes: int = 1
    max_entries: int = UNBOUNDED
    """The cap of the whole index."""
    quota: int = UNBOUNDED
    """Of the tenant, at first."""
    lfu: bool = False

    @property
    def is_limited(self) -> bool:
        """May holds be evicted although they are young?"""
        return max(self.max_entries, self.quota) >= 0

    def __str__(self) -> str:
        setting = (
            f"seed {self.seed}: {self.partitions} partitions, {self.indexers} indexers, "
            f"{self.routers} routers, {self.pods} pods; engines replay {self.replays} messages, "
            f"outboxes hold {self.outbox_max} records; "
            + (f"holds live {self.ttl_s} s" if self.ttl_s else "no policy sets a time to live")
        )
        if self.is_limited:
            limits = {"entries": self.max_entries, "keys of the tenant": self.quota}
            setting += f"; {self.lanes} lanes; at most " + ", ".join(
                f"{most} {what}" for what, most in limits.items() if most >= 0
            )
            setting += "; LFU" if self.lfu else ""
        return "\n".join([setting, *map(str, self.steps)])


class _Draw:
    """One plan being drawn."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(f"{seed}/plan")
        self.plan = Plan(
            seed,
            partitions=1 if random.random() < 0.75 else 2,
            indexers=random.choice((2, 2, 2, 3)),
            routers=random.choice((1, 2, 2)),
            pods=random.choice((1, 2, 2, 3)),
            replays=random.choice((0, 5, 1000, 1000)),
            outbox_max=random.choice((3, 64)),
            ttl_s=random.choice((0, 0, TTL_S)),
            steps=[],
        )
        self.indexers = [f"indexer {each}" for each in LETTERS[: self.plan.indexers]]
        self.routers = [f"router {each}" for each in LETTERS[: self.plan.routers]]
        self.pods = [f"pod {each}" for each in LETTERS[: self.plan.pods]]
        self.end_s = BEGIN_S + random.choice((3.0, 6.0, 10.0))

    def at(self) -> float:
        return round(self.random.uniform(BEGIN_S, self.end_s), 3)

    def time(self, most: float) -> float:
        """Short times are as likely as long ones."""
        return float(round(most ** self.random.random() * self.random.random(), 3))

    def add(self, verb: str, whom: str = "", one: float = 0.0, two: float = 0.0, three: float = 0.0) -> None:
        self.plan.steps.append(Step(self.at(), verb, whom, one, two, three))

    def anybody(self) -> str:
        return self.random.choice([*self.indexers, *self.routers, *self.pods])

    def work(self) -> None:
        random = self.random
        for _ in range(random.randint(5, 40)):
            pod = random.choice(self.pods)
            kind = random.random()
            if kind < 0.6:
                self.add("store", pod, random.randrange(12), random.randint(1, 4))
            elif kind < 0.85:
                self.add("evict", pod, random.randrange(100))
            elif kind < 0.97:
                self.add("report", random.choice(("grpc-0", "grpc-1", *self.pods)), random.randrange(100))
            else:
                self.add("clear", pod)

    def limits(self) -> None:
        """A cap, a quota or both, small enough to evict, over partitions that are all used."""
        random, plan = self.random, self.plan
        plan.partitions = random.choice((1, 2, 2, 3))
        plan.lanes = random.randint(1, plan.partitions)
        which = random.randrange(3)
        if which != 0:
            plan.max_entries = random.randint(2, 30)
        if which != 1:
            plan.quota = random.randint(2, 20)
            for _ in range(random.randrange(3)):
                self.add("quota", one=random.randint(0, 20))
        plan.lfu = random.random() < 0.3
        if random.random() < 0.2:
            self.add("delete counts")

    def faults(self, among: Sequence[str]) -> None:
        random = self.random
        kinds = random.sample(among, random.randint(1, min(5, len(among))))
        for _ in range(random.randint(1, 8)):
            FAULTS[random.choice(kinds)](self)


def _storage(draw: _Draw) -> None:
    random = draw.random
    match random.randrange(5):
        case 0:
            draw.add("wipe", one=draw.time(4))
        case 1:
            draw.add("keep a copy")
            draw.add("roll back", one=draw.time(4))
        case 2 | 3:
            draw.add("lose tails", one=draw.time(4), two=draw.time(1.0), three=random.randrange(1000))
        case 4:
            draw.add("delete stream", one=random.randrange(1000))


def _delete_pod(draw: _Draw) -> None:
    back_s = draw.time(4) if draw.random.random() < 0.7 else 0.0
    draw.add("delete pod", draw.random.choice(draw.pods), back_s, draw.time(6), draw.time(6))


def _late_begin(draw: _Draw) -> None:
    """The last that a sidecar sent is a `Begin`, and it arrives after the next one's."""
    pod, at, late_s = draw.random.choice(draw.pods), draw.at(), 2.0 + draw.time(3)
    draw.plan.steps += [
        Step(at, "stall", pod, late_s),
        Step(at, "restart engine", pod, 0.1),
        Step(at + 1.5, "kill", pod, 0.1),
    ]


def _layout(draw: _Draw) -> None:
    partitions = draw.random.choice((1, 2, 3))
    if draw.random.random() < 0.8:
        draw.add("change layout", one=partitions, two=draw.random.randint(1, partitions))
    else:
        draw.add("prune layout")


def _clock(draw: _Draw) -> None:
    """One wrong clock: an owner's, or the server's."""
    off_s = draw.random.choice((-3600, -30, -3, 3, 30, 3600))
    wrong = {each.verb + each.whom for each in draw.plan.steps if each.verb.startswith("skew")}
    if draw.random.random() < 0.3:
        if not wrong:
            draw.add("skew server", one=off_s)
    elif "skew server" not in wrong:
        draw.plan.steps.append(Step(0.0, "skew", draw.random.choice(draw.indexers), off_s))


FAULTS: Final[dict[str, Callable[[_Draw], None]]] = {
    "kill indexer": lambda d: d.add("kill", d.random.choice(d.indexers), d.time(5), d.time(4)),
    "stop indexer": lambda d: d.add("stop", d.random.choice(d.indexers), d.time(5)),
    "pause indexer": lambda d: d.add("pause", d.random.choice(d.indexers), d.time(8)),
    "kill router": lambda d: d.add("kill", d.random.choice(d.routers), d.time(3), d.time(1)),
    "pause router": lambda d: d.add("pause", d.random.choice(d.routers), d.time(6)),
    "new router": lambda d: d.add("begin", f"router {d.random.choice('xyz')}"),
    "new indexer": lambda d: d.add("begin", f"indexer {d.random.choice('xyz')}"),
    "kill sidecar": lambda d: d.add("kill", d.random.choice(d.pods), d.time(3), d.time(4)),
    "pause sidecar": lambda d: d.add("pause", d.random.choice(d.pods), d.time(6)),
    "late begin": _late_begin,
    "restart engine": lambda d: d.add(
        "restart engine", d.random.choice(d.pods), d.time(3), d.random.choice((0, 0, 0, 3, 30))
    ),
    "lose events": lambda d: d.add("lose events", d.random.choice(d.pods), d.random.randint(1, 3)),
    "second sidecar": lambda d: d.add("second sidecar", d.random.choice(d.pods)),
    "delete pod": _delete_pod,
    "stall": lambda d: d.add("stall", d.anybody(), d.time(8)),
    "mute": lambda d: d.add("mute", d.anybody(), d.time(8)),
    "reset": lambda d: d.add("reset", d.anybody()),
    "reset all": lambda d: d.add("reset all"),
    "pause server": lambda d: d.add("pause server", one=d.time(5)),
    "restart server": lambda d: d.add("restart server", one=d.time(5)),
    "storage": _storage,
    "cut log": lambda d: d.add("cut log", one=d.random.choice((0.3, 0.9, 1.0))),
    "cut deltas": lambda d: d.add("cut deltas", one=d.random.choice((0.3, 0.9, 1.0))),
    "corrupt": lambda d: d.add("corrupt", one=d.random.randrange(2), two=d.random.randrange(4)),
    "full": lambda d: d.add("full", one=d.time(8)),
    "policy": lambda d: d.add("policy"),
    "layout": _layout,
    "clock": _clock,
}


def draw(seed: int, faults: Sequence[str] = tuple(FAULTS)) -> Plan:
    """The plan of a seed, with faults of some kinds only if they are given."""
    drawn = _Draw(seed)
    drawn.work()
    drawn.faults(faults)
    drawn.random = Random(f"{seed}/limits")
    if drawn.random.random() < LIMITED:
        drawn.limits()
        drawn.work()
    drawn.plan.steps.sort()
    return drawn.plan
