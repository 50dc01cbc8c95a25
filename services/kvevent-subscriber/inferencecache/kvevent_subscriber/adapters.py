"""Under which name an adapter's blocks are filed: the gateway's name, never the engine's number.

A number is given out in load order, so on two replicas it can mean two adapters. A store whose
adapter cannot be named is dropped: that costs a miss, while a guess would give wrong hints
[SUB-095, SUB-096].
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Final

from inferencecache.kvevent_subscriber.diary import Diary
from inferencecache.schemas.ids import MAX_ID_BYTES, AdapterId

BASE_MODEL: Final = AdapterId("")
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_INT64: Final = range(-(2**63), 2**63)


def parse_adapter_names(text: str) -> dict[int, AdapterId]:
    """Read `--lora-adapter-names`, `1=sql-lora,2=chat-lora` [SUB-099].

    Raises ValueError that says what is wrong.
    """
    names: dict[int, AdapterId] = {}
    for item in filter(None, (item.strip() for item in text.split(","))):
        id_text, equals, name = (part.strip() for part in item.partition("="))
        if not equals:
            raise ValueError(f"{item!r} has no '='; write ID=NAME, as in 1=sql-lora")
        if not _INTEGER.fullmatch(id_text) or int(id_text) not in _INT64:
            raise ValueError(f"{id_text!r} in {item!r} is not a 64-bit number")
        if not name:
            raise ValueError(f"{item!r} has no name after '='")
        if int(id_text) in names:
            raise ValueError(f"id {int(id_text)} is given twice")
        names[int(id_text)] = AdapterId(name)
    return names


class AdapterNames:
    """Resolves the partition of a store. `from_engine` trusts names that the engine itself sends."""

    def __init__(self, names: Mapping[int, AdapterId], from_engine: bool, diary: Diary) -> None:
        self._names = names
        self._from_engine = from_engine
        self._diary = diary

    def resolve(self, lora_id: int | None, lora_name: str | None) -> AdapterId | None:
        """The adapter id to report, or None when the store must be dropped [SUB-095]."""
        if lora_id is None and lora_name is None:
            return BASE_MODEL
        mapped = None if lora_id is None else self._names.get(lora_id)
        if mapped is not None:
            if lora_name is not None and lora_name != mapped:
                self._diary.warn_once(
                    "adapter_renamed",
                    lora_id,
                    "the engine names an adapter differently from --lora-adapter-names, which wins",
                    lora_id=lora_id,
                    engine_name=lora_name,
                    reported_as=mapped,
                )
            return mapped
        # No lookup can give a longer name, and one of megabytes would fit no message of the log.
        if lora_name is not None and self._from_engine and len(lora_name.encode()) <= MAX_ID_BYTES:
            return AdapterId(sys.intern(lora_name))
        self._diary.count("unmapped_adapter")
        self._diary.warn_once(
            "unmapped_adapter",
            lora_id if lora_name is None else lora_name,
            "blocks of an adapter without a name are not reported; name it in --lora-adapter-names",
            lora_id=lora_id,
            lora_name=lora_name,
        )
        return None
