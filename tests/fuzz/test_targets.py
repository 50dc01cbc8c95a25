from __future__ import annotations

from random import Random
from typing import Final

import msgspec
import pytest

from tests.fuzz.campaign import NAMES, FuzzFailureError, run
from tests.fuzz.driver import fuzz
from tests.fuzz.mutation import Message, join, mutate_bytes, mutate_msgpack, split
from tests.fuzz.target import Target

SECONDS: Final = 10.0
SEED: Final = 1


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", NAMES)
def test_no_input_makes_the_product_misbehave(name: str) -> None:
    assert run(name, SEED, SECONDS) > 20


def test_a_failure_is_found_and_its_input_made_short() -> None:
    def fail(data: bytes) -> None:
        if b"!" in data:
            raise ValueError("found")

    def mutate(random: Random, data: bytes) -> bytes:
        return data + random.choice((b"a", b"!"))

    noted: list[bytes] = []
    target = Target(fail, lambda: [b"seed"], mutate)
    result = fuzz(target, SEED, 10.0, 10_000, noted.append)
    assert result.failure is not None
    assert result.failure.input == b"!"
    assert "ValueError: found" in result.failure.trace
    assert result.inputs == len(noted)
    again: list[bytes] = []
    fuzz(target, SEED, 10.0, 10_000, again.append)
    assert again[: len(noted)] == noted, "the seed decides the inputs"


def test_any_bytes_are_a_script_and_scripts_survive_the_trip() -> None:
    messages = [Message(7, b"abc"), Message(255, b""), Message(0, b"\0" * 300)]
    assert split(join(messages)) == messages
    random = Random(SEED)
    data = join(messages)
    for _ in range(500):
        data = mutate_bytes(random, data)[:2000]
        assert split(join(split(data))) == split(data)


def test_mutated_trees_are_mostly_trees() -> None:
    random = Random(SEED)
    payload = msgspec.msgpack.encode(["a", 1, b"bytes", [2.5, {"k": [1, 2]}]])
    read = 0
    for _ in range(300):
        try:
            msgspec.msgpack.decode(mutate_msgpack(random, payload))
        except msgspec.DecodeError:
            continue
        read += 1
    assert read > 200


def test_a_process_that_dies_is_a_failure_with_its_last_input() -> None:
    with pytest.raises(FuzzFailureError, match=r"exit code -9(.|\n)*--input ff$"):
        run("deadly", SEED, 60.0)
