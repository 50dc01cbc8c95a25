"""What a router or owner has read of `IC_POLICY`, and which policy set is therefore in force.

A set that cannot be accepted changes nothing: the previous one stays in force, and `refused` says why
until a later set is accepted [IDX-128]. Nor does the loss of the bucket change anything: whoever
writes it writes it again.
"""

from __future__ import annotations

import msgspec

from inferencecache.core.index.policy import Policies, UnsupportedPolicySchemaError
from inferencecache.core.policy.document import UnreadablePolicySetError, decode_policy_set
from inferencecache.core.templates import Template
from inferencecache.schemas.policy import PolicySet
from inferencecache.schemas.prompts import ResolvedTemplate
from inferencecache.schemas.topologies import ResolvedTopology
from inferencecache.schemas.unreadable import UNREADABLE

_template_decoder = msgspec.json.Decoder(ResolvedTemplate)
_topology_decoder = msgspec.json.Decoder(ResolvedTopology)


class Intent:
    """`policy_set` and `policies` are in force; `revision` is that of their value, 0 before the first."""

    def __init__(self) -> None:
        self.policy_set = PolicySet()
        self.policies = Policies(self.policy_set)
        self.revision = 0
        self.refused = ""
        self._templates: dict[str, Template] = {}
        self._topologies: dict[str, ResolvedTopology] = {}

    def set_policies(self, payload: bytes, revision: int) -> bool:
        """Put a value of `set` in force; false when it is refused."""
        try:
            self.policy_set = decode_policy_set(payload)
        except (UnsupportedPolicySchemaError, UnreadablePolicySetError) as error:
            self.refused = f"policy set of revision {revision} refused: {error}"
            return False
        self.policies = Policies(self.policy_set)
        self.revision = revision
        self.refused = ""
        return True

    def set_template(self, ref: str, payload: bytes | None) -> bool:
        """Take over the template `namespace/name`, or drop it for `None`; false when it cannot be read."""
        if payload is None:
            self._templates.pop(ref, None)
            return True
        try:
            self._templates[ref] = Template(_template_decoder.decode(payload))
        except UNREADABLE:
            return False
        return True

    def set_topology(self, ref: str, payload: bytes | None) -> bool:
        """As `set_template`, for topologies."""
        if payload is None:
            self._topologies.pop(ref, None)
            return True
        try:
            self._topologies[ref] = _topology_decoder.decode(payload)
        except UNREADABLE:
            return False
        return True

    def template(self, ref: str) -> Template | None:
        """The template `namespace/name`."""
        return self._templates.get(ref)

    def topology(self, ref: str) -> ResolvedTopology | None:
        """The topology `namespace/name`."""
        return self._topologies.get(ref)
