"""Tries whether the native code of LMCache and vLLM in this image loads, and says so to the pod's status."""

from __future__ import annotations

import ctypes
import importlib
import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path

TERMINATION_LOG = Path("/dev/termination-log")
LONGEST_MESSAGE = 3500
VLLM_CORES = ("vllm._C_stable_libtorch", "vllm._C")


def folders_of(package: str) -> list[str]:
    """Where a package lies, without importing it."""
    spec = importlib.util.find_spec(package)
    return list(spec.submodule_search_locations or ()) if spec is not None else []


def problem() -> str:
    """The first thing that does not work, empty when all does."""
    folders = folders_of("lmcache")
    if not folders:
        return "lmcache not importable"
    extensions = sorted(str(file) for folder in folders for file in Path(folder).glob("c_ops*.so"))
    if not extensions:
        return f"no native c_ops extension present in {', '.join(folders)}"
    importlib.import_module("torch")  # brings the libraries along that the extension needs
    ctypes.CDLL(extensions[0])
    vllm = folders_of("vllm")
    for core in VLLM_CORES:
        if importlib.machinery.PathFinder.find_spec(core, vllm) is not None:
            importlib.import_module(core)
            return ""
    return f"no supported vLLM native core extension present, neither {' nor '.join(VLLM_CORES)}"


def main() -> None:
    try:
        found = problem()
    except Exception as error:  # noqa: BLE001 - whatever an import raises is the finding
        found = f"{type(error).__name__}: {error}"
    message = f"FAIL: {found}"[:LONGEST_MESSAGE] if found else "OK"
    TERMINATION_LOG.write_text(message, encoding="utf-8")
    print(message, flush=True)
    if found and os.environ.get("KERNEL_CHECK_STRICT") == "1":
        sys.exit(1)


if __name__ == "__main__":
    main()
