"""Failures of a process as a whole, as opposed to those of one call."""

from __future__ import annotations


class RefusedError(Exception):
    """What is there cannot be worked with, and trying again does not help; `run` logs it and exits with 1."""


class ListenError(Exception):
    """A listener could not be opened; `run` logs `serve_error` and exits with 1 [WIRE-203]."""

    def __init__(self, setting: str, host: str, port: int, reason: str) -> None:
        super().__init__(f"cannot listen on {host}:{port}: {reason}; choose another address with {setting}")
        self.setting = setting
        self.host = host
        self.port = port
        self.reason = reason
