"""Why a pod stays as it is."""

from __future__ import annotations


class NotWiredError(Exception):
    """An engine cannot be wired, or the server that it needs cannot be described. The text says why, for
    whoever looks for the cause; it names the setting of the pod or of the backend to change.
    """
