"""The policy bucket as the command line keeps it: objects as applied, beside what they resolve to.

Each object has a key of its own, `object.<kind>.<namespace>.<name>`; `set`, `template.…` and
`topology.…` are derived from them. Everything is written by compare-and-set: an object under the
revision that was read, also to delete it, the set under the revision that was read before the objects.
So whoever writes last has seen all objects, and a command that was interrupted leaves nothing that the
next one does not put right.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from inferencecache.cli.connected import CommandError
from inferencecache.cli.running import in_background
from inferencecache.core.index.policy import UnsupportedPolicySchemaError
from inferencecache.core.log import Log, WrongLastSequenceError, read_members
from inferencecache.core.log.buckets import Bucket, Entry, Gone
from inferencecache.core.log.jetstream import NoStreamError
from inferencecache.core.log.subjects import (
    MEMBERS,
    POLICY,
    POLICY_KEY,
    UnknownSubjectError,
    object_key,
    parse_policy_key,
    template_key,
    topology_key,
)
from inferencecache.core.policy import (
    Effect,
    PolicySetTooLargeError,
    UnreadablePolicySetError,
    claim_of,
    decode_policy_set,
    encode_policy_set,
    resolve,
    resolve_topology,
    sibling_violations,
)
from inferencecache.core.protocol.membership import ALIVE_S
from inferencecache.core.service import get_logger
from inferencecache.core.templates import resolve_template
from inferencecache.schemas.members import RouterMember
from inferencecache.schemas.policy import PolicySet
from inferencecache.schemas.resources import (
    AnyResource,
    InvalidResourceError,
    ObjectMeta,
    PDTopology,
    PromptTemplate,
    ResourceRef,
    document_of,
    read_resource,
)

_ATTEMPTS: Final = 20
"""Each lost attempt means that somebody else's write succeeded."""

_POLL_S: Final = 0.1

logger = get_logger("policy")


class PolicyError(CommandError):
    """The command cannot be carried out; the message says why and what to do."""


class Change(NamedTuple):
    """What became of one object: `created`, `changed`, `unchanged`, `deleted` or `absent`."""

    ref: ResourceRef
    change: str


class Kept(NamedTuple):
    """An object with the revision of its key."""

    resource: AnyResource
    revision: int


class Unreadable(NamedTuple):
    """A key of an object whose value this version cannot read; it harms no other object."""

    problem: str
    revision: int


class Contents(NamedTuple):
    """All that the bucket holds of objects, and the set in force."""

    set_entry: Entry | None
    objects: Mapping[ResourceRef, Kept]
    unreadable: Mapping[ResourceRef, Unreadable]

    @property
    def resources(self) -> list[AnyResource]:
        """The objects themselves."""
        return [kept.resource for kept in self.objects.values()]

    def revision_of(self, ref: ResourceRef) -> int | None:
        """The revision of an object's key, readable or not; `None` when there is no such object."""
        found = self.objects.get(ref) or self.unreadable.get(ref)
        return None if found is None else found.revision


class RouterStanding(NamedTuple):
    """A router and the revision of the set that it runs."""

    id: str
    revision: int


