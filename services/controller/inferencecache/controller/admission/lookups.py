"""What admission reads besides the object it judges.

It has one chance to decide, so it reads what is stored now [ADM-06].
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final
from urllib.parse import quote

import msgspec

from inferencecache.controller.admission.reviews import Document, Lookup, LookupFailedError
from inferencecache.core.kube.cluster import Cluster, UnreachableError
from inferencecache.schemas.resources import API_VERSION

LIST_LIMIT_S: Final = 5.0
"""Half of what the API server waits for a webhook."""


def lookup_in(cluster: Cluster) -> Lookup:
    """Lists of our resources of a namespace."""

    async def lookup(plural: str, namespace: str) -> list[Document]:
        path = f"/apis/{API_VERSION}/namespaces/{quote(namespace, safe='')}/{plural}"
        try:
            status, body = await cluster.request("GET", path, limit_s=LIST_LIMIT_S)
            if status != HTTPStatus.OK:
                raise LookupFailedError(plural, namespace, f"the API answers {status}")
            return msgspec.json.decode(body, type=_List).items
        except (UnreachableError, msgspec.DecodeError) as error:
            raise LookupFailedError(plural, namespace, str(error)) from error

    return lookup


class _List(msgspec.Struct):
    items: list[Document]
