"""A target that kills its process, to test that this is seen."""

from __future__ import annotations

import os
import signal
from typing import Final

from tests.fuzz.mutation import mutate_bytes
from tests.fuzz.target import Target


def run(data: bytes) -> None:
    if data == b"\xff":
        os.kill(os.getpid(), signal.SIGKILL)


TARGET: Final = Target(run, lambda: [b"\x01", b"\xff"], mutate_bytes)
