"""The folder of one `up`: JetStream's store, configuration, and a log file for each process."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self


class StateDir:
    """A folder that stays when it was asked for, and otherwise goes at the end unless `keep` was called."""

    def __init__(self, asked_for: Path | None) -> None:
        self._temporary = asked_for is None
        if asked_for is None:
            self.path = Path(tempfile.mkdtemp(prefix="inferencecache-up-"))
        else:
            self.path = asked_for.absolute()
            self.path.mkdir(parents=True, exist_ok=True)

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
        if self._temporary:
            shutil.rmtree(self.path, ignore_errors=True)
