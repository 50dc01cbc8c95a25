"""All that is read over NATS, by one connection that only reads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final, TypeVar

import msgspec

from inferencecache.cli.agreement import Agreement
from inferencecache.cli.doctor.facts import (
    AggregateFacts,
    BusFacts,
    Counted,
    LogFacts,
    NotSeen,
    PolicyFacts,
    ProbeAnswer,
    Refused,
    RouterFacts,
    StreamFacts,
    Unreachable,
    Unreadable,
)
from inferencecache.cli.owners import read_owners
from inferencecache.cli.running import in_background
from inferencecache.core.log import (
    ApiError,
    Bucket,
    Entry,
    Gone,
    Log,
    NoAnswerError,
    NoStreamError,
    NotConnectedError,
    jetstream,
    read_layout,
    read_members,
)
from inferencecache.core.log.assets import LayoutUnusableError, declare, drifts, store_of
from inferencecache.core.log.subjects import (
    AGGREGATE,
    MEMBERS,
    POLICY,
    POLICY_KEY,
    PROBE_SUBJECT,
    partition_key,
)
from inferencecache.core.protocol.membership import SETTLE_S
from inferencecache.core.service import NatsSettings
from inferencecache.schemas.aggregate import PartitionAggregate
from inferencecache.schemas.layout import CurrentLayout
from inferencecache.schemas.members import IndexerMember, RouterMember
from inferencecache.schemas.requests import ProbeResult
from inferencecache.schemas.unreadable import UNREADABLE

CONNECT_S: Final = 5.0
ANSWER_S: Final = 5.0
_REFUSALS: Final = ("permissions violation", "authorization violation", "authentication")
_AT_ONCE: Final = 32

_Seen = TypeVar("_Seen")


async def collect_bus(nats: NatsSettings, *, copies: int, wanted_policy: bytes | None) -> BusFacts:
    """`copies` is what streams should have, `wanted_policy` what the cluster's objects make."""
    try:
        log = await Log.connect(nats, name="inferencecache doctor", timeout_s=CONNECT_S)
    except NotConnectedError as error:
        return unseen(nats, Refused(str(error)) if _is_refusal(error.reason) else Unreachable(str(error)))
    try:
        return await _Asking(log, nats).all(copies, wanted_policy)
    finally:
        await log.close()


def unseen(nats: NatsSettings, why: NotSeen) -> BusFacts:
    """Nothing was seen."""
    return BusFacts(nats.address, AggregateFacts(why), why, why, why, why)


def _is_refusal(text: str) -> bool:
    return any(refusal in text.lower() for refusal in _REFUSALS)


