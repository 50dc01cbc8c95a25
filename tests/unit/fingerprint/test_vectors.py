"""The frozen fingerprint, against vectors shared with other implementations."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from xxhash import xxh3_64_hexdigest

from inferencecache.core.fingerprint import (
    SEED,
    content_hashes,
    prefix_digests,
    prefix_hashes,
    roll,
    wire_form,
)

DATA = json.loads((Path(__file__).parents[2] / "data" / "fingerprint_vectors.json").read_text())


def tokens_of(form: dict[str, Any]) -> list[int]:
    if "ids" in form:
        return list(form["ids"])
    if "range" in form:
        start, count = form["range"]
        return list(range(start, start + count))
    if "repeat" in form:
        block, times = form["repeat"]
        return list(block * times)
    seed, count = form["lcg"]
    tokens = []
    for _ in range(count):
        seed = (1664525 * seed + 1013904223) % 2**32
        tokens.append(seed)
    return tokens


def sha256_of(hashes: Sequence[int]) -> str:
    return hashlib.sha256(b"".join(wire_form(hashes))).hexdigest()


def hex_of(hashes: Sequence[int]) -> list[str]:
    return [digest.hex() for digest in wire_form(hashes)]


def test_the_file_holds_all_37_vectors() -> None:
    assert len(DATA["vectors"]) == 37


@pytest.mark.rule("WIRE-150", "WIRE-151", "WIRE-152", "WIRE-153", "WIRE-154", "WIRE-157", "WIRE-163")
@pytest.mark.parametrize("vector", DATA["vectors"], ids=lambda vector: vector["id"])
def test_every_vector_is_reproduced(vector: dict[str, Any]) -> None:
    tokens = tokens_of(vector["tokens"])
    assert len(tokens) == vector["token_count"]
    parent = None if vector["parent"] is None else int(vector["parent"], 16)

    contents = content_hashes(tokens, vector["block_size"])
    prefixes = prefix_hashes(tokens, vector["block_size"], parent)

    assert len(contents) == len(prefixes) == vector["blocks"]
    if "content" in vector:
        assert hex_of(contents) == vector["content"]
        assert hex_of(prefixes) == vector["prefix"]
    else:
        assert sha256_of(contents) == vector["content_sha256"]
        assert sha256_of(prefixes) == vector["prefix_sha256"]
        assert {at: hex_of(prefixes)[int(at)] for at in vector["prefix_at"]} == vector["prefix_at"]
    assert (hex_of(prefixes)[-1] if prefixes else None) == vector["exact_key"]
    assert prefix_digests(tokens, vector["block_size"], parent) == wire_form(prefixes)


@pytest.mark.rule("WIRE-150", "WIRE-153", "WIRE-163")
def test_primitive_values_are_reproduced() -> None:
    assert xxh3_64_hexdigest(b"", SEED) == DATA["primitives"]["content_of_no_tokens"]
    for case in DATA["primitives"]["roll"]:
        assert roll(bytes.fromhex(case["prev"]), bytes.fromhex(case["content"])).hex() == case["out"]


@pytest.mark.rule("WIRE-164", "WIRE-165", "WIRE-166")
def test_frozen_anchors_are_reproduced() -> None:
    assert content_hashes(range(1, 17), 16) == [16863443419780771464]
    assert prefix_hashes(range(64), 16)[3] == 3888788807566526800
    assert prefix_hashes(range(50, 82), 16, 0xDEADBEEF)[1] == 2998384554010166533


@pytest.mark.rule("WIRE-C46", "WIRE-152")
@pytest.mark.parametrize("end", [16, 17, 31])
def test_tokens_that_fill_no_block_are_dropped(end: int) -> None:
    assert hex_of(prefix_hashes(range(1, end + 1), 16)) == ["ea06fc71a5ee6e88"]


@pytest.mark.rule("WIRE-C47", "WIRE-151", "WIRE-153")
def test_equal_blocks_have_one_content_hash_and_different_prefix_hashes() -> None:
    tokens = list(range(1, 17)) * 3
    assert hex_of(content_hashes(tokens, 16)) == ["ea06fc71a5ee6e88"] * 3
    assert hex_of(prefix_hashes(tokens, 16)) == ["ea06fc71a5ee6e88", "eb30612236f944a8", "6fa059d7eeaf281d"]


@pytest.mark.rule("WIRE-C48", "WIRE-154")
def test_a_suffix_chained_from_its_parent_equals_the_whole() -> None:
    whole = prefix_hashes(range(1000, 1080), 16)
    suffix = prefix_hashes(range(1048, 1080), 16, 0xCF4F246CBCC8787B)
    assert whole[-2:] == suffix
    assert hex_of(suffix) == ["0a0edb4669bfb130", "38f905944df7d6fe"]


@pytest.mark.rule("WIRE-155")
def test_the_wire_form_is_big_endian() -> None:
    assert wire_form([1, 0xEA06FC71A5EE6E88]) == [bytes(7) + b"\x01", bytes.fromhex("ea06fc71a5ee6e88")]


def test_a_token_id_that_is_no_uint32_is_refused() -> None:
    for token in (-1, 2**32):
        with pytest.raises(OverflowError):
            prefix_hashes([token], 1)


def test_a_prompt_of_32k_tokens_takes_about_a_millisecond() -> None:
    tokens = [(token * 7919) % 150_000 for token in range(32_768)]
    best = min(_seconds(tokens) for _ in range(20))
    # The target is 1 ms; the guard leaves room for a busy machine and still notices a slow path.
    assert best < 0.005


def _seconds(tokens: list[int]) -> float:
    start = time.perf_counter()
    prefix_digests(tokens, 16)
    return time.perf_counter() - start
