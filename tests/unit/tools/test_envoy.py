"""Envoy is the environment's own, else that of the path."""

from __future__ import annotations

import shutil
import sysconfig
from pathlib import Path

import pytest

from inferencecache.cli.stack.gateway import envoy_program, examples
from inferencecache.cli.stack.plan import HOST, ROUTERS, StackSettings
from tools import envoy

ROOT = Path(__file__).parents[3]


def test_the_environments_own_is_used_before_the_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path / "scripts"))
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert not envoy.present()
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/envoy")
    assert envoy_program() == "/usr/bin/envoy"
    own = tmp_path / "scripts" / "envoy"
    own.parent.mkdir()
    own.touch(mode=0o755)
    assert envoy_program() == str(own)


def test_the_examples_are_what_the_demo_runs_on_well_known_ports() -> None:
    for name, text in examples(HOST, StackSettings.engines, ROUTERS).items():
        assert (ROOT / "deploy" / "examples" / name).read_text() == text
