"""What of a log is of interest: a tenant, a model, a replica."""

from __future__ import annotations

from typing import NamedTuple

from inferencecache.schemas.deltas import HolderName, ReplicaName
from inferencecache.schemas.senders import ControlSender, ReplicaSender, Sender


class Filter(NamedTuple):
    """Everything, or only what has these ids. `None` leaves an id open."""

    tenant: str | None = None
    model: str | None = None
    replica: str | None = None

    def takes(self, name: ReplicaName | HolderName | ReplicaSender) -> bool:
        """Is it about one of these?"""
        return (
            self.tenant in (None, name.tenant)
            and self.model in (None, name.model)
            and self.replica in (None, name.replica)
        )

    def takes_sender(self, sender: Sender) -> bool:
        """As `takes`; what is about the whole partition is of interest where nothing else is asked for."""
        if isinstance(sender, ControlSender):
            return self == Filter()
        return self.takes(sender)