class PolicyStore:
    """The bucket over one connection."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._bucket = Bucket(log, POLICY)
        self._members = Bucket(log, MEMBERS)

    async def read(self) -> Contents:
        """Everything, the set before the objects. Raises `PolicyError` where there is no installation."""
        try:
            set_entry = await self._bucket.get(POLICY_KEY)
            entries = await self._bucket.entries(keys="object.*.*.*")
        except NoStreamError:
            raise PolicyError(
                f"the server has no bucket {POLICY}: nothing has run there yet; start an indexer (or "
                "'inferencecache up'), or set --nats-url"
            ) from None
        objects: dict[ResourceRef, Kept] = {}
        unreadable: dict[ResourceRef, Unreadable] = {}
        for entry in entries:
            try:
                ref = ResourceRef(*parse_policy_key(entry.key).ids)
            except UnknownSubjectError as error:
                logger.warning("policy_key_unknown", key=entry.key, error=str(error))
                continue
            try:
                objects[ref] = Kept(_read(entry, ref), entry.revision)
            except (InvalidResourceError, msgspec.DecodeError) as error:
                unreadable[ref] = Unreadable(str(error), entry.revision)
        return Contents(set_entry, objects, unreadable)

    async def apply(
        self, resources: Sequence[AnyResource], *, take_over: bool = False, dry_run: bool = False
    ) -> tuple[list[Change], int]:
        """Keep the objects and put what all kept ones resolve to in force; changes and the set's revision.

        Raises `PolicyError`, with nothing written, when a controller is alive, when an object may not
        stand beside another, or when the set in force says what no kept object says.
        """
        await self._refuse_beside_controller()
        wanted = [_as_kept(resource) for resource in resources]
        written: dict[ResourceRef, Change] = {}
        for _ in range(_ATTEMPTS):
            contents = await self.read()
            if not take_over:
                _refuse_to_lose(contents)
            _refuse_conflicts(wanted, contents)
            _refuse_too_much(wanted, contents)
            changes = [Change(resource.ref, _change(resource, contents)) for resource in wanted]
            if dry_run:
                return changes, contents.set_entry.revision if contents.set_entry else 0
            try:
                for resource, change in zip(wanted, changes, strict=True):
                    if change.change != "unchanged":
                        await self._write(resource, contents.revision_of(resource.ref))
                        written.setdefault(change.ref, change)
            except WrongLastSequenceError:
                continue
            changes = [written.get(change.ref, change) for change in changes]
            return changes, await self._publish([resource.ref for resource in wanted])
        raise _contended()

    async def delete(
        self, refs: Sequence[ResourceRef], *, take_over: bool = False
    ) -> tuple[list[Change], int]:
        """Drop objects and put what the others resolve to in force.

        The set goes first: were the command interrupted, the objects are still there to delete, and those
        that are not any more are `absent` when it is given again. Raises `PolicyError` as `apply` does, and
        when none of the objects is there.
        """
        await self._refuse_beside_controller()
        contents = await self.read()
        changes = [Change(ref, "absent" if contents.revision_of(ref) is None else "deleted") for ref in refs]
        if changes and all(change.change == "absent" for change in changes):
            there = ", ".join(map(str, sorted({*contents.objects, *contents.unreadable}))) or "none"
            raise PolicyError(f"no {refs[0]}; kept here: {there}")
        if not take_over:
            _refuse_to_lose(contents)
        await self._publish(refs, without=refs)
        await self._drop(refs)
        return changes, await self._publish(refs)

    async def _drop(self, refs: Sequence[ResourceRef]) -> None:
        """Delete the keys of those objects that are there, as they are when they are read here."""
        for _ in range(_ATTEMPTS):
            contents = await self.read()
            try:
                for ref in refs:
                    if (revision := contents.revision_of(ref)) is not None:
                        await self._bucket.delete(object_key(*ref), revision)
            except WrongLastSequenceError:
                continue
            return
        raise _contended()

    async def routers(self) -> list[RouterStanding]:
        """Routers that were there within the last seconds."""
        rows = await read_members(self._log, RouterMember)
        return [RouterStanding(row.id, row.policy_revision) for row in rows]

    async def wait_for_routers(self, revision: int, limit_s: float) -> list[RouterStanding]:
        """Routers that do not run the set of `revision` after `limit_s`, or as soon as there are none."""
        deadline = time.monotonic() + limit_s
        while True:
            behind = [router for router in await self.routers() if router.revision < revision]
            if not behind or time.monotonic() >= deadline:
                return behind
            await asyncio.sleep(_POLL_S)

    async def _write(self, resource: AnyResource, revision: int | None) -> None:
        key, value = object_key(*resource.ref), msgspec.json.encode(document_of(resource))
        if revision is None:
            await self._bucket.create(key, value)
        else:
            await self._bucket.update(key, value, revision)

    async def _publish(self, touched: Sequence[ResourceRef], without: Sequence[ResourceRef] = ()) -> int:
        """Bring the set, and what is derived of the touched objects, in line with the objects."""
        keys = {ref: key for ref in touched if (key := _derived_key(ref))}
        for _ in range(_ATTEMPTS):
            derived = {ref: await self._bucket.get(key) for ref, key in keys.items()}
            contents = await self.read()
            objects = {ref: kept for ref, kept in contents.objects.items() if ref not in without}
            resources = [kept.resource for kept in objects.values()]
            try:
                for ref, key in keys.items():
                    kept = objects.get(ref)
                    await self._derive(key, derived[ref], _derived_value(kept.resource) if kept else None)
                return await self._put_in_force(resolve(resources).policy_set, contents.set_entry)
            except WrongLastSequenceError:
                continue
        raise _contended()

    async def _put_in_force(self, policy_set: PolicySet, entry: Entry | None) -> int:
        value = encode_policy_set(policy_set)
        if entry is None:
            return 0 if policy_set == PolicySet() else await self._bucket.create(POLICY_KEY, value)
        if entry.value == value:
            return entry.revision
        return await self._bucket.update(POLICY_KEY, value, entry.revision)

    async def _derive(self, key: str, entry: Entry | None, value: bytes | None) -> None:
        if value is None:
            if entry is not None:
                await self._bucket.delete(key, entry.revision)
        elif entry is None:
            await self._bucket.create(key, value)
        elif entry.value != value:
            await self._bucket.update(key, value, entry.revision)

    async def _refuse_beside_controller(self) -> None:
        try:
            there = await self._members.entries(keys="controller.*")
        except NoStreamError:
            return
        for entry in there:
            if await self._moves(entry):
                raise PolicyError(
                    f"a controller is running ({entry.key}): policy is what the cluster's objects say; use "
                    "kubectl apply, or stop the controller first"
                )

    async def _moves(self, entry: Entry) -> bool:
        """Whether a member's row changes within the time that an alive one needs at most."""
        moved = asyncio.Event()

        def changed(change: Entry | Gone) -> None:
            if isinstance(change, Entry) and change.revision != entry.revision:
                moved.set()

        async with in_background(self._members.watch(changed, keys=entry.key).run()):
            try:
                async with asyncio.timeout(ALIVE_S):
                    await moved.wait()
            except TimeoutError:
                return False
            return True


