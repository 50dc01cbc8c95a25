"""Whether what an object says has reached all live routers: its condition `Propagated`.

Once it has, it stays so for this generation of the object: a router that starts later reads everything
before it becomes ready.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from inferencecache.core.kube.conditions import Verdict, conditions_of
from inferencecache.core.kube.kinds import ObjectKey
from inferencecache.schemas.members import RouterMember

PROPAGATED: Final = "Propagated"
ACKNOWLEDGED: Final = "Acknowledged"
POLL_S: Final = 0.25
"""How soon to look again whether routers have read what was written, at first."""
LONGEST_POLL_S: Final = 10.0
_SLOWER: Final = 1.5

HasRead = Callable[[RouterMember, int], bool]
"""Has the router read that revision?"""


class Standing(NamedTuple):
    """What was published of one life and generation of an object.

    `problem` says why nothing is in force for it, with the condition's reason; `revision` is the first one
    that has it as it is.
    """

    uid: str
    generation: int
    revision: int = 0
    reason: str = ""
    problem: str = ""


def runs_set(router: RouterMember, revision: int) -> bool:
    """Has the router accepted the policy set of that revision or a later one?"""
    return router.policy_revision >= revision


def has_read(router: RouterMember, revision: int) -> bool:
    """Has the router read the bucket up to that revision?"""
    return router.intent_revision >= revision


def propagated(
    document: Mapping[str, Any], standing: Standing | None, routers: Sequence[RouterMember], is_read: HasRead
) -> Verdict:
    """The condition of an object as it is stored."""
    metadata = document["metadata"]
    generation = metadata.get("generation") or 0
    if standing is None or (standing.uid, standing.generation) != (metadata.get("uid"), generation):
        return Verdict("False", "Publishing", "this generation was not published yet")
    if standing.problem:
        return Verdict("False", standing.reason, standing.problem)
    before = conditions_of(document.get("status")).get(PROPAGATED)
    if before and before["status"] == "True" and before.get("observedGeneration") == generation:
        return Verdict("True", before["reason"], before["message"])
    if not routers:
        return Verdict("Unknown", "NoRouters", "published; no router is alive that could read it")
    if all(is_read(router, standing.revision) for router in routers):
        return Verdict("True", ACKNOWLEDGED, "every live router has read it")
    return Verdict("False", "AwaitingRouters", "published; not every live router has read it yet")


class Awaiting:
    """How soon to look at objects again that routers have not read: ever later, for as long as nothing
    becomes of it. There may be many objects, and no router for hours.
    """

    def __init__(self) -> None:
        self._waits: dict[ObjectKey, tuple[Standing | None, float]] = {}

    def next_s(self, key: ObjectKey, standing: Standing | None, verdict: Verdict) -> float | None:
        """Seconds; None when the verdict stays as it is until the object is changed."""
        if verdict.reason not in ("AwaitingRouters", "NoRouters", "Publishing"):
            self.forget(key)
            return None
        known, waited_s = self._waits.get(key, (None, 0.0))
        is_same = waited_s > 0 and known == standing
        wait_s = min(waited_s * _SLOWER, LONGEST_POLL_S) if is_same else POLL_S
        self._waits[key] = (standing, wait_s)
        return wait_s

    def forget(self, key: ObjectKey) -> None:
        """The object is gone."""
        self._waits.pop(key, None)
