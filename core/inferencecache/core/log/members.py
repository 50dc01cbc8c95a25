"""Who has been there lately: the rows of `IC_MEMBERS` as they are now, for whoever looks only once.

A row lasts for ten seconds after its member stopped writing; `core.protocol.membership` judges who is
alive, for whoever keeps watching.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from inferencecache.core.log.buckets import Bucket
from inferencecache.core.log.connection import Log
from inferencecache.core.log.jetstream import NoStreamError
from inferencecache.core.log.subjects import MEMBERS
from inferencecache.core.service import get_logger
from inferencecache.schemas.members import ControllerMember, IndexerMember, RouterMember
from inferencecache.schemas.unreadable import UNREADABLE

Kind = TypeVar("Kind", IndexerMember, RouterMember, ControllerMember)

logger = get_logger("log")


async def read_members(log: Log, kind: type[Kind]) -> list[Kind]:
    """The rows of one kind in order of their keys; none where there is no bucket.

    A row that cannot be read is left out. Raises ApiError, NoAnswerError.
    """
    try:
        entries = await Bucket(log, MEMBERS).entries(keys=f"{kind.__struct_config__.tag}.*")
    except NoStreamError:
        return []
    rows: list[Kind] = []
    for entry in entries:
        try:
            rows.append(msgspec.json.decode(entry.value, type=kind))
        except UNREADABLE as error:
            logger.warning("member_unreadable", key=entry.key, error=str(error))
    return rows