def effects_of(contents: Contents) -> list[Effect]:
    """What every kept object does, policies and tenants as the resolution has it."""
    effects = list(resolve(contents.resources).effects)
    for resource in contents.resources:
        match resource:
            case PromptTemplate():
                effects.append(Effect(resource.ref, True, f"revision {resolve_template(resource).revision}"))
            case PDTopology():
                effects.append(_effect_of_topology(resource))
    return sorted(effects)


def _effect_of_topology(topology: PDTopology) -> Effect:
    resolved = resolve_topology(topology)
    counts = [
        sum(len(pool.replicas) for pool in pools) for pools in (resolved.prefill_pools, resolved.decode_pools)
    ]
    warning = ""
    if 0 in counts:
        warning = (
            "a phase without replicas answers EMPTY_POOL; without a controller nobody resolves matchLabels: "
            "list the ids under replicaIDs"
        )
    text = f"{counts[0]} prefill and {counts[1]} decode replicas, {resolved.transport}"
    return Effect(topology.ref, True, text, warning)


def _read(entry: Entry, ref: ResourceRef) -> AnyResource:
    resource = read_resource(msgspec.json.decode(entry.value), strict=False)
    if resource.ref != ref:
        raise InvalidResourceError("metadata", f"the object is {resource.ref}")
    return resource


def _as_kept(resource: AnyResource) -> AnyResource:
    """The object without what a server adds to it: status and the bookkeeping of its metadata."""
    metadata = resource.metadata
    kept = ObjectMeta(
        name=metadata.name,
        namespace=metadata.namespace,
        labels=metadata.labels,
        annotations=metadata.annotations,
    )
    return msgspec.structs.replace(resource, metadata=kept, status=None)


def _change(resource: AnyResource, contents: Contents) -> str:
    if contents.revision_of(resource.ref) is None:
        return "created"
    kept = contents.objects.get(resource.ref)
    return "unchanged" if kept is not None and kept.resource == resource else "changed"


def _refuse_conflicts(wanted: Sequence[AnyResource], contents: Contents) -> None:
    """An object is judged beside what is kept, and beside those before it in the same command."""
    rivals: dict[object, list[AnyResource]] = defaultdict(list)
    for resource in contents.resources:
        rivals[claim_of(resource)].append(resource)
    problems: list[str] = []
    for resource in wanted:
        kept = contents.objects.get(resource.ref)
        found = sibling_violations(resource, rivals[claim_of(resource)], kept and kept.resource)
        problems += [f"{resource.ref}: {violation.path}: {violation.problem}" for violation in found]
        rivals[claim_of(resource)].append(resource)
    if problems:
        raise PolicyError("\n".join(problems))


def _refuse_too_much(wanted: Sequence[AnyResource], contents: Contents) -> None:
    together = {ref: kept.resource for ref, kept in contents.objects.items()}
    together |= {resource.ref: resource for resource in wanted}
    try:
        encode_policy_set(resolve(together.values()).policy_set)
    except PolicySetTooLargeError as error:
        raise PolicyError(str(error)) from None


def _refuse_to_lose(contents: Contents) -> None:
    lost = _unaccounted(contents)
    if lost:
        raise PolicyError(
            f"the set in force holds what no object kept here says: {', '.join(lost)}. A controller or a "
            "newer version wrote it; apply these objects too, or replace the set with --take-over"
        )


def _unaccounted(contents: Contents) -> list[str]:
    if contents.set_entry is None:
        return []
    try:
        in_force = decode_policy_set(contents.set_entry.value)
    except (UnsupportedPolicySchemaError, UnreadablePolicySetError) as error:
        return [str(error)]
    said = resolve(contents.resources).policy_set
    namespaces = {policy.namespace for policy in said.policies}
    tenants = {quota.tenant_id for quota in said.quotas}
    return [
        *(f"policy of {p.namespace}" for p in in_force.policies if p.namespace not in namespaces),
        *(f"quota of {quota.tenant_id}" for quota in in_force.quotas if quota.tenant_id not in tenants),
    ]


def _derived_key(ref: ResourceRef) -> str | None:
    match ref.kind:
        case "PromptTemplate":
            return template_key(ref.namespace, ref.name)
        case "PDTopology":
            return topology_key(ref.namespace, ref.name)
    return None


def _derived_value(resource: AnyResource) -> bytes | None:
    match resource:
        case PromptTemplate():
            return msgspec.json.encode(resolve_template(resource))
        case PDTopology():
            return msgspec.json.encode(resolve_topology(resource))
    return None


def _contended() -> PolicyError:
    return PolicyError("others keep writing the policy at the same time; try again")


def documents_of(resources: Iterable[AnyResource]) -> list[dict[str, Any]]:
    """Documents that can be applied again, in order of their names."""
    return [document_of(resource) for resource in sorted(resources, key=lambda resource: resource.ref)]
