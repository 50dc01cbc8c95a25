"""Reads a contract together with its comments."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from google.protobuf.descriptor_pb2 import FileDescriptorSet

PROTO: Final = Path(__file__).resolve().parent.parent.parent / "proto"


def described(source: str) -> FileDescriptorSet:
    """The descriptors of a file below `proto/`, as protoc makes them, comments included."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "set"
        subprocess.run(
            (
                *(sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={PROTO}"),
                *("--include_source_info", f"--descriptor_set_out={made}", source),
            ),
            check=True,
        )
        return FileDescriptorSet.FromString(made.read_bytes())
