"""Types of Kubernetes' own core/v1 that our resources embed, whole, since servers drop what is not declared
[CRD-16].

What a field does is Kubernetes' affair; who hands an object on to Kubernetes does so unread.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from inferencecache.schemas.resources.objects import ATOMIC, WHOLE_LIST, Int32, Int64, Labels, Part, listed_by

QUANTITY_PATTERN: Final = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
INT_OR_STRING: Final = "x-kubernetes-int-or-string"

Quantity = Annotated[
    Annotated[str, Meta(pattern=QUANTITY_PATTERN)] | int,
    Meta(extra_json_schema={INT_OR_STRING: True, "pattern": QUANTITY_PATTERN}),
]
"""An amount of a resource such as 500m, 8Gi or 4294967296 [CRD-14]."""

Texts = Annotated[tuple[str, ...], Meta(extra_json_schema=WHOLE_LIST)]


class ResourceClaim(Part, frozen=True):
    """A claim of the pod that a container uses."""

    name: Annotated[str, Meta(description="Name of an item of the pod's resourceClaims.")]
    request: Annotated[str | None, Meta(description="The one request of the claim. Absent: all.")] = None


class ResourceRequirements(Part, frozen=True):
    """What a container asks for and may use at most."""

    requests: Annotated[dict[str, Quantity] | None, Meta(description="Least amounts by resource.")] = None
    limits: Annotated[dict[str, Quantity] | None, Meta(description="Greatest amounts by resource.")] = None
    claims: Annotated[
        tuple[ResourceClaim, ...] | None,
        Meta(description="Claims that the container uses.", extra_json_schema=listed_by("name")),
    ] = None


class SecretKeySelector(Part, frozen=True):
    """One key of a Secret of the object's namespace."""

    key: Annotated[str, Meta(description="Key within the Secret.")]
    name: Annotated[
        str | None, Meta(description="Name of the Secret.", extra_json_schema={"default": ""})
    ] = None
    optional: Annotated[bool | None, Meta(description="Whether the Secret or its key may be missing.")] = None


class LocalObjectReference(Part, frozen=True):
    """An object of the same namespace."""

    name: Annotated[
        str | None, Meta(description="Name of the object.", extra_json_schema={"default": ""})
    ] = None


class ConfigMapKeySelector(Part, frozen=True):
    """One key of a ConfigMap of the pod's namespace."""

    key: Annotated[str, Meta(description="Key within the ConfigMap.")]
    name: Annotated[
        str | None, Meta(description="Name of the ConfigMap.", extra_json_schema={"default": ""})
    ] = None
    optional: Annotated[bool | None, Meta(description="Whether the ConfigMap or its key may be missing.")] = (
        None
    )


class ObjectFieldSelector(Part, frozen=True):
    """A field of the pod."""

    field_path: Annotated[str, Meta(description="Path of the field, such as metadata.name.")]
    api_version: Annotated[str | None, Meta(description="Version of the path's schema; absent: v1.")] = None


class ResourceFieldSelector(Part, frozen=True):
    """A resource of a container."""

    resource: Annotated[str, Meta(description="Which resource, such as limits.memory.")]
    container_name: Annotated[str | None, Meta(description="Name of the container; absent: this one.")] = None
    divisor: Annotated[Quantity | None, Meta(description="Unit of the value; absent: 1.")] = None


class FileKeySelector(Part, frozen=True):
    """A variable in a file of a volume."""

    key: Annotated[str, Meta(description="Name of the variable in the file.")]
    path: Annotated[str, Meta(description="Path of the file within the volume.")]
    volume_name: Annotated[str, Meta(description="Name of the volume.")]
    optional: Annotated[
        bool | None,
        Meta(
            description="Whether the file or its key may be missing.",
            extra_json_schema={"default": False},
        ),
    ] = None


class EnvVarSource(Part, frozen=True):
    """Where a variable's value comes from; one of the fields."""

    config_map_key_ref: Annotated[
        ConfigMapKeySelector | None, Meta(description="A ConfigMap's key.", extra_json_schema=ATOMIC)
    ] = None
    secret_key_ref: Annotated[
        SecretKeySelector | None, Meta(description="A Secret's key.", extra_json_schema=ATOMIC)
    ] = None
    field_ref: Annotated[
        ObjectFieldSelector | None, Meta(description="A field of the pod.", extra_json_schema=ATOMIC)
    ] = None
    resource_field_ref: Annotated[
        ResourceFieldSelector | None,
        Meta(description="A resource of a container.", extra_json_schema=ATOMIC),
    ] = None
    file_key_ref: Annotated[
        FileKeySelector | None, Meta(description="A variable in a file.", extra_json_schema=ATOMIC)
    ] = None


