"""A paged block cache: which prefixes an engine can reuse, and what it has to evict for a new one.

Memory is a fixed number of blocks of `block_size` tokens. A running request holds its blocks; when
it ends they stay, named by the hash of everything up to their end, until their memory is needed:
the longest unused block goes first, and of one request its last block before its first. A hash names
at most one block, and the parent of a named block is always named.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import NamedTuple

BlockHash = bytes
"""SHA-256 over the parent's hash and the block's token ids, 32 bytes."""


class PromptTooLongError(ValueError):
    """The request needs more blocks than the whole cache has; waiting would not help."""

    def __init__(self, needed: int, capacity: int) -> None:
        super().__init__(
            f"the request needs {needed} blocks, the cache has {capacity}: send a shorter prompt, "
            "ask for fewer tokens or raise --num-blocks"
        )
        self.needed = needed
        self.capacity = capacity


class Stored(NamedTuple):
    """Consecutive blocks that became reusable; `parent` is None at the start of a sequence.

    `adapter` is the LoRA adapter that they were computed with, empty for none.
    """

    hashes: tuple[BlockHash, ...]
    parent: BlockHash | None
    tokens: tuple[int, ...]
    adapter: str = ""


class CachedBlock(NamedTuple):
    """One reusable block as it is now."""

    hash: BlockHash
    parent: BlockHash | None
    tokens: tuple[int, ...]


class Allocation:
    """The blocks of one running request, room for its answer included."""

    __slots__ = ("adapter", "blocks", "cached_tokens", "evicted", "hashes", "named", "tokens")

    def __init__(
        self,
        tokens: array[int],
        adapter: str,
        blocks: list[int],
        hashes: list[BlockHash],
        cached_tokens: int,
    ) -> None:
        self.tokens = tokens
        self.adapter = adapter
        self.blocks = blocks
        self.hashes = hashes
        self.cached_tokens = cached_tokens
        """Leading tokens of the prompt that need no computation."""
        self.evicted: tuple[BlockHash, ...] = ()
        """What had to go to make room for this request."""
        self.named = 0
        """How many leading blocks are reusable by others."""


class BlockCache:
    """The cache of one engine. `root` seeds its hashes, as an engine seeds its own: no two need agree."""

    def __init__(self, capacity: int, block_size: int, root: bytes = b"") -> None:
        if capacity < 1 or block_size < 1:
            raise ValueError(f"{capacity} blocks of {block_size} tokens: both must be at least 1")
        self.capacity = capacity
        self.block_size = block_size
        self._root = sha256(root).digest()
        self._holders = [0] * capacity
        self._names: list[CachedBlock | None] = [None] * capacity
        self._by_hash: dict[BlockHash, int] = {}
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(capacity))

    def allocate(self, prompt: Sequence[int], answer_tokens: int = 0, adapter: str = "") -> Allocation | None:
        """Take blocks for a prompt and its answer; None while running requests hold too many.

        Blocks of one adapter are of no use to another.

        At least the last token of a prompt is computed, cached or not, since the first token of the
        answer comes from it. Raises `PromptTooLongError` when waiting would not help.
        """
        needed = -(-(len(prompt) + answer_tokens) // self.block_size)
        if needed > self.capacity:
            raise PromptTooLongError(needed, self.capacity)
        tokens = array("I", prompt)
        hashes = self._chain(tokens, adapter)
        cached = self._longest_cached(hashes[: max(0, len(prompt) - 1) // self.block_size])
        idle = sum(1 for block in cached if not self._holders[block])
        if needed - len(cached) > len(self._free) - idle:
            return None
        for block in cached:
            self._hold(block)
        allocation = Allocation(tokens, adapter, cached, hashes, len(cached) * self.block_size)
        allocation.named = len(cached)
        evicted: list[BlockHash] = []
        for _ in range(needed - len(cached)):
            block = next(iter(self._free))
            name = self._names[block]
            if name is not None:
                self._forget(block, name)
                evicted.append(name.hash)
            self._hold(block)
            allocation.blocks.append(block)
        allocation.evicted = tuple(evicted)
        return allocation

    def append(self, allocation: Allocation, token: int) -> None:
        """Add one token of the answer; room for it was taken at the start."""
        if len(allocation.tokens) >= len(allocation.blocks) * self.block_size:
            raise ValueError("the answer is longer than the room that was allocated for it")
        allocation.tokens.append(token)
        if len(allocation.tokens) % self.block_size == 0:
            start = len(allocation.tokens) - self.block_size
            parent = allocation.hashes[-1] if allocation.hashes else self._root_of(allocation.adapter)
            allocation.hashes.append(_hash(parent, allocation.tokens[start:]))

    def store(self, allocation: Allocation) -> list[Stored]:
        """Make the computed full blocks reusable. A block that another request stored meanwhile is shared."""
        runs: list[Stored] = []
        run_start = allocation.named
        for index in range(allocation.named, len(allocation.hashes)):
            hash_ = allocation.hashes[index]
            twin = self._by_hash.get(hash_)
            if twin is None:
                block = allocation.blocks[index]
                self._by_hash[hash_] = block
                self._names[block] = self._describe(allocation, index)
                continue
            self._share(allocation, index, twin)
            runs.extend(self._run(allocation, run_start, index))
            run_start = index + 1
        runs.extend(self._run(allocation, run_start, len(allocation.hashes)))
        allocation.named = len(allocation.hashes)
        return runs

    def release(self, allocation: Allocation) -> None:
        """End a request: its blocks may be evicted from now on, the last one first."""
        for block in reversed(allocation.blocks):
            self._let_go(block)
        allocation.blocks.clear()

    def clear(self) -> bool:
        """Forget every block; refused while a request runs, as engines do."""
        if self.blocks_in_use:
            return False
        for block, name in enumerate(self._names):
            if name is not None:
                self._forget(block, name)
        return True

    def hashes_of(self, tokens: Sequence[int], adapter: str = "") -> list[BlockHash]:
        """The hashes of a prefix's full blocks, cached or not."""
        return self._chain(array("I", tokens), adapter)

    def __len__(self) -> int:
        """Number of reusable blocks."""
        return len(self._by_hash)

    def __iter__(self) -> Iterator[CachedBlock]:
        return (name for name in self._names if name is not None)

    @property
    def blocks_in_use(self) -> int:
        """Blocks that running requests hold."""
        return self.capacity - len(self._free)

    def _longest_cached(self, hashes: Sequence[BlockHash]) -> list[int]:
        found: list[int] = []
        for hash_ in hashes:
            block = self._by_hash.get(hash_)
            if block is None:
                break
            found.append(block)
        return found

    def _run(self, allocation: Allocation, start: int, end: int) -> Iterator[Stored]:
        if start < end:
            size = self.block_size
            parent = allocation.hashes[start - 1] if start else None
            tokens = tuple(allocation.tokens[start * size : end * size])
            yield Stored(tuple(allocation.hashes[start:end]), parent, tokens, allocation.adapter)

    def _describe(self, allocation: Allocation, index: int) -> CachedBlock:
        size = self.block_size
        parent = allocation.hashes[index - 1] if index else None
        tokens = tuple(allocation.tokens[index * size : (index + 1) * size])
        return CachedBlock(allocation.hashes[index], parent, tokens)

    def _share(self, allocation: Allocation, index: int, twin: int) -> None:
        self._hold(twin)
        self._let_go(allocation.blocks[index])
        allocation.blocks[index] = twin

    def _hold(self, block: int) -> None:
        if not self._holders[block]:
            del self._free[block]
        self._holders[block] += 1

    def _let_go(self, block: int) -> None:
        self._holders[block] -= 1
        if not self._holders[block]:
            self._free[block] = None
            if self._names[block] is None:
                self._free.move_to_end(block, last=False)

    def _forget(self, block: int, name: CachedBlock) -> None:
        del self._by_hash[name.hash]
        self._names[block] = None

    def _root_of(self, adapter: str) -> BlockHash:
        return sha256(self._root + adapter.encode()).digest() if adapter else self._root

    def _chain(self, tokens: array[int], adapter: str) -> list[BlockHash]:
        hashes: list[BlockHash] = []
        parent = self._root_of(adapter)
        size = self.block_size
        for start in range(0, len(tokens) - size + 1, size):
            parent = _hash(parent, tokens[start : start + size])
            hashes.append(parent)
        return hashes


def _hash(parent: BlockHash, tokens: array[int]) -> BlockHash:
    return sha256(parent + tokens.tobytes()).digest()
