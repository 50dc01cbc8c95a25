"""Writes the generated files of the tree, or with `--check` says which of them are out of date.

Each generator returns file contents by path below the root, and owns every file that its patterns
match: one that it no longer makes is removed. Generators run in the project's environment only, so
that the same pins make the same bytes everywhere.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from inferencecache.schemas.export import schemas
from tools.alerts import alert_rules
from tools.dashboard import dashboard
from tools.docs.alerts import alerts_page
from tools.docs.commands import commands_page
from tools.docs.contract import contract_page
from tools.docs.diagrams import diagrams
from tools.docs.doctor_codes import codes_page
from tools.docs.event_log import event_log_page
from tools.docs.reasons import reasons_page
from tools.docs.settings import settings_page
from tools.gateway import gateway_examples
from tools.metrics_reference import metrics_page
from tools.nats_roles import permissions_files
from tools.resources import definitions, reference
from tools.rights import rights_manifests
from tools.spec_coverage import spec_coverage
from tools.webhooks import webhook_manifests

ROOT = Path(__file__).resolve().parent.parent


class Generator(NamedTuple):
    """`make` returns contents by path relative to `folder`; `owned` are the patterns of its files there."""

    folder: str
    owned: tuple[str, ...]
    make: Callable[[], dict[str, str]]


def grpc_stubs() -> dict[str, str]:
    """Messages, services and their type stubs, by protoc and mypy-protobuf."""
    proto_root = ROOT / "proto"
    sources = sorted(path.relative_to(proto_root) for path in proto_root.rglob("*.proto"))
    plugins = Path(sys.executable).parent
    with tempfile.TemporaryDirectory() as made:
        made_it = subprocess.run(
            [
                *(sys.executable, "-m", "grpc_tools.protoc"),
                f"--proto_path={proto_root}",
                f"--plugin=protoc-gen-mypy={plugins / 'protoc-gen-mypy'}",
                f"--plugin=protoc-gen-mypy_grpc={plugins / 'protoc-gen-mypy_grpc'}",
                *(f"--{kind}_out={made}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")),
                *map(str, sources),
            ],
            check=False,
            capture_output=True,
            text=True,
        )
        if made_it.returncode != 0:
            sys.exit(made_it.stderr)
        files = sorted(path for path in Path(made).rglob("*") if path.is_file())
        return {str(path.relative_to(made)): path.read_text() for path in files}


GENERATORS = (
    Generator("proto", ("inferencecache/*/*_pb2*.py", "inferencecache/*/*_pb2*.pyi"), grpc_stubs),
    Generator("schemas/generated/json-schema", ("*.schema.json",), schemas),
    Generator("deploy/crds", ("*.yaml",), definitions),
    Generator("deploy/base/webhooks", ("webhooks.yaml",), webhook_manifests),
    Generator("deploy/base/controller", ("rbac.yaml",), rights_manifests),
    Generator("deploy/base/nats", ("permissions.conf", "subscriber.conf"), permissions_files),
    Generator("deploy/base/observability", ("dashboard.json",), dashboard),
    Generator("deploy/base/observability", ("rules.yaml", "prometheus-rule.yaml"), alert_rules),
    Generator("docs/reference", ("metrics.md",), metrics_page),
    Generator("deploy/examples", ("envoy.yaml", "endpoints.yaml"), gateway_examples),
    Generator("docs/reference/resources", ("*.md",), reference),
    Generator("docs/images", ("architecture.svg", "fingerprint.svg", "log.svg"), diagrams),
    Generator("docs/reference", ("alerts.md",), alerts_page),
    Generator("docs/reference", ("cli.md",), commands_page),
    Generator("docs/reference", ("configuration.md",), settings_page),
    Generator("docs/reference", ("doctor-codes.md",), codes_page),
    Generator("docs/reference", ("event-log.md",), event_log_page),
    Generator("docs/reference", ("grpc.md",), contract_page),
    Generator("docs/reference", ("reason-codes.md",), reasons_page),
    Generator("docs", ("spec-coverage.md",), spec_coverage),
)


def stale_files(generator: Generator) -> dict[Path, str | None]:
    """Files whose content differs, with what it should be; None for a file that should not exist."""
    folder = ROOT / generator.folder
    wanted = {folder / name: text for name, text in generator.make().items()}
    present = {path for pattern in generator.owned for path in folder.glob(pattern)}
    outdated: dict[Path, str | None] = {
        path: text for path, text in wanted.items() if not path.exists() or path.read_text() != text
    }
    return outdated | dict.fromkeys(present - wanted.keys())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, fail when a file is stale")
    check = parser.parse_args().check
    stale = {path: text for generator in GENERATORS for path, text in stale_files(generator).items()}
    for path, text in sorted(stale.items()):
        print(("stale: " if check else "wrote: ") + str(path.relative_to(ROOT)))
        if check:
            continue
        if text is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    if check and stale:
        print("generated files differ from their sources; run 'make generate' and commit the result")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
