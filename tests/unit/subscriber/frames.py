"""The recorded engine frames: what the wire carries, and how it reads by the conventions of their chapter."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from inferencecache.kvevent_subscriber.adapters import parse_adapter_names
from inferencecache.kvevent_subscriber.diary import Diary
from inferencecache.kvevent_subscriber.event_path import (
    CloseReplay,
    Effect,
    EventPath,
    OnGap,
    OpenReplay,
    ProcessChanged,
    Tell,
)
from inferencecache.kvevent_subscriber.mapping import MappingSettings
from inferencecache.kvevent_subscriber.reports import Added, Cleared, Evicted, Report, Restarted

FOLDER = Path(__file__).parents[2] / "data" / "engine_frames"
NAMES = [entry["file"] for entry in json.loads((FOLDER / "index.json").read_text())]
DROPPING = ("18_", "31_", "38_")
"""Frames that state what happens to orphans when they are dropped."""
KEEPING = ("38_",)
"""Frames that state what happens to a gap when state is kept as it is."""
OUR_COUNTERS = (
    "messages",
    "events",
    "replays",
    "replayed_messages",
    "replays_timed_out",
    "orphans_chained",
    "orphans_dropped",
    "overflow_dropped",
)
"""Counters the fixtures do not know of."""


def frames(name: str) -> dict[str, Any]:
    """One fixture, by the beginning of its file name."""
    [path] = FOLDER.glob(f"{name.removesuffix('.json')}*.json")
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def parts(message: Mapping[str, Any]) -> list[bytes]:
    """The ZMQ parts of a recorded message."""
    return [bytes.fromhex(part) for part in message["parts_hex"]]


def settings(config: Mapping[str, Any], name: str = "") -> MappingSettings:
    """Mapping settings of a run."""
    adapters = config.get("lora_adapter_names", {})
    default = "drop" if name.startswith(DROPPING) else "hold"
    return MappingSettings(
        unknown_parent=config.get("unknown_parent", default),
        ignore_block_removed=config.get("ignore_block_removed", False),
        lora_adapter_names=parse_adapter_names(",".join(f"{id_}={to}" for id_, to in adapters.items())),
    )


class Listener:
    """An event path with everything that came out of it."""

    def __init__(
        self,
        mapping: MappingSettings | None = None,
        *,
        lanes: int = 1,
        on_gap: OnGap = "mark",
        replays: bool = False,
    ) -> None:
        self.diary = Diary()
        self.path = EventPath(
            mapping or MappingSettings(), self.diary, lanes=lanes, on_gap=on_gap, replays=replays
        )
        self.reports: list[dict[str, Any]] = []
        self.raw: list[Report] = []
        self.requests: list[tuple[int, int]] = []
        self.closed = 0
        self.changes: list[str] = []
        self.now = 0.0

    def hear(self, *message: bytes, lane: int = 0) -> None:
        """A live message; the clock shows the time that its batch carries, so that reports show it."""
        self.take(self.path.message(lane, message, self.now))

    def take(self, effects: Iterable[Effect]) -> None:
        """Note effects."""
        for effect in effects:
            match effect:
                case Tell(reports):
                    self.raw += reports
                    for report in reports:
                        self.reports += flat(report)
                case OpenReplay(lane, first):
                    self.requests.append((lane, first))
                case CloseReplay():
                    self.closed += 1
                case ProcessChanged(_, reason):
                    self.changes.append(reason)

    def take_reports(self) -> list[dict[str, Any]]:
        """The reports since the last call."""
        taken, self.reports = self.reports, []
        return taken

    def counters(self) -> dict[str, int]:
        """The counters that the fixtures state, zeros left out."""
        names = {name for (name, _), amount in self.diary.counters.items() if amount}
        return {name: self.diary.total(name) for name in sorted(names - set(OUR_COUNTERS))}


def flat(report: Report) -> list[dict[str, Any]]:
    """A report as the fixtures write it, without its time; beginning anew reads as a clear."""
    match report:
        case Added(adapter, tier, keys, counts, downgrade):
            added = [
                {
                    "op": "add",
                    "prefix_hash": key.hex(),
                    "token_count": count,
                    "adapter_id": adapter,
                    "tier": f"T{tier}",
                }
                for key, count in zip(keys, counts, strict=True)
            ]
            return [entry | {"own_update": True} for entry in added] if downgrade else added
        case Evicted(adapter, keys):
            return [{"op": "evict", "prefix_hash": key.hex(), "adapter_id": adapter} for key in keys]
        case Cleared() | Restarted():
            return [{"op": "clear"}]
        case _:
            return []
