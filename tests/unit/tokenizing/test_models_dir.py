"""Which models a directory holds, and what becomes of those that do not load."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import structlog.testing

from inferencecache.router.models_dir import find_models, is_model_id, load_models
from inferencecache.router.tokenizing import Refusal, Tokenizing
from tests.support.models import make_model


def touch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def loaded(root: Path | None) -> tuple[list[str], list[dict[str, Any]]]:
    with structlog.testing.capture_logs() as logs:
        models = load_models(root)
    return list(models), [dict(entry) for entry in logs]


@pytest.mark.rule("WIRE-174")
def test_a_model_is_a_folder_with_a_tokenizer_at_any_depth_named_by_its_path(tmp_path: Path) -> None:
    touch(tmp_path / "Qwen" / "Qwen2.5-0.5B-Instruct" / "tokenizer.json")
    touch(tmp_path / "flat" / "qwen.tiktoken")
    touch(tmp_path / "a" / "b" / "c" / "d" / "tokenizer.json")
    touch(tmp_path / "empty" / "config.json")
    found = find_models(tmp_path)
    assert list(found) == ["Qwen/Qwen2.5-0.5B-Instruct", "a/b/c/d", "flat"]
    assert found["flat"] == tmp_path / "flat"


@pytest.mark.rule("WIRE-174")
def test_nothing_is_searched_below_a_model_and_the_root_is_none(tmp_path: Path) -> None:
    touch(tmp_path / "tokenizer.json")
    touch(tmp_path / "model" / "tokenizer.json")
    touch(tmp_path / "model" / "inner" / "tokenizer.json")
    assert list(find_models(tmp_path)) == ["model"]


@pytest.mark.rule("WIRE-174")
def test_linked_folders_are_not_followed_and_linked_files_count(tmp_path: Path) -> None:
    real = tmp_path / "store" / "blob"
    touch(real / "tokenizer.json")
    root = tmp_path / "root"
    (root / "org").mkdir(parents=True)
    (root / "linked").symlink_to(real, target_is_directory=True)
    (root / "org" / "tokenizer.json").symlink_to(real / "tokenizer.json")
    (root / "broken").mkdir()
    (root / "broken" / "tokenizer.json").symlink_to(tmp_path / "gone")
    (root / "folder" / "tokenizer.json").mkdir(parents=True)
    assert list(find_models(root)) == ["org"]


@pytest.mark.rule("WIRE-174")
def test_what_cannot_be_read_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path / "model" / "tokenizer.json")
    touch(tmp_path / "closed" / "inner" / "tokenizer.json")
    scandir = os.scandir

    def refuse_closed(path: Path | os.DirEntry[str]) -> Any:
        if path.name == "closed":  # permissions do not hold a test that runs as root
            raise PermissionError
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse_closed)
    assert list(find_models(tmp_path)) == ["model"]


@pytest.mark.rule("WIRE-176")
@pytest.mark.parametrize(
    "text",
    ["", "/m", "m/", "a//b", ".", "..", "a/../b", "./m", "a/.", "a\\b", "C:/m", "c:m", "//host/m"],
)
def test_ids_that_are_no_clean_relative_path_are_no_models(text: str) -> None:
    assert not is_model_id(text)


@pytest.mark.rule("WIRE-176")
@pytest.mark.parametrize("text", ["m", "Qwen/Qwen2.5-0.5B-Instruct", ".hidden/m", "a..b", "ä/ö", "ab:c"])
def test_clean_relative_paths_are_ids(text: str) -> None:
    assert is_model_id(text)


@pytest.mark.rule("WIRE-174", "WIRE-176")
def test_a_folder_whose_name_no_request_can_carry_is_left_out(tmp_path: Path) -> None:
    touch(tmp_path / "a\\b" / "tokenizer.json")
    touch(tmp_path / "C:" / "m" / "tokenizer.json")
    with contextlib.suppress(OSError):  # some systems allow no such name
        touch(tmp_path / os.fsdecode(b"\xff") / "tokenizer.json")
    assert find_models(tmp_path) == {}


@pytest.mark.rule("WIRE-173")
def test_without_a_directory_there_are_no_tokenizers_and_nothing_is_said() -> None:
    assert loaded(None) == ([], [])


@pytest.mark.rule("WIRE-175")
def test_a_missing_directory_is_logged_and_the_start_goes_on(tmp_path: Path) -> None:
    models, logs = loaded(tmp_path / "gone")
    assert models == []
    (entry,) = logs
    assert entry["event"] == "tokenizer_models_dir_unreadable"
    assert entry["hint"] == "check --tokenizer-models-dir"


@pytest.mark.rule("WIRE-175")
def test_a_model_that_does_not_load_is_logged_and_left_out(tmp_path: Path) -> None:
    make_model(tmp_path / "good")
    make_model(tmp_path / "bad-template", template="{% if %}")
    make_model(tmp_path / "bare", template=None)
    touch(tmp_path / "empty" / "tokenizer.json")
    touch(tmp_path / "ranks" / "o200k.tiktoken")
    models, logs = loaded(tmp_path)
    assert models == ["bare", "good"]
    failed = {
        entry["model"]: entry["error"] for entry in logs if entry["event"] == "tokenizer_failed_to_load"
    }
    assert failed.keys() == {"bad-template", "empty", "ranks"}
    assert "convert the model's *.tiktoken file" in failed["ranks"]
    assert [entry["model"] for entry in logs if entry["event"] == "tokenizer_without_chat_template"] == [
        "bare"
    ]


@pytest.mark.rule("WIRE-177", "OPS-14")
@pytest.mark.parametrize("library", ["tokenizers", "jinja2"])
async def test_without_the_libraries_a_warning_says_so_and_every_text_fails_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    make_model(tmp_path / "m")
    monkeypatch.setitem(sys.modules, library, None)
    for module in ("tokenizers", "chat_template"):
        monkeypatch.delitem(sys.modules, f"inferencecache.router.{module}", raising=False)
    models, logs = loaded(tmp_path)
    assert models == []
    (entry,) = logs
    assert (entry["event"], entry["log_level"]) == ("tokenizer_models_dir_ignored", "warning")
    assert entry["missing"] == library
    assert (await Tokenizing({}).prompt("m", "hello")).refusal is Refusal.NO_TOKENIZER