class _Asking:
    def __init__(self, log: Log, nats: NatsSettings) -> None:
        self._log = log
        self._nats = nats

    async def all(self, copies: int, wanted_policy: bytes | None) -> BusFacts:
        layout, routers = await asyncio.gather(self._seen(self._layout()), self._seen(self._routers()))
        if not isinstance(layout, CurrentLayout):
            probe = await self._seen(self._probe())
            return unseen(self._nats, layout)._replace(probe=probe, routers=routers)
        live = routers.routers if isinstance(routers, RouterFacts) else ()
        partitions, policy, probe, streams = await asyncio.gather(
            self._seen(self._counts(layout)),
            self._seen(self._policy(wanted_policy, live)),
            self._seen(self._probe()),
            self._seen(self._streams(layout, copies)),
        )
        counts = AggregateFacts(partitions, self._nats.has_credentials)
        return BusFacts(self._nats.address, counts, policy, probe, streams, routers)

    async def _seen(self, asking: Awaitable[_Seen]) -> _Seen | NotSeen:
        """What was asked, or why it cannot be told."""
        try:
            return await asking
        except NoStreamError as error:
            return Unreachable(str(error))
        except NoAnswerError as error:
            said = self._log.last_error
            return Refused(said) if _is_refusal(said) else Unreachable(str(error))
        except ApiError as error:
            return Unreadable(str(error))
        except (*UNREADABLE, LayoutUnusableError) as error:
            return Unreadable(str(error))

    async def _layout(self) -> CurrentLayout:
        layout = await read_layout(self._log)
        if layout is None:
            raise NoStreamError("IC_LAYOUT", 404, 0, "there is no layout: no indexer has ever run here")
        return layout

    async def _counts(self, layout: CurrentLayout) -> dict[str, Counted | None]:
        stream = f"KV_{AGGREGATE}"
        now_ns = (await jetstream.stream_info(self._log, stream, timeout_s=ANSWER_S)).asked_ns

        async def counted(key: str) -> Counted | None:
            stored = await jetstream.read_message(self._log, stream, last_of=f"$KV.{AGGREGATE}.{key}")
            if stored is None:
                return None
            age_s = (now_ns - stored.time_ns) / 1e9
            try:
                msgspec.json.decode(stored.payload, type=PartitionAggregate)
            except UNREADABLE as error:
                return Counted(age_s, str(error))
            return Counted(age_s)

        keys = _keys(layout)
        return dict(zip(keys, await asyncio.gather(*map(counted, keys)), strict=True))

    async def _policy(self, wanted: bytes | None, routers: tuple[RouterMember, ...]) -> PolicyFacts:
        entry = await Bucket(self._log, POLICY).get(POLICY_KEY)
        if entry is None:
            return PolicyFacts(None, 0, wanted, routers)
        return PolicyFacts(entry.value, entry.revision, wanted, routers)

    async def _probe(self) -> ProbeAnswer:
        """An empty request probes nothing."""
        message = await self._log.request(PROBE_SUBJECT, b"", timeout_s=ANSWER_S)
        return ProbeAnswer(msgspec.json.decode(message.data, type=ProbeResult).router)

    async def _streams(self, layout: CurrentLayout, copies: int) -> LogFacts:
        account = await jetstream.account_info(self._log)
        declared = declare(layout, store_of(account) // copies, replicas=copies)
        limit = asyncio.Semaphore(_AT_ONCE)

        async def stream(config: dict[str, object]) -> StreamFacts:
            name = str(config["name"])
            async with limit:
                try:
                    actual = (await jetstream.stream_info(self._log, name, timeout_s=ANSWER_S)).config
                except NoStreamError:
                    return StreamFacts(name, is_there=False)
            return StreamFacts(
                name,
                is_there=True,
                max_age_s=actual.get("max_age", 0) / 1e9,
                copies=actual.get("num_replicas", 1),
                reserved_bytes=actual.get("max_bytes", -1),
                drifts=tuple(drifts(config, actual)),
            )

        indexers = await read_members(self._log, IndexerMember)
        streams = await asyncio.gather(*map(stream, declared))
        owners = await read_owners(self._log, layout, indexers)
        return LogFacts(tuple(streams), owners, max(0, account.limits.max_storage))

    async def _routers(self) -> RouterFacts:
        """Those whose rows move while we look, compared as often as they stand at one delta meanwhile."""
        agreement = Agreement()
        first: dict[str, int] = {}
        rows: dict[str, RouterMember] = {}

        def changed(change: Entry | Gone) -> None:
            if isinstance(change, Gone):
                rows.pop(change.key, None)
                return
            try:
                router = msgspec.json.decode(change.value, type=RouterMember)
            except UNREADABLE:
                return
            agreement.hear(router)
            if first.setdefault(change.key, change.revision) != change.revision:
                rows[change.key] = router

        await jetstream.stream_info(self._log, f"KV_{MEMBERS}", timeout_s=ANSWER_S)
        async with in_background(Bucket(self._log, MEMBERS).watch(changed, keys="router.*").run()):
            await asyncio.sleep(SETTLE_S)
        routers = tuple(rows[key] for key in sorted(rows))
        return RouterFacts(routers, agreement.compared, tuple(agreement.disagreements))


def _keys(layout: CurrentLayout) -> list[str]:
    return [partition_key(layout.generation, number) for number in range(layout.partitions)]
