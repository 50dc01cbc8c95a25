"""Short sentences for states and answers, so that a worked case reads as the rules print it.

A state is a list of reports parted by `;`. Each names a replica, what it holds and, if need be, how:

    r1{p:80, q:40}                exact keys with their token counts
    r1[b1,b2]x64   r1[b1..b4]x64  a chain of blocks, 64 tokens each
    r1                            nothing, for statistics alone
    … age=60 tier=2 adapter=a scheme=s model=m tenant=t      seconds before now, and the key's parts
    … hit=0.8 pressure=0.1        statistics, as old as `age`

A hint of an answer is `r1 26.667` with, if the case says so, `matched=80 prob=1 tier=1`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate

import msgspec
import pytest

from inferencecache.schemas.policy import ResolvedPolicy
from inferencecache.schemas.records import AnyRecord, Stats
from tests.oracle.logs import LogWriter, stored
from tests.oracle.routing import Answer, Hint, Question

_REPORT = re.compile(
    r"(?P<replica>[^\s{\[]+)"
    r"(\{(?P<keys>[^}]*)\})?"
    r"(\[(?P<chain>[^\]]*)\]x(?P<tokens>-?\d+))?"
    r"(?P<options>(\s+[a-z]+=\S*)*)"
)


class Report(msgspec.Struct):
    """One report of a replica, `age_s` before now."""

    replica: str
    entries: list[tuple[bytes, int]]
    tenant: str = "t"
    model: str = "m"
    scheme: str = "vllm"
    adapter: str = ""
    tier: int = 0
    age_s: float = 0.0
    hit: float | None = None
    pressure: float | None = None


def reports(state: str) -> Iterator[Report]:
    """Read a state."""
    for part in filter(None, (part.strip() for part in state.split(";"))):
        match = _REPORT.fullmatch(part)
        if match is None:
            raise ValueError(f"not a report: {part!r}")
        entries = []
        for item in filter(None, (match["keys"] or "").split(",")):
            name, _, count = item.strip().rpartition(":")
            entries.append((name.encode(), int(count)))
        if match["chain"]:
            chain = names(match["chain"])
            entries += zip(chain, accumulate([int(match["tokens"])] * len(chain)), strict=True)
        options = dict(item.split("=", 1) for item in match["options"].split())
        report = Report(match["replica"], entries)
        for name, text in options.items():
            if name in ("age", "hit", "pressure"):
                setattr(report, {"age": "age_s"}.get(name, name), float(text))
            else:
                setattr(report, name, int(text) if name == "tier" else text)
        yield report


def write(log: LogWriter, state: str) -> None:
    """Append the reports of a state, as seen at the log's present moment."""
    for report in reports(state):
        seen_us = log.stamp_us - round(report.age_s * 1_000_000)
        records: list[AnyRecord] = [
            stored(
                [hash_],
                [count],
                scheme=report.scheme,
                adapter=report.adapter,
                tier=report.tier,
                timestamp_us=seen_us,
            )
            for hash_, count in report.entries
        ]
        if report.hit is not None or report.pressure is not None:
            stats = Stats(hit_rate=report.hit or 0.0, pressure=report.pressure or 0.0, timestamp_us=seen_us)
            records.append(stats)
        log.report(report.replica, *records, tenant=report.tenant, model=report.model)


def names(text: str) -> tuple[bytes, ...]:
    """`b1,b2` or `b1..b4`, as hashes."""
    span = re.fullmatch(r"(\D+)(\d+)\.\.\1(\d+)", text)
    if span is not None:
        return tuple(f"{span[1]}{number}".encode() for number in range(int(span[2]), int(span[3]) + 1))
    return tuple(name.strip().encode() for name in text.split(",") if name.strip())


def exact(hash_: str, tokens: int = 0, **more: object) -> Question:
    """An exact lookup; `tokens` is the request's `prefix_token_count`."""
    return msgspec.structs.replace(Question(prefix_hash=hash_.encode(), prefix_token_count=tokens), **more)


def chain(blocks: str, *counts: int, **more: object) -> Question:
    """A chain lookup; a single count is that of every block."""
    hashes = names(blocks)
    each = counts * len(hashes) if len(counts) == 1 else counts
    return msgspec.structs.replace(Question(block_hashes=hashes, block_token_counts=each), **more)


def policy(
    *,
    ttl_s: float = 0,
    floors: tuple[int, float] = (64, 0.1),
    affinity: bool = True,
    prefix_floor: int = 0,
    tenant_hot: bool = True,
    lfu: bool = False,
) -> ResolvedPolicy:
    """A policy of tenant `t` with the values that admission would have filled in.

    `floors` are the minimum of matched tokens and of the best score.
    """
    return ResolvedPolicy(
        namespace="t",
        eviction="lfu" if lfu else "lru",
        eviction_ttl_ms=round(ttl_s * 1000),
        minimum_prefix_tokens=prefix_floor,
        minimum_matched_tokens=floors[0],
        routing_floor_score=floors[1],
        affinity_routing=affinity,
        enable_tenant_hot=tenant_hot,
    )


def assert_answer(answer: Answer, reason: str, *expected: str) -> None:
    """The answer has this reason and these hints in this order; what is not stated may be anything."""
    assert answer.reason == reason, answer
    assert [hint.replica for hint in answer.hints] == [text.split()[0] for text in expected], answer
    for hint, text in zip(answer.hints, expected, strict=True):
        _assert_hint(hint, text)


def _assert_hint(hint: Hint, text: str) -> None:
    _, score, *stated = text.split()
    assert hint.score == pytest.approx(float(score), abs=0.01), (hint, text)
    for item in stated:
        name, _, value = item.partition("=")
        field = {"matched": "matched_tokens", "prob": "hit_prob", "tier": "tier"}[name]
        assert getattr(hint, field) == pytest.approx(float(value), abs=0.001), (hint, text)
