# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# Numba infers the types of kernels from their signatures; their arrays have none that mypy knows.
"""The loops over the table's arrays, compiled.

A *slot* is a 32-bit word of the open-addressing table (linear probing): 0 when free, else the number
of a node plus one in its low bits and, in the bits above, some of the key's hash, so that probing rarely
reads a node in vain. A slot stands for one key of one keyspace; its node begins the chain of the key's
holders (`next`). A *node* is one hold. The nodes of a holder form a doubly linked list (`before`,
`after`), so that clearing a holder costs what it holds. Free nodes are chained by `next`.

Kernels take whole columns. Those that change holds answer `Difference`: the changes in holds, in keys,
of the digest and of the access digest, the last two modulo 2**64.

Arrays that only an indexer has (`access`, `due`) are empty for a router. `due` has, for each stretch of
`STRETCH` nodes, a time before which none of its holds expires, so that a sweep reads only what may be due.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

import numba
import numpy as np
from numba import types
from numpy.typing import NDArray

from inferencecache.core.index import digest

NODE: Final = np.dtype(
    [
        ("key", np.uint64),
        ("seen", np.int64),
        ("tokens", np.int32),
        ("holder", np.int32),
        ("mark", np.uint32),
        ("next", np.int32),
        ("before", np.int32),
        ("after", np.int32),
    ],
    align=True,
)
"""One hold: `seen` in µs, `mark` = twice the tier, plus 1 if uncertain; `holder` is -1 in a free node."""

HOLDER: Final = np.dtype(
    [
        ("identity", np.uint64),
        ("seed", np.uint64),
        ("alive", np.int64),
        ("ttl", np.int64),
        ("space_label", np.int64),
        ("replica_label", np.int64),
        ("first", np.int32),
        ("count", np.int32),
        ("certain", np.int32),
        ("keyspace", np.int32),
        ("replica", np.int32),
        ("tenant", np.int32),
        ("lfu", np.int32),
    ],
    align=True,
)
"""One holder: `identity` as in `digest`, `seed` of its keyspace for placing keys, `alive` and `ttl` in µs,
`first` node of its list or -1, how many nodes it has and how many of them are certain. The rest is for
eviction: labels that order keyspaces and replicas as their names, the tenant's number or RESERVED, and
whether its victims are the least frequently used. In the list all certain holds come before the others."""

ORDER: Final = np.dtype(
    [
        ("seen", np.int64),
        ("space", np.int64),
        ("key", np.uint64),
        ("replica", np.int64),
        ("count", np.uint32),
        ("node", np.int32),
    ],
    align=True,
)
"""When a hold, or a key, is evicted: by effective count, effective time, keyspace, key and replica, in this
order [IDX-152, IDX-158]; the last two fields of a key's are those of its first holder, or 0."""

COUNTS: Final = 4
FREE, USED, ENTRIES, TOUCHED = range(COUNTS)
"""Of the table's counts: first free node or -1, nodes ever used, holds, and where `_touch` leaves its sum."""

NEVER: Final = int(np.iinfo(np.int64).max)
STRETCH_BITS: Final = 10
STRETCH: Final = 1 << STRETCH_BITS
GROUP: Final = 64
"""Keys that are touched together: as many as a core can have reads of memory under way, and a few."""
NONE: Final = -1
RESERVED: Final = -1
"""Number of the reserved tenant, whose holds no cap evicts [IDX-188]."""
NOBODY: Final = -3
ANY: Final = -2
"""In place of a tenant's number: all but the reserved one."""

Difference = tuple[int, int, int, int]
Array = NDArray[Any]

_Kernel = Callable[..., Any]
_log = logging.getLogger(__name__)

_nodes = numba.from_dtype(NODE)[::1]
_holders = numba.from_dtype(HOLDER)[::1]
_orders = numba.from_dtype(ORDER)[::1]
_slots = types.Array(types.uint32, 1, "C")
_access = types.Array(types.uint32, 1, "C")
_i64s = types.Array(types.int64, 1, "C")
_i32s = types.Array(types.int32, 1, "C")
_u64s = types.Array(types.uint64, 1, "C")
_u32s = types.Array(types.uint32, 1, "C")
_keys = types.Array(types.uint64, 1, "C", readonly=True)
_counts = types.Array(types.int32, 1, "C", readonly=True)
_marks = types.Array(types.uint32, 1, "C", readonly=True)
_times = types.Array(types.int64, 1, "C", readonly=True)
_i32, _i64, _u32, _u64 = types.int32, types.int64, types.uint32, types.uint64
_difference = types.Tuple((_i64, _i64, _u64, _u64))
_table = (_nodes, _holders, _slots, _access, _i64s, _i64s)

_is_told = False


