"""Gets the programs of Kubernetes: of a control plane for the tests of suite `kube`, of a node for suite
`cluster`.

A program is taken from the folder that `KUBEBUILDER_ASSETS` names, as elsewhere in the field. What is not
there is built from source: `python -m tools.kube` (`make kube-assets`) needs Go and its module proxy,
since the sources of all of them are Go modules. Nothing of it comes into the repository. To move on to
another release, change its version here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from tools.cache import cache_folder, exclusive

ASSETS_VARIABLE: Final = "KUBEBUILDER_ASSETS"
ETCD: Final = "v3.6.16"
KUBERNETES: Final = "v1.34.4"
COREDNS: Final = "v1.12.4"
CERT_MANAGER: Final = "v1.11.5"
"""The last one whose programs are in a module that can be fetched."""
_STAGING: Final = "v0." + KUBERNETES.removeprefix("v1.")
"""What the modules that Kubernetes is published in pieces as are called at its version."""


class Program(NamedTuple):
    """`package` is what is built, of `module` at `version`, or the text of `main` that imports some of it;
    one that people have anyway is not built where it is `on_path`.
    """

    name: str
    module: str
    version: str
    package: str
    on_path: bool = False
    main: str = ""


def _of_kubernetes(name: str) -> Program:
    return Program(name, "k8s.io/kubernetes", KUBERNETES, f"k8s.io/kubernetes/cmd/{name}")


def _of_cert_manager(name: str) -> Program:
    module = "github.com/cert-manager/cert-manager"
    return Program(f"cert-manager-{name}", module, CERT_MANAGER, f"{module}/cmd/{name}")


_NAME_SERVER: Final = """\
package main

import (
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
)

func main() {
	coremain.Run()
}
"""
"""Without the plugins for providers of clouds, which take most of the build."""

PROGRAMS: Final = (
    Program("etcd", "go.etcd.io/etcd/server/v3", ETCD, "go.etcd.io/etcd/server/v3"),
    _of_kubernetes("kube-apiserver"),
    _of_kubernetes("kube-controller-manager"),
    _of_kubernetes("kubectl")._replace(on_path=True),
)

NODE_PROGRAMS: Final = (
    _of_kubernetes("kubelet"),
    _of_kubernetes("kube-scheduler"),
    _of_kubernetes("kube-proxy"),
    Program("coredns", "github.com/coredns/coredns", COREDNS, ".", main=_NAME_SERVER),
    _of_cert_manager("controller"),
    _of_cert_manager("cainjector"),
)
"""What a node and a whole cluster need besides."""


class NoGoError(Exception):
    """There is no Go to build with."""

    def __init__(self) -> None:
        super().__init__(
            "there is no program 'go' to build with; install Go 1.24 or newer, or let "
            f"{ASSETS_VARIABLE} name a folder with {', '.join(program.name for program in PROGRAMS)}"
        )


def find(name: str) -> Path | None:
    """The program of that name, if it is there."""
    return _place(next(program for program in (*PROGRAMS, *NODE_PROGRAMS) if program.name == name))


def present(programs: Iterable[Program] = PROGRAMS) -> bool:
    """Is everything there?"""
    return not _missing(programs)


def build(programs: Iterable[Program] = PROGRAMS) -> None:
    """Build what is missing. Raises `NoGoError`, and `CalledProcessError` when Go fails, which has then
    said why.
    """
    cache = cache_folder("kube")
    with exclusive(cache), tempfile.TemporaryDirectory(dir=cache, prefix=".build-") as temporary:
        wanted = _missing(programs)
        if wanted and shutil.which("go") is None:
            raise NoGoError
        for count, program in enumerate(wanted, 1):
            print(f"{count} of {len(wanted)}: {program.name} {program.version}", flush=True)
            folder = Path(temporary) / program.name
            folder.mkdir()
            _compile(program, _module(program, folder))
    print(f"the Kubernetes programs are in {cache}")


def _missing(programs: Iterable[Program]) -> list[Program]:
    return [program for program in programs if _place(program) is None]


def _place(program: Program) -> Path | None:
    named = os.environ.get(ASSETS_VARIABLE)
    installed = shutil.which(program.name) if program.on_path else None
    places = ([Path(named) / program.name] if named else []) + ([Path(installed)] if installed else [])
    return next((path for path in (*places, _built(program)) if path.is_file()), None)


def _built(program: Program) -> Path:
    return cache_folder("kube") / f"{program.name}-{program.version}" / program.name


def _module(program: Program, folder: Path) -> Path:
    """Make `folder` a module that can build the program.

    The published module of Kubernetes replaces some thirty modules by folders that it does not contain.
    The same modules are published on their own, so each replacement names those instead.
    """
    published = _published(program, folder)
    lines = ["module build", f"go {published['Go']}", f"require {program.module} {program.version}"]
    lines += [f"godebug {setting['Key']}={setting['Value']}" for setting in published.get("Godebug") or ()]
    for replaced in published.get("Replace") or ():
        if replaced["New"]["Path"].startswith("./staging/"):
            module = replaced["Old"]["Path"]
            lines.append(f"replace {module} => {module} {_STAGING}")
    (folder / "go.mod").write_text("\n".join(lines) + "\n")
    if program.main:
        (folder / "main.go").write_text(program.main)
    return folder


def _published(program: Program, folder: Path) -> dict[str, Any]:
    """The go.mod that the module was published with."""
    downloaded = _json_of(folder, "mod", "download", "-json", f"{program.module}@{program.version}")
    return _json_of(folder, "mod", "edit", "-json", downloaded["GoMod"])


def _json_of(folder: Path, *command: str) -> dict[str, Any]:
    told = subprocess.run(
        ("go", *command), cwd=folder, check=True, stdout=subprocess.PIPE, env=_environment()
    )
    answer: dict[str, Any] = json.loads(told.stdout)
    return answer


def _compile(program: Program, folder: Path) -> None:
    """Build beside the final place and move there at once, so that what is there is whole."""
    major, minor, _ = program.version.removeprefix("v").split(".")
    stamp = {"gitVersion": program.version, "gitMajor": major, "gitMinor": minor}
    stamps = " ".join(f"-X k8s.io/component-base/version.{key}={value}" for key, value in stamp.items())
    made = folder / "made"
    command = ["go", "build", "-v", "-mod=mod", "-trimpath", "-ldflags", f"-s -w {stamps}", "-o", str(made)]
    began = time.monotonic()
    with subprocess.Popen(
        (*command, program.package), cwd=folder, stderr=subprocess.PIPE, text=True, env=_environment()
    ) as process:
        _show_progress(process.stderr or ())
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, command)
    final = _built(program)
    final.parent.mkdir(exist_ok=True)
    made.rename(final)
    print(f"  {program.name} built in {time.monotonic() - began:.0f} s", flush=True)


def _show_progress(told: Iterable[str]) -> None:
    """A line for every hundred packages instead of one for each; anything but progress is passed on."""
    compiled = 0
    for line in told:
        if line.startswith("go: downloading "):
            continue
        if " " in line.strip():
            print(line, end="", file=sys.stderr, flush=True)
            continue
        compiled += 1
        if compiled % 100 == 0:
            print(f"  {compiled} packages compiled", flush=True)


def _environment() -> dict[str, str]:
    """Without C, so that the programs run wherever their cache is shared, and outside any workspace."""
    return os.environ | {"CGO_ENABLED": "0", "GOWORK": "off"}


def main(programs: Iterable[Program] = PROGRAMS) -> int:
    try:
        build(programs)
    except NoGoError as error:
        print(error)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"go ended with {error.returncode}; is the module proxy reachable?")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
