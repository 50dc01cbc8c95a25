"""Prompt templates as routers hold them: `template.<namespace>.<name>` in `IC_POLICY`."""

from __future__ import annotations

import msgspec


class ResolvedSlot(msgspec.Struct, frozen=True, rename="camel"):
    """`mutable`: the value differs by request, so the stable prefix ends before the slot."""

    name: str
    mutable: bool = False
    required: bool = False


class ResolvedTemplate(msgspec.Struct, frozen=True, rename="camel"):
    """`revision` is a hash of all that rendering depends on."""

    namespace: str
    name: str
    revision: str
    body: str
    slots: tuple[ResolvedSlot, ...] = ()
