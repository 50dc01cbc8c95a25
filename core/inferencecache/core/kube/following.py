"""Following the objects of one kind: a listing, then every change, and a listing again from time to time.

A watch may stall without anybody noticing, so it lasts for half a minute and the next listing shows what
it missed. What cannot be reached is tried again soon; what was seen last holds until then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from inferencecache.core.kube.api import KubeApi, KubeError
from inferencecache.core.kube.kinds import Document, ObjectKey, ObjectKind, key_of
from inferencecache.core.service import get_logger

WATCH_S: Final = 30
FIRST_RETRY_S: Final = 0.2
LONGEST_RETRY_S: Final = 2.0

Objects = Mapping[ObjectKey, Document]

log = get_logger("kube")


async def follow(
    api: KubeApi,
    kind: ObjectKind,
    namespace: str,
    on_change: Callable[[Objects], None],
    *,
    labels: str = "",
) -> None:
    """Tell all objects that match at the first listing and after each change, until cancelled."""
    retry_s = FIRST_RETRY_S
    while True:
        try:
            listing = await api.list_all(kind, namespace, labels)
            objects = {key_of(document): document for document in listing.items}
            on_change(objects)
            retry_s = FIRST_RETRY_S
            since = listing.resource_version
            async for change in api.watch(kind, namespace, labels, since, lasts_s=WATCH_S):
                if change.type == "DELETED":
                    objects.pop(key_of(change.object), None)
                else:
                    objects[key_of(change.object)] = change.object
                on_change(objects)
        except KubeError as error:
            log.warning("kube_not_followed", kind=kind.name, namespace=namespace, msg=str(error))
            await asyncio.sleep(retry_s)
            retry_s = min(LONGEST_RETRY_S, 2 * retry_s)
