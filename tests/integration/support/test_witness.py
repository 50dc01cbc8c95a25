"""The witness of fault tests, whose copies of the log others hold on to."""

from __future__ import annotations

import msgspec

from inferencecache.core.log import Bucket, Log, ensure_assets, ensure_layout
from inferencecache.core.log.subjects import LAYOUT, LAYOUT_KEY
from inferencecache.core.service import NatsSettings
from inferencecache.schemas.ids import LogEpoch, OwnerId
from inferencecache.schemas.layout import CurrentLayout, Layout
from inferencecache.schemas.records import Claim
from tests.support.fleet.injector import append_as
from tests.support.fleet.witness import Witness
from tests.support.nats import NatsServer
from tests.support.waiting import eventually

CLAIM = Claim(OwnerId("owner"), LogEpoch("epoch"))


async def test_its_copies_stay_until_the_layout_is_another(nats_server: NatsServer) -> None:
    """The server tells it at the beginning of the watch, and whenever it is put again."""
    settings = NatsSettings(nats_server.url, insecure=True)
    log = await Log.connect(settings, name="test", timeout_s=10)
    laid = await ensure_layout(log, default=Layout(1, 2))
    await ensure_assets(log, laid)
    async with Witness(settings) as witness:
        copies = witness.partitions
        await Bucket(log, LAYOUT).put(LAYOUT_KEY, msgspec.json.encode(laid))
        await append_as(witness, copies[0], "o", CLAIM)
        await eventually(lambda: copies[0].claims, within_s=10)
        assert witness.partitions is copies
        another = CurrentLayout(2, 4, older=(laid.in_force,))
        await Bucket(log, LAYOUT).put(LAYOUT_KEY, msgspec.json.encode(another))
        await eventually(lambda: len(witness.partitions) == 4, within_s=10)
    await log.close()
