"""Policy kept in the bucket of a real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from inferencecache.cli.policies.store import PolicyError, PolicyStore, RouterStanding, effects_of
from inferencecache.cli.running import in_background
from inferencecache.core.log import Log, NotStoredError, WrongLastSequenceError
from inferencecache.core.log.buckets import Bucket, Entry, Gone
from inferencecache.core.log.subjects import object_key, parse_policy_key
from inferencecache.core.policy import Intent, decode_policy_set
from inferencecache.core.service import NatsSettings
from inferencecache.schemas.ids import TenantId
from inferencecache.schemas.members import ControllerMember, Member, RouterMember
from inferencecache.schemas.resources import AnyResource, ResourceRef
from tests.support.nats import NatsServer
from tests.support.resources import policy, template, tenant, topology
from tests.support.waiting import a_moment, eventually

SLOT = {"name": "q", "type": "Mutable", "required": True}


def bucket(log: Log) -> Bucket:
    return Bucket(log, "IC_POLICY")


async def put_member(log: Log, key: str, member: Member) -> None:
    await Bucket(log, "IC_MEMBERS").put(key, msgspec.json.encode(member))


@asynccontextmanager
async def reading(log: Log) -> AsyncIterator[Intent]:
    """What a router that watches the bucket has in force."""
    intent = Intent()

    def changed(change: Entry | Gone) -> None:
        value = change.value if isinstance(change, Entry) else None
        if change.key == "set":
            if value is not None:
                intent.set_policies(value, change.revision)
            return
        key = parse_policy_key(change.key)
        match key.family:
            case "template":
                intent.set_template("/".join(key.ids), value)
            case "topology":
                intent.set_topology("/".join(key.ids), value)

    async with in_background(bucket(log).watch(changed).run()):
        yield intent


async def in_force(log: Log) -> list[str]:
    entry = await bucket(log).get("set")
    return [] if entry is None else [p.namespace for p in decode_policy_set(entry.value).policies]


async def test_what_is_applied_reaches_a_reader_of_the_bucket(log: Log, store: PolicyStore) -> None:
    objects: list[AnyResource] = [
        policy("team-a/lookup", minimumPrefixTokens=200),
        tenant("team-a/x", "team-a", 5),
        template("Ask: {{ q }}", SLOT),
        topology(transport="NIXL", prefillPools=[{"name": "p", "replicaIDs": ["r1"]}]),
    ]
    async with reading(log) as intent:
        changes, revision = await store.apply(objects)
        assert [change.change for change in changes] == ["created"] * 4
        await eventually(
            lambda: intent.revision == revision and intent.topology("serving/chat-pd") is not None
        )
        resolved = intent.policies.policy(TenantId("team-a"))
        assert resolved is not None
        assert resolved.minimum_prefix_tokens == 200
        assert intent.policies.quota(TenantId("team-a")) == 5
        made = intent.template("serving/helpdesk")
        assert made is not None
        assert made.render({"q": "why?"}).text == "Ask: why?"

        changes, after = await store.delete([resource.ref for resource in objects])
        assert [change.change for change in changes] == ["deleted"] * 4
        await eventually(lambda: intent.revision == after and intent.topology("serving/chat-pd") is None)
        assert intent.policies.policy(TenantId("team-a")) is None
        assert intent.policies.quota(TenantId("team-a")) is None
        await eventually(lambda: intent.template("serving/helpdesk") is None)


async def test_applying_the_same_again_changes_nothing(log: Log, store: PolicyStore) -> None:
    objects: list[AnyResource] = [policy("a/p"), template("{{ q }}", SLOT)]
    _, revision = await store.apply(objects)
    before = {entry.key: entry.revision for entry in await bucket(log).entries()}
    changes, again = await store.apply(objects)
    assert [change.change for change in changes] == ["unchanged", "unchanged"]
    assert again == revision
    assert {entry.key: entry.revision for entry in await bucket(log).entries()} == before


async def test_objects_that_are_not_named_stay(log: Log, store: PolicyStore) -> None:
    await store.apply([policy("a/p", eviction="LFU")])
    await store.apply([policy("b/q")])
    assert await in_force(log) == ["a", "b"]
    await store.delete([ResourceRef("CachePolicy", "a", "p")])
    assert await in_force(log) == ["b"]


@pytest.mark.rule("IDX-121")
async def test_the_next_policy_of_a_namespace_steps_in_when_the_first_is_deleted(
    log: Log, store: PolicyStore
) -> None:
    first, second = policy("a/alpha", minimumPrefixTokens=1), policy("a/zeta", minimumPrefixTokens=2)
    await store.apply([first])
    await bucket(log).put(  # as two commands at the same moment leave it
        object_key(*second.ref),
        msgspec.json.encode({"apiVersion": "inferencecache.io/v1alpha1", **_bare(second)}),
    )
    assert [effect.in_force for effect in effects_of(await store.read())] == [True, False]
    await store.delete([first.ref])
    entry = await bucket(log).get("set")
    assert entry is not None
    assert [p.minimum_prefix_tokens for p in decode_policy_set(entry.value).policies] == [2]


def _bare(resource: AnyResource) -> dict[str, object]:
    built: dict[str, object] = msgspec.to_builtins(resource)
    return built


async def test_commands_at_the_same_time_lose_nothing(log: Log, nats_server: NatsServer) -> None:
    names = [f"team-{number}" for number in range(8)]
    logs = [
        await Log.connect(NatsSettings(nats_server.url, insecure=True), name=name, timeout_s=10)
        for name in names
    ]
    try:
        await asyncio.gather(
            *(PolicyStore(own).apply([policy(f"{name}/p")]) for own, name in zip(logs, names, strict=True))
        )
        assert sorted(await in_force(log)) == names
        await asyncio.gather(
            *(
                PolicyStore(own).delete([ResourceRef("CachePolicy", name, "p")])
                for own, name in zip(logs[1:], names[1:], strict=True)
            )
        )
        assert await in_force(log) == names[:1]
    finally:
        for own in logs:
            await own.close()


async def test_of_two_writers_of_a_template_the_derived_one_is_that_of_the_object_kept(
    log: Log, store: PolicyStore
) -> None:
    for _ in range(5):
        await asyncio.gather(*(store.apply([template(f"body {number}")]) for number in range(4)))
        (kept,) = (await store.read()).resources
        entry = await bucket(log).get("template.serving.helpdesk")
        assert entry is not None
        assert json.loads(entry.value)["body"] == _bare(kept)["spec"]["body"]  # type: ignore[index]


async def test_a_second_policy_of_a_namespace_is_refused_and_nothing_is_written(
    log: Log, store: PolicyStore
) -> None:
    await store.apply([policy("a/p")])
    before = await bucket(log).entries()
    with pytest.raises(
        PolicyError, match=r"CachePolicy a/q: metadata\.name: namespace a has the CachePolicy p"
    ):
        await store.apply([policy("b/x"), policy("a/q")])
    with pytest.raises(PolicyError, match=r"CacheTenant t/y: spec\.tenantID"):
        await store.apply([tenant("t/x", "id"), tenant("t/y", "id")])
    assert await bucket(log).entries() == before


async def test_beside_a_living_controller_nothing_is_written(log: Log, store: PolicyStore) -> None:
    async def live() -> None:
        while True:
            await put_member(log, "controller.c1", ControllerMember("c1"))
            await a_moment()

    await store.apply([policy("a/p")])
    async with in_background(live()):
        await eventually(lambda: True)
        await put_member(log, "controller.c1", ControllerMember("c1"))
        with pytest.raises(PolicyError, match="a controller is running"):
            await store.apply([policy("b/p")])
        with pytest.raises(PolicyError, match="a controller is running"):
            await store.delete([ResourceRef("CachePolicy", "a", "p")])
    assert await in_force(log) == ["a"]


async def test_a_controller_that_stopped_is_in_nobodys_way(log: Log, store: PolicyStore) -> None:
    await put_member(log, "controller.c1", ControllerMember("c1"))
    await store.apply([policy("b/p")])
    assert await in_force(log) == ["b"]


async def test_a_set_that_a_controller_left_is_replaced_only_when_told_to(
    log: Log, store: PolicyStore
) -> None:
    left = b'{"version":8,"policies":[{"namespace":"old"}],"tenants":[{"tenantID":"t","maxIndexEntries":1}]}'
    await bucket(log).put("set", left)
    with pytest.raises(PolicyError, match=r"policy of old, quota of t.*--take-over"):
        await store.apply([policy("a/p")])
    assert await in_force(log) == ["old"]
    await store.apply([policy("a/p"), policy("old/p"), tenant("old/t", "t", 1)], take_over=True)
    assert await in_force(log) == ["a", "old"]


async def test_a_set_of_a_newer_version_is_replaced_only_when_told_to(log: Log, store: PolicyStore) -> None:
    await bucket(log).put("set", b'{"version":9,"policies":[],"later":1}')
    with pytest.raises(PolicyError, match="policy schema 9"):
        await store.apply([policy("a/p")])
    await store.apply([policy("a/p")], take_over=True)
    assert await in_force(log) == ["a"]


async def test_an_object_that_cannot_be_read_harms_only_itself(log: Log, store: PolicyStore) -> None:
    for namespace, value in (("a", b"{"), ("b", b'{"kind":"CachePolicy"}')):
        await bucket(log).put(object_key("CachePolicy", namespace, "p"), value)
    await store.apply([policy("c/p")])
    assert await in_force(log) == ["c"]
    assert {ref.namespace for ref in (await store.read()).unreadable} == {"a", "b"}
    changes, _ = await store.apply([policy("a/p")])
    assert changes[0].change == "changed"
    await store.delete([ResourceRef("CachePolicy", "b", "p")])
    assert await in_force(log) == ["a", "c"]
    assert not (await store.read()).unreadable


async def test_what_an_interrupted_command_left_is_put_right_by_the_next(
    log: Log, store: PolicyStore
) -> None:
    await store.apply([policy("a/p")])
    entry = await bucket(log).get("set")
    assert entry is not None
    await store.apply([policy("b/p")])
    await bucket(log).put("set", entry.value)  # as if the command had ended after its object
    assert await in_force(log) == ["a"]
    await store.apply([policy("c/p")])
    assert await in_force(log) == ["a", "b", "c"]


async def test_deleting_what_is_not_there_says_what_is(store: PolicyStore) -> None:
    await store.apply([policy("a/p")])
    with pytest.raises(PolicyError, match="no CachePolicy b/p; kept here: CachePolicy a/p"):
        await store.delete([ResourceRef("CachePolicy", "b", "p")])


async def test_what_an_interrupted_delete_left_is_deleted_by_the_same_command(
    log: Log, store: PolicyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects: list[AnyResource] = [policy("a/p"), policy("b/p"), template("{{ q }}", SLOT)]
    await store.apply(objects)
    delete = Bucket.delete

    async def interrupted(
        self: Bucket, key: str, revision: int | None = None, *, timeout_s: float = 5.0
    ) -> None:
        if key == object_key(*objects[1].ref):
            raise NotStoredError(key, "the connection is gone", retryable=True)
        await delete(self, key, revision, timeout_s=timeout_s)

    with monkeypatch.context() as patch:
        patch.setattr(Bucket, "delete", interrupted)
        with pytest.raises(NotStoredError):
            await store.delete([resource.ref for resource in objects])
    changes, _ = await store.delete([resource.ref for resource in objects])
    assert [change.change for change in changes] == ["absent", "deleted", "deleted"]
    assert await in_force(log) == []
    with pytest.raises(PolicyError, match="no CachePolicy a/p; kept here: none"):
        await store.delete([resource.ref for resource in objects])


async def test_what_is_written_while_it_is_deleted_is_read_again_before_it_goes(
    log: Log, store: PolicyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.apply([policy("a/p"), policy("b/p")])
    before = await bucket(log).get(object_key("CachePolicy", "b", "p"))
    assert before is not None
    delete, refused = Bucket.delete, list[str]()

    async def late(self: Bucket, key: str, revision: int | None = None, *, timeout_s: float = 5.0) -> None:
        if revision == before.revision:
            await self.put(key, before.value)
        try:
            await delete(self, key, revision, timeout_s=timeout_s)
        except WrongLastSequenceError:
            refused.append(key)
            raise

    monkeypatch.setattr(Bucket, "delete", late)
    changes, _ = await store.delete([ResourceRef("CachePolicy", name, "p") for name in ("a", "b")])
    assert refused == [before.key]
    assert [change.change for change in changes] == ["deleted", "deleted"]
    assert not (await store.read()).objects
    assert await in_force(log) == []


async def test_what_the_first_of_two_attempts_created_was_created(
    log: Log, store: PolicyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = Bucket.create
    theirs = {**_bare(policy("b/p", minimumPrefixTokens=9)), "apiVersion": "inferencecache.io/v1alpha1"}

    async def late(self: Bucket, key: str, value: bytes) -> int:
        if key == object_key("CachePolicy", "b", "p"):
            await self.put(key, msgspec.json.encode(theirs))
        return await create(self, key, value)

    monkeypatch.setattr(Bucket, "create", late)
    changes, _ = await store.apply([policy("a/p"), policy("b/p")])
    assert [change.change for change in changes] == ["created", "changed"]
    assert await in_force(log) == ["a", "b"]


async def test_a_dry_run_writes_nothing(log: Log, store: PolicyStore) -> None:
    changes, revision = await store.apply([policy("a/p")], dry_run=True)
    assert [change.change for change in changes] == ["created"]
    assert revision == 0
    assert await bucket(log).entries() == []


async def test_a_set_that_no_reader_accepts_is_refused_before_anything_is_written(
    log: Log, store: PolicyStore
) -> None:
    many = [tenant(f"a/t{number}", f"tenant-{number:0200d}", 1) for number in range(5_000)]
    with pytest.raises(PolicyError, match="the most that is accepted"):
        await store.apply(many)
    assert await bucket(log).entries() == []


async def test_without_an_installation_it_is_said_what_to_start(nats_server: NatsServer) -> None:
    log = await Log.connect(NatsSettings(nats_server.url, insecure=True), name="test", timeout_s=10)
    try:
        with pytest.raises(PolicyError, match="start an indexer"):
            await PolicyStore(log).apply([policy("a/p")])
    finally:
        await log.close()


async def test_routers_are_waited_for_until_they_run_the_set(log: Log, store: PolicyStore) -> None:
    _, revision = await store.apply([policy("a/p")])
    assert await store.wait_for_routers(revision, 1) == []
    await put_member(log, "router.r1", RouterMember("r1", policy_revision=revision))
    await put_member(log, "router.r2", RouterMember("r2", policy_revision=revision - 1))
    assert await store.wait_for_routers(revision, 0.2) == [RouterStanding("r2", revision - 1)]
    waiting = asyncio.create_task(store.wait_for_routers(revision, 10))
    await put_member(log, "router.r2", RouterMember("r2", policy_revision=revision))
    assert await waiting == []