def _compile(signature: Any, function: _Kernel) -> _Kernel:
    """Compile, keeping the result on disk; in memory alone where it can be neither found nor kept."""
    global _is_told  # noqa: PLW0603 - one line for a process, not for a kernel
    try:
        compiled: _Kernel = numba.njit(signature, cache=True, nogil=True)(function)
        return compiled
    except (RuntimeError, OSError) as error:
        if isinstance(error, RuntimeError) and "cannot cache" not in str(error):
            raise
        if not _is_told:
            _log.warning("no writable folder for compiled kernels, start takes longer; set NUMBA_CACHE_DIR")
            _is_told = True
    in_memory: _Kernel = numba.njit(signature, nogil=True)(function)
    return in_memory


def kernel(*signature: Any) -> Callable[[_Kernel], _Kernel]:
    """A function compiled for exactly this signature (result first), which runs without the GIL."""
    result, *arguments = signature
    return lambda function: _compile(result(*arguments), function)


def part(function: _Kernel) -> _Kernel:
    """A function that kernels call."""
    inlined: _Kernel = numba.njit(nogil=True)(function)
    return inlined


_ONE: Final = np.uint64(1)
_30, _27, _31, _32 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(32)
_MIX_FIRST: Final = np.uint64(digest.MIX_FIRST)
_MIX_SECOND: Final = np.uint64(digest.MIX_SECOND)
_KEY_FACTOR: Final = np.uint64(digest.KEY_FACTOR)
_SEEN_FACTOR: Final = np.uint64(digest.SEEN_FACTOR)
_ZERO: Final = np.uint64(0)


@part
def _mix(value):
    value = (value ^ (value >> _30)) * _MIX_FIRST
    value = (value ^ (value >> _27)) * _MIX_SECOND
    return value ^ (value >> _31)


@part
def _entry_hash(identity, key, tokens, seen, mark):
    value = _mix(identity ^ key * _KEY_FACTOR)
    value = _mix(value ^ np.uint64(seen) * _SEEN_FACTOR)
    return _mix(value ^ (np.uint64(np.uint32(tokens)) << _32) ^ np.uint64(mark))


@part
def _node_hash(nodes, identity, node):
    at = nodes[node]
    return _entry_hash(identity, at["key"], at["tokens"], at["seen"], at["mark"])


@part
def _access_hash(identity, key, count):
    if count == 0:
        return _ZERO
    return _mix(_mix(identity ^ key * _KEY_FACTOR) ^ np.uint64(count))


# ------------------------------------------------------------------------------------------- slots


@part
def _place(key, seed):
    """Hash of a key in its keyspace: the low bits are its home slot, the high half its tag."""
    return _mix(key ^ seed)


@part
def _number_mask(nodes):
    """The bits of a slot that number a node of this pool."""
    mask = 1
    while mask < len(nodes) + 1:
        mask = 2 * mask + 1
    return np.uint32(mask)


@part
def _node_of(slot, numbers):
    return np.int64(slot & numbers) - 1


@part
def _slot_of(node, place, numbers):
    return np.uint32(node + 1) | (np.uint32(place >> _32) & ~numbers)


@part
def _find(nodes, holders, slots, numbers, keyspace, key, place):
    """The slot of a key, or the free one where it belongs."""
    mask = np.int64(len(slots) - 1)
    at = np.int64(place) & mask
    tag = np.uint32(place >> _32) & ~numbers
    while True:
        slot = slots[at]
        if slot == 0:
            return at
        if (slot & ~numbers) == tag:
            node = _node_of(slot, numbers)
            if nodes[node]["key"] == key and holders[nodes[node]["holder"]]["keyspace"] == keyspace:
                return at
        at = (at + 1) & mask


@part
def _touch(nodes, slots, numbers, seed, keys, start):
    """Read the slots and first nodes of a group of keys, which waits for memory once and not once a key.

    Answers a sum of what was read, for the compiler not to leave the reads out.
    """
    mask = np.int64(len(slots) - 1)
    end = min(start + GROUP, len(keys))
    read = np.uint32(0)
    for i in range(start, end):
        read += slots[np.int64(_place(keys[i], seed)) & mask]
    for i in range(start, end):
        slot = slots[np.int64(_place(keys[i], seed)) & mask]
        if slot != 0:
            read += np.uint32(nodes[_node_of(slot, numbers)]["mark"])
    return read


@part
def _free_slot(nodes, holders, slots, numbers, at):
    """Empty a slot and move back those behind it that would no longer be found."""
    mask = np.int64(len(slots) - 1)
    hole = at
    while True:
        at = (at + 1) & mask
        slot = slots[at]
        if slot == 0:
            break
        node = nodes[_node_of(slot, numbers)]
        home = np.int64(_place(node["key"], holders[node["holder"]]["seed"])) & mask
        if ((at - home) & mask) >= ((at - hole) & mask):
            slots[hole] = slot
            hole = at
    slots[hole] = np.uint32(0)


# ------------------------------------------------------------------------------------------- nodes


@part
def _take_node(nodes, counts):
    node = counts[FREE]
    if node == NONE:
        node = counts[USED]
        counts[USED] = node + 1
    else:
        counts[FREE] = nodes[node]["next"]
    counts[ENTRIES] += 1
    return node