class EnvVar(Part, frozen=True):
    """An environment variable of a container."""

    name: Annotated[str, Meta(description="Name of the variable.")]
    value: Annotated[str | None, Meta(description="Its value; absent is empty.")] = None
    value_from: Annotated[
        EnvVarSource | None, Meta(description="Where its value comes from instead of `value`.")
    ] = None


class Toleration(Part, frozen=True):
    """A taint that does not keep a pod away from a node."""

    key: Annotated[str | None, Meta(description="Key of the taint; absent: all keys.")] = None
    operator: Annotated[str | None, Meta(description="Exists or Equal; absent: Equal.")] = None
    value: Annotated[str | None, Meta(description="Value of the taint, with Equal.")] = None
    effect: Annotated[
        str | None, Meta(description="NoSchedule, PreferNoSchedule or NoExecute; absent: all.")
    ] = None
    toleration_seconds: Annotated[
        Int64 | None, Meta(description="How long a NoExecute taint is borne; absent: for ever.")
    ] = None


class SELinuxOptions(Part, frozen=True):
    """An SELinux context."""

    user: Annotated[str | None, Meta(description="User label.")] = None
    role: Annotated[str | None, Meta(description="Role label.")] = None
    type: Annotated[str | None, Meta(description="Type label.")] = None
    level: Annotated[str | None, Meta(description="Level label.")] = None


class SecurityProfile(Part, frozen=True):
    """A seccomp or AppArmor profile."""

    type: Annotated[str, Meta(description="RuntimeDefault, Localhost or Unconfined.")]
    localhost_profile: Annotated[
        str | None, Meta(description="Name of the node's profile, with Localhost.")
    ] = None


class Sysctl(Part, frozen=True):
    """A kernel parameter."""

    name: Annotated[str, Meta(description="Name of the parameter.")]
    value: Annotated[str, Meta(description="Its value.")]


class WindowsOptions(Part, frozen=True):
    """What applies on Windows nodes only."""

    gmsa_credential_spec_name: Annotated[
        str | None, Meta(description="Name of the GMSA credential spec.")
    ] = None
    gmsa_credential_spec: Annotated[str | None, Meta(description="The GMSA credential spec itself.")] = None
    run_as_user_name: Annotated[str | None, Meta(description="User of the entry points.")] = None
    host_process: Annotated[bool | None, Meta(description="Whether it runs as a HostProcess container.")] = (
        None
    )


class PodSecurityContext(Part, frozen=True):
    """Security settings of a whole pod."""

    run_as_user: Annotated[Int64 | None, Meta(description="User id of the entry points.")] = None
    run_as_group: Annotated[Int64 | None, Meta(description="Group id of the entry points.")] = None
    run_as_non_root: Annotated[bool | None, Meta(description="Whether running as root is refused.")] = None
    fs_group: Annotated[Int64 | None, Meta(description="Group that owns volumes.")] = None
    fs_group_change_policy: Annotated[
        str | None, Meta(description="When ownership is changed: OnRootMismatch or Always.")
    ] = None
    supplemental_groups: Annotated[
        tuple[Int64, ...] | None,
        Meta(description="Further groups.", extra_json_schema=WHOLE_LIST),
    ] = None
    supplemental_groups_policy: Annotated[
        str | None, Meta(description="Whether the image's groups count: Merge or Strict.")
    ] = None
    se_linux_options: Annotated[SELinuxOptions | None, Meta(description="SELinux context.")] = None
    se_linux_change_policy: Annotated[
        str | None, Meta(description="How volumes get their labels: MountOption or Recursive.")
    ] = None
    seccomp_profile: Annotated[SecurityProfile | None, Meta(description="Seccomp profile.")] = None
    app_armor_profile: Annotated[SecurityProfile | None, Meta(description="AppArmor profile.")] = None
    sysctls: Annotated[
        tuple[Sysctl, ...] | None,
        Meta(description="Kernel parameters.", extra_json_schema=WHOLE_LIST),
    ] = None
    windows_options: Annotated[
        WindowsOptions | None, Meta(description="What applies on Windows nodes only.")
    ] = None


class Requirement(Part, frozen=True):
    """A condition on one label or field."""

    key: Annotated[str, Meta(description="Name of the label or field.")]
    operator: Annotated[
        str,
        Meta(description="In, NotIn, Exists or DoesNotExist; for nodes Gt and Lt too."),
    ]
    values: Annotated[Texts | None, Meta(description="What it is compared with.")] = None


