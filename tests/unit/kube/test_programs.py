"""Credentials that a program of the kubeconfig gives, and the file that is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from inferencecache.core.kube import programs
from inferencecache.core.kube.access import (
    ClusterAccessError,
    access_to_cluster,
    find_kubeconfig,
    is_in_cluster,
)
from tests.support.webhooks import TLS_DATA


def config(folder: Path, program: dict[str, Any]) -> Path:
    path = folder / "config"
    document = {
        "clusters": [{"name": "c", "cluster": {"server": "https://a"}}],
        "users": [{"name": "u", "user": {"exec": program}}, {"name": "plain", "user": {"token": "p"}}],
        "contexts": [
            {"name": "x", "context": {"cluster": "c", "user": "u"}},
            {"name": "other", "context": {"cluster": "c", "user": "plain"}},
        ],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(document))
    return path


def giving(folder: Path, status: dict[str, str], before: str = "") -> dict[str, Any]:
    """A program that answers with this status."""
    (folder / "answer").write_text(json.dumps({"kind": "ExecCredential", "status": status}))
    script = folder / "give"
    script.write_text(f'#!/bin/sh\n{before}\ntest "$1" = --now -a "$WHO" = me && cat {folder}/answer\n')
    script.chmod(0o755)
    return {"command": str(script), "args": ["--now"], "env": [{"name": "WHO", "value": "me"}]}


def test_a_program_gives_a_token(tmp_path: Path) -> None:
    path = config(tmp_path, giving(tmp_path, {"token": "t"}))
    assert access_to_cluster(path, with_programs=True).headers == {"Authorization": "Bearer t"}


def test_a_program_gives_a_certificate(tmp_path: Path) -> None:
    pair = {
        "clientCertificateData": (TLS_DATA / "first.crt").read_text(),
        "clientKeyData": (TLS_DATA / "first.key").read_text(),
    }
    access = access_to_cluster(config(tmp_path, giving(tmp_path, pair)), with_programs=True)
    assert access.headers == {}


def test_what_runs_on_runs_no_program(tmp_path: Path) -> None:
    with pytest.raises(ClusterAccessError, match="exec"):
        access_to_cluster(config(tmp_path, giving(tmp_path, {"token": "t"})))


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        ({"command": "no-such-program", "installHint": "get it"}, "get it"),
        ({"command": "false"}, "ends with 1"),
        ({"command": "echo", "args": ["{}"]}, "no credentials"),
    ],
)
def test_a_program_that_gives_none_is_named(tmp_path: Path, program: dict[str, Any], problem: str) -> None:
    with pytest.raises(ClusterAccessError, match=problem):
        access_to_cluster(config(tmp_path, program), with_programs=True)


def test_a_program_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "LIMIT_S", 0.2)
    program = {"command": "sleep", "args": ["60"]}
    with pytest.raises(ClusterAccessError, match="no answer"):
        access_to_cluster(config(tmp_path, program), with_programs=True)


def test_another_context_than_the_current_one_can_be_named(tmp_path: Path) -> None:
    path = config(tmp_path, {"command": "false"})
    assert access_to_cluster(path, context="other").headers == {"Authorization": "Bearer p"}
    with pytest.raises(ClusterAccessError, match="nowhere"):
        access_to_cluster(path, context="nowhere")


def test_the_file_is_found_where_kubectl_finds_it(tmp_path: Path) -> None:
    assert find_kubeconfig({"HOME": str(tmp_path)}) is None
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").touch()
    (tmp_path / "named").touch()
    assert find_kubeconfig({"HOME": str(tmp_path)}) == tmp_path / ".kube" / "config"
    listed = {"HOME": str(tmp_path), "KUBECONFIG": f"{tmp_path}/missing:{tmp_path}/named"}
    assert find_kubeconfig(listed) == tmp_path / "named"
    assert find_kubeconfig({"KUBECONFIG": "/missing"}) is None


def test_a_pod_is_known_by_its_variables() -> None:
    assert is_in_cluster({"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    assert not is_in_cluster({})
