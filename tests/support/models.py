"""Tokenizers made in the test: a model's folder with a small vocabulary and a chat template."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

TEMPLATE: Final = (
    "{{ bos_token }}\n"
    "{% for message in messages %}\n"
    "    {% if message.role == 'user' %}\n"
    "<|user|>{{ message.content }}{{ eos_token }}\n"
    "    {% endif %}\n"
    "{% endfor %}\n"
    "{% if add_generation_prompt %}\n"
    "<|assistant|>\n"
    "{%- endif %}\n"
)
SPECIAL: Final = ["<s>", "</s>", "<|user|>", "<|assistant|>"]
CORPUS: Final = ["the quick brown fox jumps over the lazy dog", "a prefix that many requests share"]


def small_tokenizer() -> Tokenizer:
    """Byte-level BPE, so any text has tokens; special tokens are added around a text unless asked not to."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(
            vocab_size=400,
            special_tokens=SPECIAL,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
    )
    return tokenizer


def make_model(folder: Path, *, template: str | None = TEMPLATE, **config: Any) -> Tokenizer:
    """Write a model into `folder` and return its tokenizer; `config` goes to tokenizer_config.json."""
    folder.mkdir(parents=True)
    tokenizer = small_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    written: dict[str, Any] = {"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": False}}
    if template is not None:
        written["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(written | config))
    return tokenizer