Requirements = Annotated[tuple[Requirement, ...], Meta(extra_json_schema=WHOLE_LIST)]


class LabelSelector(Part, frozen=True):
    """Which objects; all conditions must hold."""

    match_labels: Annotated[Labels | None, Meta(description="Labels that must be equal.")] = None
    match_expressions: Annotated[Requirements | None, Meta(description="Further conditions.")] = None


class NodeSelectorTerm(Part, frozen=True):
    """Which nodes; all conditions must hold."""

    match_expressions: Annotated[Requirements | None, Meta(description="Conditions on labels.")] = None
    match_fields: Annotated[Requirements | None, Meta(description="Conditions on fields.")] = None


class NodeSelector(Part, frozen=True):
    """Which nodes; one of the terms must hold."""

    node_selector_terms: Annotated[
        tuple[NodeSelectorTerm, ...],
        Meta(description="The terms.", extra_json_schema=WHOLE_LIST),
    ]


class PreferredNodes(Part, frozen=True):
    """Nodes that are preferred, and how much."""

    weight: Annotated[Int32, Meta(description="1 to 100.")]
    preference: Annotated[NodeSelectorTerm, Meta(description="Which nodes.", extra_json_schema=ATOMIC)]


class NodeAffinity(Part, frozen=True):
    """Nodes that a pod needs or prefers."""

    required_during_scheduling_ignored_during_execution: Annotated[
        NodeSelector | None, Meta(description="Nodes that the pod needs.", extra_json_schema=ATOMIC)
    ] = None
    preferred_during_scheduling_ignored_during_execution: Annotated[
        tuple[PreferredNodes, ...] | None,
        Meta(description="Nodes that the pod prefers.", extra_json_schema=WHOLE_LIST),
    ] = None


class PodAffinityTerm(Part, frozen=True):
    """Pods to be near to or away from."""

    topology_key: Annotated[str, Meta(description="Node label whose equal values mean near.")]
    label_selector: Annotated[
        LabelSelector | None, Meta(description="Which pods.", extra_json_schema=ATOMIC)
    ] = None
    namespaces: Annotated[Texts | None, Meta(description="Their namespaces.")] = None
    namespace_selector: Annotated[
        LabelSelector | None, Meta(description="Their namespaces by label.", extra_json_schema=ATOMIC)
    ] = None
    match_label_keys: Annotated[Texts | None, Meta(description="Labels equal to this pod's.")] = None
    mismatch_label_keys: Annotated[Texts | None, Meta(description="Labels different from this pod's.")] = None


class PreferredPods(Part, frozen=True):
    """Pods that are preferred as neighbours, or as none, and how much."""

    weight: Annotated[Int32, Meta(description="1 to 100.")]
    pod_affinity_term: Annotated[PodAffinityTerm, Meta(description="Which pods.")]


class PodAffinity(Part, frozen=True):
    """Pods that a pod has to be near to or away from, or prefers to be."""

    required_during_scheduling_ignored_during_execution: Annotated[
        tuple[PodAffinityTerm, ...] | None,
        Meta(description="What is needed.", extra_json_schema=WHOLE_LIST),
    ] = None
    preferred_during_scheduling_ignored_during_execution: Annotated[
        tuple[PreferredPods, ...] | None,
        Meta(description="What is preferred.", extra_json_schema=WHOLE_LIST),
    ] = None


class Affinity(Part, frozen=True):
    """Where a pod may or should run."""

    node_affinity: Annotated[NodeAffinity | None, Meta(description="By nodes.")] = None
    pod_affinity: Annotated[PodAffinity | None, Meta(description="Near to pods.")] = None
    pod_anti_affinity: Annotated[PodAffinity | None, Meta(description="Away from pods.")] = None


class TopologySpreadConstraint(Part, frozen=True):
    """How evenly pods are spread."""

    max_skew: Annotated[Int32, Meta(description="Greatest difference between domains.")]
    topology_key: Annotated[str, Meta(description="Node label whose values are the domains.")]
    when_unsatisfiable: Annotated[str, Meta(description="DoNotSchedule or ScheduleAnyway.")]
    label_selector: Annotated[LabelSelector | None, Meta(description="Which pods are counted.")] = None
    min_domains: Annotated[Int32 | None, Meta(description="Least number of domains.")] = None
    match_label_keys: Annotated[Texts | None, Meta(description="Labels equal to this pod's.")] = None
    node_affinity_policy: Annotated[
        str | None, Meta(description="Whether node affinity counts: Honor or Ignore.")
    ] = None
    node_taints_policy: Annotated[str | None, Meta(description="Whether taints count: Honor or Ignore.")] = (
        None
    )
