"""The folder of one `up`: JetStream's store, configuration, and a log file for each process."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Final, Self

LOCK_FILE: Final = "up.lock"


class StateDirError(Exception):
    """The folder cannot be used."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"cannot use {path}: {reason}; choose another folder with --state-dir")
        self.path = path
        self.reason = reason


class StateDir:
    """A folder that stays when it was asked for, and otherwise goes at the end unless `keep` was called.

    It belongs to one `up` at a time: two servers over one store would destroy it. Raises StateDirError.
    """

    def __init__(self, asked_for: Path | None) -> None:
        self._temporary = asked_for is None
        self.path = asked_for.absolute() if asked_for is not None else Path(tempfile.gettempdir())
        try:
            if asked_for is None:
                self.path = Path(tempfile.mkdtemp(prefix="inferencecache-up-"))
            else:
                self.path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.path / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StateDirError(self.path, error.strerror or str(error)) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise StateDirError(self.path, "another `inferencecache up` runs there") from error

    @property
    def logs(self) -> Path:
        """One file for each process."""
        return self.path / "logs"

    def keep(self) -> None:
        """Leave the folder where it is: somebody has to read the logs."""
        self._temporary = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._lock)
        if self._temporary:
            shutil.rmtree(self.path, ignore_errors=True)
