"""Writes the JSON Schema of everything that travels, for readers in other languages.

`python -m inferencecache.schemas.export FOLDER` writes one file a struct. Array-like structs appear
as arrays with `prefixItems`; byte strings, which MessagePack carries as they are, as base64 text.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

import msgspec

from inferencecache.schemas.aggregate import Aggregate, PartitionAggregate
from inferencecache.schemas.budgets import Division
from inferencecache.schemas.deltas import Delta
from inferencecache.schemas.layout import CurrentLayout
from inferencecache.schemas.members import Member
from inferencecache.schemas.policy_document import PolicyDocument
from inferencecache.schemas.positions import Refs
from inferencecache.schemas.prompts import ResolvedTemplate
from inferencecache.schemas.records import Batch
from inferencecache.schemas.requests import ProbeRequest, ProbeResult, ResyncRequest, WorkAssigned
from inferencecache.schemas.topologies import ResolvedTopology

EXPORTED: Final[dict[str, object]] = {
    "aggregate": Aggregate,
    "partition-aggregate": PartitionAggregate,
    "batch": Batch,
    "budget": Division,
    "delta": Delta,
    "layout": CurrentLayout,
    "member": Member,
    "policy-set": PolicyDocument,
    "probe-request": ProbeRequest,
    "probe-result": ProbeResult,
    "refs": Refs,
    "resync-request": ResyncRequest,
    "work-assigned": WorkAssigned,
    "template": ResolvedTemplate,
    "topology": ResolvedTopology,
}


def schemas() -> dict[str, str]:
    """JSON Schema text by file name."""
    return {
        f"{name}.schema.json": json.dumps(msgspec.json.schema(kind), indent=2, sort_keys=True) + "\n"
        for name, kind in EXPORTED.items()
    }


def main() -> None:
    """Write all schemas into the folder named on the command line."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in schemas().items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    main()
