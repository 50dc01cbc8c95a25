"""Who sent a message of the log. It is taken from the message's subject, never from its payload."""

from __future__ import annotations

from typing import Literal

import msgspec

from inferencecache.schemas.ids import ModelId, ReplicaId, TenantId


class ReplicaSender(msgspec.Struct, frozen=True, gc=False):
    """About one replica: channel `e` is its sidecar alone, `g` a router on behalf of a gRPC producer."""

    tenant: TenantId
    model: ModelId
    replica: ReplicaId
    channel: Literal["e", "g"] = "e"


class ControlSender(msgspec.Struct, frozen=True, gc=False):
    """About the partition: `o` its owner, `c` the controller, `r` a router."""

    role: Literal["o", "c", "r"]


Sender = ReplicaSender | ControlSender
