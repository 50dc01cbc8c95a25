"""Kernels are compiled once and kept, or compiled at every start where nothing can be kept."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import pytest
from numba import types

from inferencecache.core.index import kernels

CANNOT_CACHE = "cannot cache function 'twice': no locator available for file 'kernels.py'"


def test_without_a_writable_folder_kernels_are_compiled_in_memory_and_it_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    njit = numba.njit

    def refuse_to_cache(*arguments: Any, cache: bool = False, **options: Any) -> Callable[..., Any]:
        if cache:
            raise RuntimeError(CANNOT_CACHE)
        return njit(*arguments, **options)  # type: ignore[no-any-return]

    monkeypatch.setattr(numba, "njit", refuse_to_cache)
    monkeypatch.setattr(kernels, "_is_told", False)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            twice = kernels.kernel(types.int64, types.int64)(lambda value: 2 * value)
            assert twice(21) == 42
    (record,) = caplog.records
    assert "NUMBA_CACHE_DIR" in record.message


def test_what_can_be_read_but_not_written_there_is_compiled_in_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    njit = numba.njit

    def refuse_to_write(*arguments: Any, cache: bool = False, **options: Any) -> Callable[..., Any]:
        if cache:
            raise OSError(errno.EROFS, "Read-only file system", str(tmp_path))
        return njit(*arguments, **options)  # type: ignore[no-any-return]

    monkeypatch.setattr(numba, "njit", refuse_to_write)
    assert kernels.kernel(types.int64, types.int64)(lambda value: 2 * value)(21) == 42


def test_another_failure_is_not_taken_for_a_missing_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **options: Any) -> Callable[..., Any]:
        raise RuntimeError("out of registers")

    monkeypatch.setattr(numba, "njit", fail)
    with pytest.raises(RuntimeError, match="registers"):
        kernels.kernel(types.int64, types.int64)(lambda value: value)


@pytest.mark.parametrize(
    "module",
    [
        "core.index.policy",
        "core.index.request",
        "core.index.reading",
        "core.index.affinity",
        "controller.serve",
    ],
)
def test_who_only_reads_values_loads_no_kernels(module: str) -> None:
    code = f"import sys, inferencecache.{module}; sys.exit('numba' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    assert (
        subprocess.run([sys.executable, "-c", code], env=environment, check=False, timeout=60).returncode == 0
    )
