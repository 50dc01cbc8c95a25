"""The current incarnation of every replica, found by the replica and by the pod it runs in."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping

import msgspec

from inferencecache.schemas.deltas import ReplicaName
from inferencecache.schemas.ids import Incarnation


class Life(msgspec.Struct, array_like=True):
    """What the fold remembers of a replica's current incarnation, beside the row.

    `sequence` is that of the last batch that counted, `begun_at` the log sequence of the `Begin`.
    `gone_us` is set once the pod is deleted: then nothing of this incarnation counts any more.
    """

    incarnation: Incarnation
    begun_at: int
    sequence: int
    pod_uid: str
    engine: str
    gone_us: int | None = None


class Lives(MutableMapping[ReplicaName, Life]):
    """A life's pod does not change."""

    def __init__(self) -> None:
        self._lives: dict[ReplicaName, Life] = {}
        self._of_pods: dict[str, dict[ReplicaName, Life]] = {}

    def of_pod(self, uid: str) -> list[tuple[ReplicaName, Life]]:
        """The replicas that began in a pod, however many other pods there are."""
        return list(self._of_pods.get(uid, {}).items())

    def __getitem__(self, name: ReplicaName) -> Life:
        return self._lives[name]

    def __setitem__(self, name: ReplicaName, life: Life) -> None:
        if name in self._lives:
            self._leave_pod(name)
        self._lives[name] = life
        self._of_pods.setdefault(life.pod_uid, {})[name] = life

    def __delitem__(self, name: ReplicaName) -> None:
        self._leave_pod(name)
        del self._lives[name]

    def __iter__(self) -> Iterator[ReplicaName]:
        return iter(self._lives)

    def __len__(self) -> int:
        return len(self._lives)

    def _leave_pod(self, name: ReplicaName) -> None:
        uid = self._lives[name].pod_uid
        of_pod = self._of_pods[uid]
        del of_pod[name]
        if not of_pod:
            del self._of_pods[uid]
