"""The models directory: which tokenizers a router has, found and loaded once at start [WIRE-173].

A lookup never touches a file: its model id is only compared with the ids that were found.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from inferencecache.core.gateway import Chat
from inferencecache.core.service import get_logger

log = get_logger("tokenizers")

_MARKER: Final = "tokenizer.json"
_TIKTOKEN: Final = ".tiktoken"
_DRIVE: Final = re.compile(r"[A-Za-z]:")
_LIBRARIES: Final = ("jinja2", "tokenizers")


class PromptTokenizer(Protocol):
    """What tokenizing needs of a model. Calls may come from several threads at once."""

    def encode_prompt(self, prompt: str) -> list[int]:
        """Ids of a prompt as one chat message."""
        ...

    def encode_chat(self, chat: Chat) -> list[int]:
        """Ids of a chat of any length."""
        ...

    def encode_text(self, text: str) -> list[int]:
        """Ids of a text as it is."""
        ...


def is_model_id(text: str) -> bool:
    """Whether the text is a clean relative path with `/`, which ids of loaded models are [WIRE-176]."""
    if "\\" in text or _DRIVE.match(text):
        return False
    return all(segment not in ("", ".", "..") for segment in text.split("/"))


def find_models(root: Path) -> dict[str, Path]:
    """Folders of models by id, in order [WIRE-174].

    Raises `OSError` when the root itself cannot be read; what cannot be read below it is skipped.
    """
    found: dict[str, Path] = {}
    waiting = [("", list(os.scandir(root)))]
    while waiting:
        prefix, entries = waiting.pop()
        if prefix and any(map(_is_marker, entries)):
            if is_model_id(prefix) and _is_unicode(prefix):
                found[prefix] = root / prefix
            continue
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(
                        (f"{prefix}/{entry.name}" if prefix else entry.name, list(os.scandir(entry)))
                    )
            except OSError:
                continue
    return dict(sorted(found.items()))


def _is_unicode(name: str) -> bool:
    """Whether a file system's name can be an id on the wire."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_marker(entry: os.DirEntry[str]) -> bool:
    try:
        return (entry.name == _MARKER or entry.name.endswith(_TIKTOKEN)) and entry.is_file()
    except OSError:
        return False


def load_models(root: Path | None) -> Mapping[str, PromptTokenizer]:
    """Every tokenizer below `root`; none without a root, libraries or models, and then a warning says why.

    Takes seconds for large vocabularies: call it before serving, in a thread. Whatever a model's files
    hold, it is left out rather than the start ended [WIRE-175, WIRE-177].
    """
    if root is None:
        return {}
    try:
        from inferencecache.router.tokenizers import load_tokenizer  # noqa: PLC0415 - an optional extra
    except ModuleNotFoundError as error:
        if error.name not in _LIBRARIES:
            raise
        log.warning(
            "tokenizer_models_dir_ignored",
            missing=error.name,
            hint="install the extra: pip install 'inference-cache-router[text]'",
        )
        return {}
    try:
        folders = find_models(root)
    except OSError as error:
        log.warning("tokenizer_models_dir_unreadable", error=str(error), hint="check --tokenizer-models-dir")
        return {}
    models: dict[str, PromptTokenizer] = {}
    for model, folder in folders.items():
        try:
            tokenizer = load_tokenizer(folder)
        except BaseException as error:  # the library's panics are no Exception
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            log.warning("tokenizer_failed_to_load", model=model, error=f"{type(error).__name__}: {error}")
            continue
        if not tokenizer.has_chat_template:
            log.warning("tokenizer_without_chat_template", model=model, effect="prompt_text gets NO_HINT")
        models[model] = tokenizer
    log.info("tokenizers_loaded", models=list(models))
    return models
