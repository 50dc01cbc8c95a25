"""Do routers agree? At one delta of a log epoch every view has one digest, whoever holds it.

Routers say each second in `IC_MEMBERS` where their views stand; what two of them say of the same delta
is compared.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final, NamedTuple

import msgspec

from inferencecache.core.log import Bucket, Entry, Gone, Log
from inferencecache.core.log.subjects import MEMBERS
from inferencecache.core.service import NatsSettings
from inferencecache.schemas.digests import DigestText, digest_number
from inferencecache.schemas.ids import LogEpoch
from inferencecache.schemas.members import RouterMember
from inferencecache.schemas.unreadable import UNREADABLE

KEPT: Final = 1000


class Disagreement(NamedTuple):
    """Two routers said different digests of one delta of a partition."""

    partition: str
    delta: int
    routers: tuple[str, str]


class Agreement:
    """Counts comparisons of the views that routers answer from. Those without a digest, and empty ones,
    whose digest is 0, prove nothing.
    """

    def __init__(self) -> None:
        self.compared = 0
        self.different = 0
        self.disagreements: deque[Disagreement] = deque(maxlen=KEPT)
        self._said: OrderedDict[tuple[str, LogEpoch, int], tuple[str, DigestText]] = OrderedDict()

    def hear(self, router: RouterMember) -> None:
        """Take into account what one router says of its views."""
        for partition, view in router.served.items():
            if view.digest is None or digest_number(view.digest) == 0:
                continue
            where = (partition, view.log_epoch, view.delta)
            other, digest = self._said.setdefault(where, (router.id, view.digest))
            if other != router.id:
                self.compared += 1
                if digest != view.digest:
                    self.different += 1
                    self.disagreements.append(Disagreement(partition, view.delta, (other, router.id)))
        while len(self._said) > KEPT:
            self._said.popitem(last=False)


async def watch_agreement(nats_url: str, agreement: Agreement) -> None:
    """Listen to routers until cancelled."""

    def changed(change: Entry | Gone) -> None:
        if isinstance(change, Entry):
            try:
                agreement.hear(msgspec.json.decode(change.value, type=RouterMember))
            except UNREADABLE:
                agreement.different += 1

    log = await Log.connect(NatsSettings(nats_url, insecure=True), name="inferencecache up")
    try:
        await Bucket(log, MEMBERS).watch(changed, keys="router.>").run()
    finally:
        await log.close()
