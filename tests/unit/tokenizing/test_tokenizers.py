"""Text to token ids."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from inferencecache.router.tokenizers import NoChatTemplateError, load_tokenizer
from tests.support.models import make_model, small_tokenizer

RENDERED = "<s>\n<|user|>the quick fox</s>\n<|assistant|>"


@pytest.mark.rule("WIRE-170", "WIRE-171")
def test_a_prompt_has_the_special_tokens_of_its_template_and_no_others(tmp_path: Path) -> None:
    reference = make_model(tmp_path / "m")
    ids = load_tokenizer(tmp_path / "m").encode_prompt("the quick fox")
    assert ids == reference.encode(RENDERED, add_special_tokens=False).ids
    assert [reference.id_to_token(id_) for id_ in ids].count("<s>") == 1
    assert reference.decode(ids, skip_special_tokens=False).count("<|user|>") == 1


@pytest.mark.rule("WIRE-172")
def test_a_prompt_that_is_rendered_already_is_content_like_any_other(tmp_path: Path) -> None:
    reference = make_model(tmp_path / "m")
    twice = f"<s>\n<|user|>{RENDERED}</s>\n<|assistant|>"
    expected = reference.encode(twice, add_special_tokens=False).ids
    assert load_tokenizer(tmp_path / "m").encode_prompt(RENDERED) == expected


def test_a_text_is_encoded_as_an_engine_encodes_a_completions_prompt(tmp_path: Path) -> None:
    reference = make_model(tmp_path / "m", template=None)
    tokenizer = load_tokenizer(tmp_path / "m")
    ids = tokenizer.encode_text("the quick fox")
    assert ids == reference.encode("the quick fox").ids
    assert ids[0] == reference.token_to_id("<s>")
    with pytest.raises(NoChatTemplateError):
        tokenizer.encode_prompt("the quick fox")


def test_cutting_and_padding_that_a_file_asks_for_are_not_done(tmp_path: Path) -> None:
    reference = make_model(tmp_path / "m")
    cut = Tokenizer.from_file(str(tmp_path / "m" / "tokenizer.json"))
    cut.enable_truncation(4)
    cut.enable_padding(length=512)
    cut.save(str(tmp_path / "m" / "tokenizer.json"))
    ids = load_tokenizer(tmp_path / "m").encode_text("the quick brown fox jumps over the lazy dog")
    assert ids == reference.encode("the quick brown fox jumps over the lazy dog").ids


@pytest.mark.rule("WIRE-178")
def test_equal_prompts_give_equal_ids_from_any_number_of_threads(tmp_path: Path) -> None:
    make_model(tmp_path / "m")
    tokenizer = load_tokenizer(tmp_path / "m")
    prompts = [f"prompt number {number % 7} over the lazy dog" for number in range(200)]
    with ThreadPoolExecutor(16) as pool:
        made = list(pool.map(tokenizer.encode_prompt, prompts))
    assert made == [load_tokenizer(tmp_path / "m").encode_prompt(prompt) for prompt in prompts]


def test_other_threads_run_while_a_long_text_is_encoded(tmp_path: Path) -> None:
    make_model(tmp_path / "m")
    tokenizer = load_tokenizer(tmp_path / "m")
    text = "the quick brown fox jumps over the lazy dog\n" * 8_000
    took_s = 0.0

    def encode() -> None:
        nonlocal took_s
        began = time.perf_counter()
        tokenizer.encode_text(text)
        took_s = time.perf_counter() - began

    encoding = threading.Thread(target=encode)
    turns = 0
    encoding.start()
    while encoding.is_alive():
        encoding.join(0.001)
        turns += 1
    assert took_s > 0.02, "too fast to tell: encode a longer text"
    assert turns > 5


def test_the_small_tokenizer_of_the_tests_is_the_same_each_time() -> None:
    assert small_tokenizer().to_str() == small_tokenizer().to_str()
