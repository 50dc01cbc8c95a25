"""The programs of a control plane: taken where the field has them, else built once from published modules."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import kube
from tools.cache import CACHE_VARIABLE, cache_folder

PROGRAM = kube.PROGRAMS[1]
PUBLISHED = {
    "Go": "1.24.0",
    "Godebug": [{"Key": "default", "Value": "go1.24"}],
    "Replace": [
        {"Old": {"Path": "k8s.io/api"}, "New": {"Path": "./staging/src/k8s.io/api"}},
        {"Old": {"Path": "example.com/tests"}, "New": {"Path": "../tests"}},
    ],
}
GO = """
import json, pathlib, sys
match sys.argv[1:]:
    case ["mod", "download", "-json", module]:
        print(json.dumps({"GoMod": module + "/go.mod"}))
    case ["mod", "edit", "-json", path]:
        print(json.dumps(PUBLISHED))
    case ["build", *_, "-o", path, package]:
        if "fails" in pathlib.Path("go.mod").read_text():
            sys.exit("cannot find module")
        for number in range(250):
            print("example.com/package", file=sys.stderr)
        pathlib.Path(path).write_text(package + chr(10) + pathlib.Path("go.mod").read_text())
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.delenv(kube.ASSETS_VARIABLE, raising=False)
    return cache_folder("kube")


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `go` that tells what was asked of it instead of compiling."""
    folder = tmp_path / "programs"
    folder.mkdir()
    script = folder / "go"
    script.write_text(f"#!{sys.executable}\nPUBLISHED = {json.loads(json.dumps(PUBLISHED))!r}\n{GO}")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.usefixtures("go")
def test_a_program_is_built_once_from_modules_instead_of_absent_folders(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not kube.present([PROGRAM])
    kube.build([PROGRAM])
    assert kube.present([PROGRAM])
    told = capsys.readouterr().out
    assert "1 of 1: kube-apiserver v1.34.4" in told
    assert told.count("packages compiled") == 2
    program = kube.find("kube-apiserver")
    assert program == cache / "kube-apiserver-v1.34.4" / "kube-apiserver"
    assert program.read_text().splitlines() == [
        "k8s.io/kubernetes/cmd/kube-apiserver",
        "module build",
        "go 1.24.0",
        "require k8s.io/kubernetes v1.34.4",
        "godebug default=go1.24",
        "replace k8s.io/api => k8s.io/api v0.34.4",
    ]
    assert not [path for path in cache.iterdir() if path.name.startswith(".build")]
    kube.build([PROGRAM])
    assert "1 of 1" not in capsys.readouterr().out


@pytest.mark.usefixtures("go")
def test_a_build_that_fails_leaves_nothing(cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    broken = PROGRAM._replace(module="example.com/fails")
    with pytest.raises(subprocess.CalledProcessError):
        kube.build([broken])
    assert "cannot find module" in capfd.readouterr().err
    assert not kube.present([broken])
    assert [path.name for path in cache.iterdir()] == [".lock"]


def test_a_folder_of_assets_comes_first_and_may_lack_some(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assets = tmp_path / "assets"
    assets.mkdir()
    monkeypatch.setenv(kube.ASSETS_VARIABLE, str(assets))
    assert kube.find("etcd") is None
    built = cache / "etcd-v3.6.16" / "etcd"
    built.parent.mkdir(parents=True)
    built.touch()
    assert kube.find("etcd") == built
    (assets / "etcd").touch()
    assert kube.find("etcd") == assets / "etcd"


def test_without_go_it_is_said_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert kube.main() == 1
    told = capsys.readouterr().out
    assert "install Go" in told
    assert kube.ASSETS_VARIABLE in told


def test_what_people_have_anyway_is_not_built_where_it_is_on_the_path(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("kubectl", "etcd"):
        (tmp_path / name).touch(0o755)
    assert kube.find("kubectl") == tmp_path / "kubectl"
    assert kube.find("etcd") is None
    (tmp_path / "kubectl").unlink()
    built = cache / "kubectl-v1.34.4" / "kubectl"
    built.parent.mkdir(parents=True)
    built.touch()
    assert kube.find("kubectl") == built