@part
def _link(nodes, holders, holder, node):
    """Put a node first in its holder's list."""
    first = holders[holder]["first"]
    nodes[node]["holder"] = holder
    nodes[node]["before"] = NONE
    nodes[node]["after"] = first
    if first != NONE:
        nodes[first]["before"] = node
    holders[holder]["first"] = node
    holders[holder]["count"] += 1


@part
def _unlink(nodes, holders, holder, node):
    before, after = nodes[node]["before"], nodes[node]["after"]
    if before == NONE:
        holders[holder]["first"] = after
    else:
        nodes[before]["after"] = after
    if after != NONE:
        nodes[after]["before"] = before
    holders[holder]["count"] -= 1


@part
def _fell_due(due, node, time):
    if len(due) > 0 and time < due[node >> STRETCH_BITS]:
        due[node >> STRETCH_BITS] = time


@part
def _remove(nodes, holders, slots, access, counts, numbers, at, previous, node):
    """Take a node out of the chain that begins at slot `at`, out of its holder's list and of the pool.

    Answers (keys that vanished, the node's hash, its access count's hash).
    """
    of = nodes[node]
    holder = of["holder"]
    identity = holders[holder]["identity"]
    entry = _node_hash(nodes, identity, node)
    count = _ZERO
    if len(access) > 0:
        count = _access_hash(identity, of["key"], access[node])
        access[node] = np.uint32(0)
    following = of["next"]
    vanished = 0
    if previous != NONE:
        nodes[previous]["next"] = following
    elif following != NONE:
        slots[at] = (slots[at] & ~numbers) | np.uint32(following + 1)
    else:
        _free_slot(nodes, holders, slots, numbers, at)
        vanished = 1
    _unlink(nodes, holders, holder, node)
    if of["mark"] & np.uint32(1) == 0:
        holders[holder]["certain"] -= 1
    nodes[node]["holder"] = NONE
    nodes[node]["next"] = counts[FREE]
    counts[FREE] = node
    counts[ENTRIES] -= 1
    return vanished, entry, count


@part
def _remove_node(nodes, holders, slots, access, counts, numbers, node):
    """As `_remove`, of a node whose place in its chain is not known yet."""
    of = nodes[node]
    holder = holders[of["holder"]]
    place = _place(of["key"], holder["seed"])
    at = _find(nodes, holders, slots, numbers, holder["keyspace"], of["key"], place)
    previous = NONE
    walk = _node_of(slots[at], numbers)
    while walk != node:
        previous = walk
        walk = np.int64(nodes[walk]["next"])
    return _remove(nodes, holders, slots, access, counts, numbers, at, previous, node)


@part
def _upsert(nodes, holders, slots, access, due, counts, numbers, holder, key, tokens, mark, seen):
    """Answers (1 if the hold is new, 1 if its key is, difference of the digest)."""
    of = holders[holder]
    identity = of["identity"]
    place = _place(key, of["seed"])
    at = _find(nodes, holders, slots, numbers, of["keyspace"], key, place)
    is_new, is_new_key, difference = 0, 0, _ZERO
    if slots[at] == 0:
        node = _take_node(nodes, counts)
        slots[at] = _slot_of(node, place, numbers)
        nodes[node]["next"] = NONE
        is_new_key = 1
        is_new = 1
    else:
        last = NONE
        node = _node_of(slots[at], numbers)
        while node != NONE and nodes[node]["holder"] != holder:
            last = node
            node = np.int64(nodes[node]["next"])
        if node == NONE:
            node = _take_node(nodes, counts)
            nodes[last]["next"] = node
            nodes[node]["next"] = NONE
            is_new = 1
    if is_new:
        nodes[node]["key"] = key
        _link(nodes, holders, holder, node)
    else:
        difference -= _node_hash(nodes, identity, node)
    if mark & np.uint32(1) == 0 and (is_new or nodes[node]["mark"] & np.uint32(1)):
        holders[holder]["certain"] += 1
        if not is_new:
            _unlink(nodes, holders, holder, node)
            _link(nodes, holders, holder, node)
    nodes[node]["tokens"] = tokens
    nodes[node]["seen"] = seen
    nodes[node]["mark"] = mark
    difference += _entry_hash(identity, key, tokens, seen, mark)
    _fell_due(due, node, seen + of["ttl"])
    return is_new, is_new_key, difference


# --------------------------------------------------------------------------------------- changes


@kernel(_difference, *_table, _i64, _keys, _counts, _u32, _i64)
def hold(nodes, holders, slots, access, due, counts, holder, keys, tokens, mark, seen):
    """The holder holds these keys; the pool has room for all of them."""
    numbers = _number_mask(nodes)
    seed = holders[holder]["seed"]
    entries, vanished, entry = 0, 0, _ZERO
    for i in range(len(keys)):
        if i % GROUP == 0:
            counts[TOUCHED] += _touch(nodes, slots, numbers, seed, keys, i)
        is_new, is_new_key, difference = _upsert(
            nodes, holders, slots, access, due, counts, numbers, holder, keys[i], tokens[i], mark, seen
        )
        entries += is_new
        vanished += is_new_key
        entry += difference
    return entries, vanished, entry, _ZERO


