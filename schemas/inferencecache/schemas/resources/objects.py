"""What all custom resources have in common: group and version, metadata, conditions.

A field that may be absent is `None` then, which differs from every value [CRD-18]. A default is not
the field's Python default but stands in its JSON Schema (`default`), because absence and the default
are two things: `defaulted` fills in what the API server would, and only where a parent is present
[CRD-10].
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta

GROUP: Final = "inferencecache.io"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

Count32 = Annotated[int, Meta(ge=0, le=2**31 - 1, extra_json_schema={"format": "int32"})]
"""A number from 0 to the most an int32 holds [CRD-170]."""
Count64 = Annotated[int, Meta(ge=0, le=2**63 - 1, extra_json_schema={"format": "int64"})]
Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1, extra_json_schema={"format": "int32"})]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1, extra_json_schema={"format": "int64"})]
Name = Annotated[str, Meta(min_length=1)]
Labels = Annotated[dict[str, str], Meta(description="Labels, all of which must be equal.")]
Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]

LOCAL_ONLY: Final = "localOnly"
"""Key of `Meta.extra`: the field exists where there is no cluster and is no part of the CRD."""
LISTED: Final = "listed"
"""Key of `Meta.extra`: the CRD calls the field required although its default fills it when it is absent."""

DECIMAL_PATTERN: Final = r"^(0|[1-9][0-9]{0,7})(\.[0-9]{1,6})?$"
"""A score or weight as a decimal string: no sign, no exponent, at most 8 and 6 digits [CRD-110]."""


ATOMIC: Final = {"x-kubernetes-map-type": "atomic"}
"""JSON Schema of an object that one writer replaces whole."""
WHOLE_LIST: Final = {"x-kubernetes-list-type": "atomic"}
"""The same of a list."""


def listed_by(key: str) -> dict[str, Any]:
    """JSON Schema of a list whose items are told apart by a field of theirs [CRD-11]."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base of everything inside a resource: names in camel case, absent values left out."""


class ObjectMeta(Part, frozen=True):
    """What Kubernetes keeps about an object; other fields of it are ignored.

    Without a cluster only `name` and `namespace` are used, and any text without a slash is legal.
    """

    name: Annotated[Name, Meta(description="Name of the object, unique within kind and namespace.")]
    namespace: Annotated[
        str, Meta(description="Namespace; by convention the tenant whose engines run in it.")
    ] = ""
    uid: Annotated[str, Meta(description="Identity of this life of the object, set by the server.")] = ""
    generation: Annotated[int, Meta(description="Grows with each change of the spec, set by the server.")] = 0
    resource_version: Annotated[str, Meta(description="Version of the stored object.")] = ""
    creation_timestamp: Annotated[str | None, Meta(description="When the object was made.")] = None
    deletion_timestamp: Annotated[str | None, Meta(description="Set while the object is being deleted.")] = (
        None
    )
    labels: Annotated[dict[str, str] | None, Meta(description="Labels.")] = None
    annotations: Annotated[dict[str, str] | None, Meta(description="Annotations.")] = None


_CONDITION_TYPE: Final = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)


class Condition(Part, frozen=True):
    """One aspect of an object's state as its controller sees it [CRD-15]."""

    type: Annotated[
        str, Meta(max_length=316, pattern=_CONDITION_TYPE, description="Which aspect, unique in the list.")
    ]
    status: Annotated[
        Literal["True", "False", "Unknown"], Meta(description="Whether the aspect holds, if that is known.")
    ]
    reason: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=1024,
            pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
            description="The cause of the last transition, for programs.",
        ),
    ]
    message: Annotated[str, Meta(max_length=32768, description="The same for people; may be empty.")]
    last_transition_time: Annotated[Time, Meta(description="When the status last changed.")]
    observed_generation: Annotated[
        Count64 | None, Meta(description="Generation of the object that was judged.")
    ] = None


Conditions = Annotated[
    tuple[Condition, ...],
    Meta(
        description="Aspects of the object's state, one item a type.",
        extra_json_schema=listed_by("type"),
    ),
]
ObservedGeneration = Annotated[
    Count64, Meta(description="Generation of the spec that this status is about, set by the controller.")
]


class ResourceRef(NamedTuple):
    """Which object: ordered by kind, namespace and name, as resolution is [IDX-121]."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class Resource(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag_field="kind"
):
    """Base of the resources; the tag is the kind. `apiVersion` is checked by whoever reads a document."""

    metadata: ObjectMeta

    @property
    def ref(self) -> ResourceRef:
        """Kind, namespace and name."""
        return ResourceRef(type(self).__name__, self.metadata.namespace, self.metadata.name)
