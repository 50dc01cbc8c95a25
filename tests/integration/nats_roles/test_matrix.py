"""What each role of the shipped NATS users may do, and what it is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import pytest
from nats.aio.client import Client

from inferencecache.core.log.subjects import escape
from inferencecache.schemas.ids import PROBE_TENANT
from tests.support.nats import NatsServer
from tests.support.nats_roles import USERS, authorization, password
from tests.support.waiting import eventually

pytestmark = pytest.mark.rule("OPS-30")

SIDECAR: Final = "subscriber-open"
PROCESSES: Final = {"indexer", "router", "controller"}
PEOPLE: Final = {"observer", "admin"}
EVERYBODY: Final = {*PROCESSES, *PEOPLE, SIDECAR}

PUBLISH: Final[dict[str, set[str]]] = {
    # the log
    "ic.ev.1.0.t.m.r.e": {SIDECAR},
    f"ic.ev.1.0.{escape(PROBE_TENANT)}.m.r.e": set(),
    "ic.ev.1.0._.m.r.e": set(),
    "ic.ev.1.0.t.m.r.g": {"router"},
    "ic.ev.1.0._.o": {"indexer"},
    "ic.ev.1.0._.r": {"router"},
    "ic.ev.1.0._.c": {"controller"},
    "ic.dl.1.0": {"indexer"},
    # questions between processes
    "ic.resync.t.m.r": {"indexer"},
    "ic.snapshot.1.0": {"indexer", "router"},
    "ic.work": {"router"},
    "ic.probe": {"controller", *PEOPLE},
    "ic.explain": PEOPLE,
    "ic.explain.one": PEOPLE,
    # buckets and objects
    "$KV.IC_POLICY.set": {"controller", "admin"},
    "$KV.IC_POLICY.template.ns.name": {"controller", "admin"},
    "$KV.IC_LAYOUT.layout": {*PROCESSES, "admin"},
    "$KV.IC_REFS.1.0": {"indexer"},
    "$KV.IC_AGGREGATE.1.0": {"indexer"},
    "$KV.IC_AGGREGATE.1.budget": {"indexer"},
    "$KV.IC_MEMBERS.indexer.x": {"indexer"},
    "$KV.IC_MEMBERS.router.x": {"router"},
    "$KV.IC_MEMBERS.controller.x": {"controller"},
    "$O.IC_SNAPSHOTS.C.x": {"indexer"},
    "$O.IC_SNAPSHOTS.M.x": {"indexer"},
    # the server's own interface
    "$JS.API.STREAM.CREATE.IC_EVENTS_1_0": PROCESSES,
    "$JS.API.STREAM.UPDATE.IC_EVENTS_1_0": PROCESSES,
    "$JS.API.STREAM.UPDATE.KV_IC_POLICY": set(),
    "$JS.API.STREAM.UPDATE.KV_IC_LAYOUT": set(),
    "$JS.API.STREAM.DELETE.IC_EVENTS_1_0": {"admin"},
    "$JS.API.STREAM.DELETE.KV_IC_POLICY": {"admin"},
    "$JS.API.STREAM.PURGE.IC_DELTAS_1_0": {"indexer", "admin"},
    "$JS.API.STREAM.PURGE.KV_IC_POLICY": {"admin"},
    "$JS.API.STREAM.MSG.DELETE.IC_EVENTS_1_0": set(),
    "$JS.API.STREAM.INFO.IC_EVENTS_1_0": {*PROCESSES, *PEOPLE},
    "$JS.API.STREAM.MSG.GET.KV_IC_LAYOUT": EVERYBODY,
    "$JS.API.STREAM.MSG.GET.KV_IC_POLICY": {*PROCESSES, *PEOPLE},
    "$JS.API.STREAM.MSG.GET.IC_EVENTS_1_0": {*PROCESSES, *PEOPLE},
    "$JS.API.DIRECT.GET.OBJ_IC_SNAPSHOTS": {*PROCESSES, *PEOPLE},
    "$JS.API.CONSUMER.CREATE.KV_IC_AGGREGATE.name.>": {*PROCESSES, *PEOPLE},
    "$JS.API.CONSUMER.CREATE.IC_EVENTS_1_0.name": {*PROCESSES, *PEOPLE},
    "$JS.API.ACCOUNT.PURGE.x": set(),
    # answers to others, and subjects of nobody
    "_INBOX.router.x.1": set(),
    "_INBOX.kvevent-subscriber.x.1": set(),
    "$SYS.REQ.SERVER.PING": set(),
    "elsewhere": set(),
}
"""Who may publish: also what no process does has a row, and then with nobody."""

SUBSCRIBE: Final[dict[str, set[str]]] = {
    ">": set(),
    "ic.ev.>": set(),
    "_INBOX.>": set(),
    "_INBOX.indexer.x.*": {"indexer"},
    "_INBOX.router.x.*": {"router"},
    "_INBOX.controller.x.*": {"controller"},
    "_INBOX.kvevent-subscriber.x.*": {SIDECAR},
    "_INBOX.inferencecache.x.*": PEOPLE,
    "ic.resync.t.m.r": {SIDECAR},
    "ic.snapshot.1.0": {"indexer"},
    "ic.work": {"router"},
    "ic.probe": {"router"},
    "ic.explain": {"router"},
    "ic.explain.one": {"router"},
    "$KV.IC_LAYOUT.layout": {SIDECAR},
    "$KV.IC_POLICY.>": set(),
    "ic.dl.1.0": set(),
}


LAST: Final = "of.nobody"
REFUSAL: Final = re.compile(r'permissions violation for (publish|subscription) to "([^"]+)"')


class Judged:
    """One user's connection, and what the server refuses it, `publish` or `subscription` with the subject.

    In lower case, since the client tells it so.
    """

    def __init__(self) -> None:
        self.refused: set[tuple[str, str]] = set()
        self._client = Client()

    async def connect(self, url: str, user: str | None) -> None:
        """As a user, or without credentials."""
        secret = password(user) if user else None
        await self._client.connect(
            url, error_cb=self._told, max_reconnect_attempts=0, user=user, password=secret
        )

    async def close(self) -> None:
        await self._client.close()

    async def tries(self) -> None:
        """Everything; the server answers in order, so what is refused last has been preceded by all else."""
        for subject in SUBSCRIBE:
            await self._client.subscribe(subject, cb=_ignore)
        for subject in (*PUBLISH, LAST):
            await self._client.publish(subject, b"x")
        await self._client.flush()
        await eventually(lambda: ("publish", LAST) in self.refused)

    async def _told(self, error: Exception) -> None:
        match = REFUSAL.search(str(error))
        assert match is not None, error
        self.refused.add((match[1], match[2]))


async def _ignore(_message: object) -> None:
    pass


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A server with the shipped users."""
    with NatsServer(tmp_path_factory.mktemp("roles"), extra=authorization()) as server:
        yield server


@pytest.mark.parametrize("user", [*USERS, SIDECAR])
async def test_a_role_may_do_what_it_does_and_nothing_else(user: str, server: NatsServer) -> None:
    judged = Judged()
    await judged.connect(server.url, None if user == SIDECAR else user)
    await judged.tries()
    await judged.close()
    wrong = [
        f"{what} {subject}: {'refused' if user in allowed else 'allowed'}"
        for what, table in (("publish", PUBLISH), ("subscription", SUBSCRIBE))
        for subject, allowed in table.items()
        if ((what, subject.lower()) in judged.refused) == (user in allowed)
    ]
    assert not wrong, "\n".join(wrong)