@kernel(_difference, *_table, _i64, _keys)
def release(nodes, holders, slots, access, due, counts, holder, keys):
    """The holder holds these keys no longer, if it did."""
    numbers = _number_mask(nodes)
    seed = holders[holder]["seed"]
    keyspace = holders[holder]["keyspace"]
    entries, vanished, entry, access_entry = 0, 0, _ZERO, _ZERO
    for i in range(len(keys)):
        if i % GROUP == 0:
            counts[TOUCHED] += _touch(nodes, slots, numbers, seed, keys, i)
        at = _find(nodes, holders, slots, numbers, keyspace, keys[i], _place(keys[i], seed))
        if slots[at] == 0:
            continue
        previous = NONE
        node = _node_of(slots[at], numbers)
        while node != NONE and nodes[node]["holder"] != holder:
            previous = node
            node = np.int64(nodes[node]["next"])
        if node == NONE:
            continue
        gone, difference, access_difference = _remove(
            nodes, holders, slots, access, counts, numbers, at, previous, node
        )
        entries -= 1
        vanished -= gone
        entry -= difference
        access_entry -= access_difference
    return entries, vanished, entry, access_entry


@kernel(_difference, *_table, _i64)
def clear(nodes, holders, slots, access, due, counts, holder):
    """The holder holds nothing any more."""
    numbers = _number_mask(nodes)
    entries, vanished, entry, access_entry = 0, 0, _ZERO, _ZERO
    node = np.int64(holders[holder]["first"])
    while node != NONE:
        following = np.int64(nodes[node]["after"])
        gone, difference, access_difference = _remove_node(
            nodes, holders, slots, access, counts, numbers, node
        )
        entries -= 1
        vanished -= gone
        entry -= difference
        access_entry -= access_difference
        node = following
    return entries, vanished, entry, access_entry


@kernel(_i64, _nodes, _holders, _i64, _u64s)
def uncertain_keys(nodes, holders, holder, out):
    """Write the keys that the holder holds uncertainly; answers how many."""
    found = 0
    node = np.int64(holders[holder]["first"])
    while node != NONE:
        if nodes[node]["mark"] & np.uint32(1):
            out[found] = nodes[node]["key"]
            found += 1
        node = np.int64(nodes[node]["after"])
    return found


@kernel(_u64, _nodes, _holders, _i64s, _i64, _u64s)
def doubt(nodes, holders, due, holder, out):
    """All that the holder holds is uncertain; writes the keys that were not and answers the difference of
    the digest.
    """
    of = holders[holder]
    difference = _ZERO
    node = np.int64(of["first"])
    for i in range(of["certain"]):
        out[i] = nodes[node]["key"]
        difference -= _node_hash(nodes, of["identity"], node)
        nodes[node]["mark"] |= np.uint32(1)
        difference += _node_hash(nodes, of["identity"], node)
        _fell_due(due, node, nodes[node]["seen"] + of["ttl"])
        node = np.int64(nodes[node]["after"])
    of["certain"] = 0
    return difference


@kernel(types.void, _nodes, _holders, _i64s, _i64, _u64s)
def age(nodes, holders, due, holder, out):
    """What is certain of the holder may be older than it was; writes the keys."""
    of = holders[holder]
    node = np.int64(of["first"])
    for i in range(of["certain"]):
        out[i] = nodes[node]["key"]
        _fell_due(due, node, nodes[node]["seen"] + of["ttl"])
        node = np.int64(nodes[node]["after"])


@kernel(_u64, _nodes, _holders, _i64s, _i64)
def restamp(nodes, holders, counts, time):
    """Every hold is as old as `time`; answers the difference of the digest."""
    difference = _ZERO
    for node in range(counts[USED]):
        if nodes[node]["holder"] != NONE:
            identity = holders[nodes[node]["holder"]]["identity"]
            difference -= _node_hash(nodes, identity, node)
            nodes[node]["seen"] = time
            difference += _node_hash(nodes, identity, node)
    return difference


# --------------------------------------------------------------------------------------- questions


@part
def _effective(nodes, holders, node):
    """When a hold was last known to be there."""
    seen = nodes[node]["seen"]
    if nodes[node]["mark"] & np.uint32(1):
        return seen
    return max(seen, holders[nodes[node]["holder"]]["alive"])


@kernel(_i64, _nodes, _holders, _slots, _i64, _u64, _u64, _i64, _i32s, _i64s)
def exact(nodes, holders, slots, keyspace, seed, key, oldest, replicas, found):
    """Holders of a key that are younger than `oldest`: for each its replica and, in `found`, token
    count, effective time and tier. Answers how many.
    """
    numbers = _number_mask(nodes)
    at = _find(nodes, holders, slots, numbers, keyspace, key, _place(key, seed))
    node = _node_of(slots[at], numbers)
    hits = 0
    while node != NONE:
        seen = _effective(nodes, holders, node)
        if seen > oldest:
            replicas[hits] = holders[nodes[node]["holder"]]["replica"]
            found[3 * hits] = nodes[node]["tokens"]
            found[3 * hits + 1] = seen
            found[3 * hits + 2] = nodes[node]["mark"] >> np.uint32(1)
            hits += 1
        node = np.int64(nodes[node]["next"])
    return hits


@kernel(_i64, _nodes, _holders, _slots, _counts, _keys, _keys, _i64, _i32s, _i32s, _i64s)
def leading_runs(nodes, holders, slots, keyspaces, seeds, keys, oldest, places, replicas, found):
    """Replicas that hold the first key, and how far each holds the chain without a break, counting only
    holds younger than `oldest`. `found` gets blocks, oldest effective time and coldest tier of each; it has
    room for more than all replicas.

    `keyspaces` and `seeds` have one element for all keys or one each, -1 for a keyspace that nobody
    knows. `places` has -1 for every replica, before and after. Answers how many replicas.
    """
    numbers = _number_mask(nodes)
    runs = 0
    for block in range(len(keys)):
        of = block if len(keyspaces) > 1 else 0
        keyspace = keyspaces[of]
        if keyspace == NONE:
            break
        if block % GROUP == 0 and len(keyspaces) == 1:
            found[-1] = _touch(nodes, slots, numbers, seeds[of], keys, block)
        at = _find(nodes, holders, slots, numbers, keyspace, keys[block], _place(keys[block], seeds[of]))
        node = _node_of(slots[at], numbers)
        running = 0
        while node != NONE:
            seen = _effective(nodes, holders, node)
            if seen > oldest:
                replica = holders[nodes[node]["holder"]]["replica"]
                tier = np.int64(nodes[node]["mark"] >> np.uint32(1))
                if block == 0:
                    places[replica] = runs
                    replicas[runs] = replica
                    found[3 * runs] = 1
                    found[3 * runs + 1] = seen
                    found[3 * runs + 2] = tier
                    runs += 1
                    running += 1
                else:
                    run = places[replica]
                    if run != NONE and found[3 * run] == block:
                        found[3 * run] = block + 1
                        found[3 * run + 1] = min(seen, found[3 * run + 1])
                        found[3 * run + 2] = max(tier, found[3 * run + 2])
                        running += 1
            node = np.int64(nodes[node]["next"])
        if running == 0:
            break
    for run in range(runs):
        places[replicas[run]] = NONE
    return runs


# ------------------------------------------------------------------------------------------- bulk


@kernel(types.void, _nodes, _holders, _slots, _i64s)
def place_all(nodes, holders, slots, counts):
    """Fill empty slots with the chains of a pool whose `next` links mean nothing yet."""
    numbers = _number_mask(nodes)
    for node in range(counts[USED]):
        of = nodes[node]
        if of["holder"] == NONE:
            continue
        holder = holders[of["holder"]]
        place = _place(of["key"], holder["seed"])
        at = _find(nodes, holders, slots, numbers, holder["keyspace"], of["key"], place)
        if slots[at] != 0:
            nodes[node]["next"] = _node_of(slots[at], numbers)
        else:
            nodes[node]["next"] = NONE
        slots[at] = _slot_of(node, place, numbers)


@kernel(_i64, _nodes, _i64s, _i64, _u32, _i32s, _i32s, _u64s, _i64s, _i32s, _u32s)
def export(nodes, counts, start, uncertain, index_of, owners, keys, seen, tokens, marks):
    """Write the holds from node `start` on, the uncertain or the certain ones, into columns until those are
    full or the pool is at its end; `index_of` turns the table's number of a holder into the one to write.
    Answers the number written; the node to go on from is left in `index_of`'s last element.
    """
    written = 0
    node = start
    while node < counts[USED] and written < len(keys):
        of = nodes[node]
        if of["holder"] != NONE and of["mark"] & np.uint32(1) == uncertain:
            owners[written] = index_of[of["holder"]]
            keys[written] = of["key"]
            seen[written] = of["seen"]
            tokens[written] = of["tokens"]
            marks[written] = of["mark"]
            written += 1
        node += 1
    index_of[-1] = node
    return written


@kernel(_i64, _nodes, _i64s, _access, _i64, _i32s, _i32s, _u64s, _u32s)
def export_access(nodes, counts, access, start, index_of, owners, keys, accesses):
    """As `export`, for the access counts that are not 0."""
    written = 0
    node = start
    while node < counts[USED] and written < len(keys):
        of = nodes[node]
        if of["holder"] != NONE and access[node] != 0:
            owners[written] = index_of[of["holder"]]
            keys[written] = of["key"]
            accesses[written] = access[node]
            written += 1
        node += 1
    index_of[-1] = node
    return written


@kernel(_u64, *_table, _counts, _counts, _keys, _times, _counts, _marks, _i64s, _i64s)
def load(
    nodes, holders, slots, access, due, counts, number_of, owners, keys, seen, tokens, marks, new, new_keys
):
    """Holds of many holders, the uncertain ones of each before the others: `number_of` turns an element of
    `owners` into the table's number. Adds the new holds and the new keys of each owner to `new` and
    `new_keys`; answers the difference of the digest.
    """
    numbers = _number_mask(nodes)
    difference = _ZERO
    for i in range(len(keys)):
        owner = owners[i]
        holder = np.int64(number_of[owner])
        if marks[i] & np.uint32(1) and holders[holder]["certain"] > 0:
            raise ValueError("an uncertain hold behind a certain one of its holder")
        is_new, is_new_key, entry = _upsert(
            nodes, holders, slots, access, due, counts, numbers, holder, keys[i], tokens[i], marks[i], seen[i]
        )
        new[owner] += is_new
        new_keys[owner] += is_new_key
        difference += entry
    return difference


@kernel(_u64, *_table, _counts, _keys, _marks)
def credit(nodes, holders, slots, access, due, counts, owners, keys, accesses):
    """Add to the access counts of these keys of these holders, which stop at 2**32 - 1; a hold that is gone
    is passed over. Answers the difference of the access digest.
    """
    numbers = _number_mask(nodes)
    difference = _ZERO
    most = np.uint32(0xFFFFFFFF)
    for i in range(len(keys)):
        of = holders[owners[i]]
        at = _find(nodes, holders, slots, numbers, of["keyspace"], keys[i], _place(keys[i], of["seed"]))
        node = _node_of(slots[at], numbers)
        while node != NONE and nodes[node]["holder"] != owners[i]:
            node = np.int64(nodes[node]["next"])
        if node == NONE:
            continue
        before = access[node]
        after = before + min(accesses[i], most - before)
        access[node] = after
        difference += _access_hash(of["identity"], keys[i], after) - _access_hash(
            of["identity"], keys[i], before
        )
    return difference


# ---------------------------------------------------------------------------------------- eviction


@kernel(_difference, *_table, _i64, _u64, _u64, _i64s, _i32s, _u64s, _i32s)
def sweep(
    nodes, holders, slots, access, due, counts, now, interval, remainder, state, owners, keys, vanished
):
    """Remove holds that are past their time to live and whose key is `remainder` modulo `interval`.

    Goes on from the stretch `state[0]` and stops when the columns might not hold a stretch's victims.
    `state` then has the stretch to go on from and the number of victims in the columns.
    """
    numbers = _number_mask(nodes)
    entry, access_entry = _ZERO, _ZERO
    written, gone_keys = 0, 0
    stretch = state[0]
    while stretch << STRETCH_BITS < counts[USED] and written + STRETCH <= len(keys):
        if due[stretch] <= now:
            soonest = NEVER
            start = stretch << STRETCH_BITS
            for node in range(start, min(start + STRETCH, counts[USED])):
                of = nodes[node]
                owner = of["holder"]
                if owner == NONE:
                    continue
                expiry = _effective(nodes, holders, node) + holders[owner]["ttl"]
                if expiry > now or of["key"] % interval != remainder:
                    soonest = min(soonest, expiry)
                    continue
                owners[written] = owner
                keys[written] = of["key"]
                gone, difference, access_difference = _remove_node(
                    nodes, holders, slots, access, counts, numbers, node
                )
                vanished[written] = gone
                written += 1
                gone_keys += gone
                entry -= difference
                access_entry -= access_difference
            due[stretch] = soonest
        stretch += 1
    state[0] = stretch
    state[1] = written
    return -written, -gone_keys, entry, access_entry


@kernel(types.void, _nodes, _i64s, _i64s)
def newest(nodes, counts, out):
    """The latest time at which each holder stored anything, where `out` has an earlier one."""
    for node in range(counts[USED]):
        of = nodes[node]
        if of["holder"] != NONE:
            out[of["holder"]] = max(out[of["holder"]], of["seen"])


@part
def _is_of(holders, holder, tenant):
    """Is the holder of this tenant, or of any but the reserved one?"""
    of = holders[holder]["tenant"]
    return of == tenant or (tenant == ANY and of != RESERVED)


@kernel(_i64, _nodes, _holders, _i64s, _i64, _i32s)
def gather(nodes, holders, counts, tenant, out):
    """Write the nodes of a tenant, or of ANY; answers how many."""
    found = 0
    for node in range(counts[USED]):
        holder = nodes[node]["holder"]
        if holder != NONE and _is_of(holders, holder, tenant):
            out[found] = node
            found += 1
    return found


@kernel(_i64, _nodes, _holders, _i64, _i64, _i32s)
def gather_holder(nodes, holders, holder, start, out):
    """Write the nodes of a holder behind the first `start`; answers how many there are then."""
    node = np.int64(holders[holder]["first"])
    while node != NONE:
        out[start] = node
        start += 1
        node = np.int64(nodes[node]["after"])
    return start


@part
def _precedes(one, i, other, j):
    """Is the first of two orders before the second?"""
    a, b = one[i], other[j]
    if a["count"] != b["count"]:
        return a["count"] < b["count"]
    if a["seen"] != b["seen"]:
        return a["seen"] < b["seen"]
    if a["space"] != b["space"]:
        return a["space"] < b["space"]
    if a["key"] != b["key"]:
        return a["key"] < b["key"]
    return a["replica"] < b["replica"]


@part
def _order_hold(nodes, holders, access, node, out, at):
    """Write the order of a hold."""
    of = nodes[node]
    holder = holders[of["holder"]]
    out[at]["count"] = access[node] if holder["lfu"] else np.uint32(0)
    out[at]["seen"] = _effective(nodes, holders, node)
    out[at]["space"] = holder["space_label"]
    out[at]["key"] = of["key"]
    out[at]["replica"] = holder["replica_label"]
    out[at]["node"] = node


@part
def _order_key(nodes, holders, first, out, at):
    """Write the order of a key, whose age is that of its freshest holder; `first` begins its chain."""
    of = nodes[first]
    freshest = _effective(nodes, holders, first)
    node = np.int64(of["next"])
    while node != NONE:
        freshest = max(freshest, _effective(nodes, holders, node))
        node = np.int64(nodes[node]["next"])
    out[at]["count"] = np.uint32(0)
    out[at]["seen"] = freshest
    out[at]["space"] = holders[of["holder"]]["space_label"]
    out[at]["key"] = of["key"]
    out[at]["replica"] = 0
    out[at]["node"] = first


@part
def _first_of(nodes, holders, slots, numbers, node):
    """The node that begins the chain that this node is in."""
    holder = holders[nodes[node]["holder"]]
    key = nodes[node]["key"]
    return _node_of(
        slots[_find(nodes, holders, slots, numbers, holder["keyspace"], key, _place(key, holder["seed"]))],
        numbers,
    )


@part
def _touch_first(nodes, holders, slots, numbers, group):
    """As `_touch`, for the keys of a group of nodes and what follows these in their chains."""
    mask = np.int64(len(slots) - 1)
    read = np.uint32(0)
    for node in group:
        of = nodes[node]
        read += slots[np.int64(_place(of["key"], holders[of["holder"]]["seed"])) & mask]
    for node in group:
        of = nodes[node]
        slot = slots[np.int64(_place(of["key"], holders[of["holder"]]["seed"])) & mask]
        if slot != 0:
            read += np.uint32(nodes[_node_of(slot, numbers)]["mark"])
        if of["next"] != NONE:
            read += np.uint32(nodes[of["next"]]["mark"])
    return read


@part
def _sift_down(heap, at, size):
    """Put the order in `heap[0]` at or below `at` of a heap that begins at 1."""
    while 2 * at <= size:
        child = 2 * at
        if child < size and _precedes(heap, child + 1, heap, child):
            child += 1
        if not _precedes(heap, child, heap, 0):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = heap[0]


@part
def _push(heap, size):
    """Add the order in `heap[0]`; answers the new size."""
    at = size + 1
    while at > 1 and _precedes(heap, 0, heap, at >> 1):
        heap[at] = heap[at >> 1]
        at >>= 1
    heap[at] = heap[0]
    return size + 1


@part
def _pop(heap, size):
    """Take the first order out of a heap that is not empty; answers the new size."""
    heap[0] = heap[size]
    _sift_down(heap, 1, size - 1)
    return size - 1


@part
def _make_heap(heap, size):
    for at in range(size >> 1, 0, -1):
        heap[0] = heap[at]
        _sift_down(heap, at, size)


@kernel(types.void, *_table, _i64, _i32s, _i64, _u64, _orders, _orders)
def choose_bound(nodes, holders, slots, access, due, counts, tenant, candidates, rank, step, heap, bound):
    """Set `bound` to about the order that `rank` in len(heap) - 1 of the candidates are before.

    It is the one of that rank in a sample, which begins anywhere and goes on by an odd `step`.
    """
    by_key = tenant != ANY
    numbers = _number_mask(nodes)
    sample = len(heap) - 1
    at = np.uint64(0)
    for i in range(1, sample + 1):
        at += step
        node = np.int64(candidates[np.int64(at % np.uint64(len(candidates)))])
        if by_key:
            _order_key(nodes, holders, _first_of(nodes, holders, slots, numbers, node), heap, i)
        else:
            _order_hold(nodes, holders, access, node, heap, i)
    _make_heap(heap, sample)
    for _ in range(rank):
        sample = _pop(heap, sample)
    bound[0] = heap[1]


@kernel(_i64, *_table, _i64, _i32s, _orders, _orders)
def collect(nodes, holders, slots, access, due, counts, tenant, candidates, heap, bound):
    """Make a heap of all candidates that are not behind `bound`; answers its size, or -1 for want of room."""
    by_key = tenant != ANY
    numbers = _number_mask(nodes)
    latest = bound[0]["seen"] if bound[0]["count"] == 0 else NEVER
    group = np.empty(GROUP, np.int32)
    size, at = 0, 0
    while at < len(candidates):
        found = 0
        while at < len(candidates) and found < GROUP:
            node = np.int64(candidates[at])
            at += 1
            if _effective(nodes, holders, node) > latest:
                continue
            _order_hold(nodes, holders, access, node, heap, 0)
            if by_key:
                # A key is not before any of its holds: most are left out without a look at the key.
                heap[0]["count"] = np.uint32(0)
                heap[0]["replica"] = 0
            if _precedes(bound, 0, heap, 0):
                continue
            if by_key:
                group[found] = node
                found += 1
                continue
            if size + 1 == len(heap):
                return -1
            size += 1
            heap[size] = heap[0]
        counts[TOUCHED] += _touch_first(nodes, holders, slots, numbers, group[:found])
        for i in range(found):
            node = np.int64(group[i])
            if _first_of(nodes, holders, slots, numbers, node) != node:
                continue
            _order_key(nodes, holders, node, heap, 0)
            if _precedes(bound, 0, heap, 0):
                continue
            if size + 1 == len(heap):
                return -1
            size += 1
            heap[size] = heap[0]
    _make_heap(heap, size)
    return size


@kernel(_i64, *_table, _i64, _i64, _keys, _orders, _i64, _orders)
def offer(nodes, holders, slots, access, due, counts, tenant, holder, keys, heap, size, bound):
    """Add those of these keys, or of the holder's holds of them, that are not behind `bound`; there is room
    for all. Answers the new size.
    """
    numbers = _number_mask(nodes)
    of = holders[holder]
    by_key = tenant != ANY
    if not _is_of(holders, holder, tenant):
        return size
    for i in range(len(keys)):
        at = _find(nodes, holders, slots, numbers, of["keyspace"], keys[i], _place(keys[i], of["seed"]))
        node = _node_of(slots[at], numbers)
        if by_key:
            if node == NONE:
                continue
            _order_key(nodes, holders, node, heap, 0)
        else:
            while node != NONE and nodes[node]["holder"] != holder:
                node = np.int64(nodes[node]["next"])
            if node == NONE:
                continue
            _order_hold(nodes, holders, access, node, heap, 0)
        if not _precedes(bound, 0, heap, 0):
            size = _push(heap, size)
    return size


@kernel(_difference, *_table, _i64, _i64, _i64, _orders, _orders, _i64s, _i32s, _u64s, _i32s)
def evict(
    nodes, holders, slots, access, due, counts, tenant, most, most_holds, heap, bound, state,
    owners, keys, vanished,
):  # fmt: skip
    """Remove the first `most` holds of ANY tenant, or keys of one with all their holds, as long as the heap
    knows which and until `most_holds` are gone; a key goes as a whole.

    What has moved back since it was offered is put back there, or passed over when that is behind the
    bound; what has moved forward was offered again, and so was a hold that has come to use a node of one
    that is gone. `state` has the heap's size, and gets the number of holds or keys that went and the number
    of holds in the columns; stops also when these might not hold the next one's.
    """
    numbers = _number_mask(nodes)
    by_key = tenant != ANY
    entry, access_entry = _ZERO, _ZERO
    written, gone_keys, done = 0, 0, 0
    size = state[0]
    while done < most and written < most_holds and size > 0:
        node = np.int64(heap[1]["node"])
        is_valid = nodes[node]["holder"] != NONE and _is_of(holders, nodes[node]["holder"], tenant)
        if is_valid:
            if by_key:
                node = _first_of(nodes, holders, slots, numbers, node)
                _order_key(nodes, holders, node, heap, 0)
            else:
                _order_hold(nodes, holders, access, node, heap, 0)
            if _precedes(heap, 1, heap, 0) and not _precedes(bound, 0, heap, 0):
                _sift_down(heap, 1, size)
                continue
            is_valid = not _precedes(heap, 0, heap, 1) and not _precedes(heap, 1, heap, 0)
        if is_valid:
            holds = 1
            if by_key:
                holds = 0
                walk = node
                while walk != NONE:
                    holds += 1
                    walk = np.int64(nodes[walk]["next"])
            if written + holds > len(keys):
                break
            for _ in range(holds):
                following = np.int64(nodes[node]["next"])
                owners[written] = nodes[node]["holder"]
                keys[written] = nodes[node]["key"]
                gone, difference, access_difference = _remove_node(
                    nodes, holders, slots, access, counts, numbers, node
                )
                vanished[written] = gone
                written += 1
                gone_keys += gone
                entry -= difference
                access_entry -= access_difference
                node = following
            done += 1
        size = _pop(heap, size)
    state[0] = size
    state[1] = done
    state[2] = written
    return -written, -gone_keys, entry, access_entry
