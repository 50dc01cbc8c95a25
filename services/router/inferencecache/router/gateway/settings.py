"""The gateway's part of the router's flags."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

import msgspec

from inferencecache.core.gateway import ModelNames
from inferencecache.core.gateway.models import model_names
from inferencecache.core.service import SettingsParser, at_least, duration, listen_address
from inferencecache.schemas.ids import HashScheme, TenantId

DEFAULT_BODY_LIMIT: Final = 4 * 1024 * 1024
DEFAULT_BODIES_LIMIT: Final = 256 * 1024 * 1024


class GatewaySettings(msgspec.Struct, frozen=True):
    """`address` None means no listener, as without a source of endpoints. Exactly one source is set then."""

    address: tuple[str, int] | None
    endpoints_file: Path | None = None
    service: str = ""
    pool: str = ""
    kubeconfig: Path | None = None
    tenant: TenantId = TenantId("default")
    tenant_header: str = ""
    scheme: HashScheme = HashScheme("vllm")
    names: ModelNames = ModelNames()
    body_limit: int = DEFAULT_BODY_LIMIT
    bodies_limit: int = DEFAULT_BODIES_LIMIT
    budget_s: float = 0.2
    shows_reasons: bool = False
    refuses: bool = False


def add_gateway_settings(parser: SettingsParser) -> None:
    """The flags; `gateway_settings` reads them."""
    with parser.section(
        "gateway",
        "The router as endpoint picker of a proxy that speaks Envoy's ext_proc, such as Envoy itself or the "
        "Gateway API Inference Extension. It listens when one of the three sources of endpoints is set.",
    ):
        parser.setting(
            "--gateway-bind-address",
            default=":9002",
            parse=listen_address,
            help="Address of the ext_proc service and its health service; it speaks TLS where the gRPC port "
            "does.",
        )
        parser.setting(
            "--gateway-endpoints-file",
            default="",
            help="YAML file that lists engines: endpoints, each with address (IP:PORT), replica and ready. A "
            "change takes effect within a second.",
        )
        parser.setting(
            "--gateway-service",
            default="",
            parse=_namespaced,
            help="NAMESPACE/NAME of a Kubernetes Service whose EndpointSlices list engines, with :PORT (name "
            "or number) where it has several.",
        )
        parser.setting(
            "--gateway-inference-pool",
            default="",
            parse=_namespaced,
            help="NAMESPACE/NAME of an InferencePool (inference.networking.k8s.io/v1) that selects engines.",
        )
        parser.setting(
            "--kubeconfig",
            default="",
            help="Kubeconfig file by which to reach Kubernetes; empty for the pod's service account.",
        )
        parser.setting(
            "--gateway-tenant",
            default="default",
            help="Tenant of requests: the namespace of the engines, where sidecars report theirs.",
        )
        parser.setting(
            "--gateway-tenant-header",
            default="",
            parse=str.lower,
            help="Header that names a request's tenant, for proxies that set it themselves; a request "
            "without it is --gateway-tenant's.",
        )
        parser.setting(
            "--gateway-hash-scheme",
            default="vllm",
            help="Hash scheme that the engines' producers report.",
        )
        parser.setting(
            "--gateway-models",
            default="",
            parse=model_names,
            help="What names in requests stand for where they are not the model's own: NAME=MODEL, or "
            "NAME=MODEL:ADAPTER for a LoRA adapter, separated by commas.",
        )
        parser.setting(
            "--gateway-default-model",
            default="",
            help="Model of requests that name none.",
        )
        parser.setting(
            "--gateway-body-limit",
            default=str(DEFAULT_BODY_LIMIT),
            parse=at_least(1),
            help="Largest body in bytes that is read; a larger one goes to the least loaded endpoint.",
        )
        parser.setting(
            "--gateway-bodies-limit",
            default=str(DEFAULT_BODIES_LIMIT),
            parse=at_least(1),
            help="Most bytes of bodies that are held at once until all of each has come; beyond it requests "
            "go to the least loaded endpoint without waiting for the rest.",
        )
        parser.setting(
            "--gateway-budget",
            default="200ms",
            parse=duration,
            help="Time for tokenizing and looking up; after it the least loaded endpoint is picked. Keep it "
            "below the proxy's own message timeout.",
        )
        parser.setting(
            "--gateway-reason-headers",
            default=False,
            parse=bool,
            help="Tell clients by the headers x-inferencecache-reason and x-inferencecache-replica why a "
            "request went where.",
        )
        parser.setting(
            "--gateway-no-endpoint",
            default="continue",
            choices=("continue", "refuse"),
            help="When no endpoint is ready: continue leaves the choice to the proxy, refuse has it answer "
            "503, as the Gateway API Inference Extension demands.",
        )
    parser.check(_check_sources)


def gateway_settings(args: argparse.Namespace) -> GatewaySettings:
    """What the flags say."""
    has_source = any(_sources(args))
    return GatewaySettings(
        address=args.gateway_bind_address if has_source else None,
        endpoints_file=_path(args.gateway_endpoints_file),
        service=args.gateway_service,
        pool=args.gateway_inference_pool,
        kubeconfig=_path(args.kubeconfig),
        tenant=TenantId(args.gateway_tenant),
        tenant_header=args.gateway_tenant_header,
        scheme=HashScheme(args.gateway_hash_scheme),
        names=ModelNames(args.gateway_models, args.gateway_default_model),
        body_limit=args.gateway_body_limit,
        bodies_limit=args.gateway_bodies_limit,
        budget_s=args.gateway_budget,
        shows_reasons=args.gateway_reason_headers,
        refuses=args.gateway_no_endpoint == "refuse",
    )


def _path(text: str) -> Path | None:
    return Path(text) if text else None


def _sources(args: argparse.Namespace) -> tuple[str, ...]:
    return (args.gateway_endpoints_file, args.gateway_service, args.gateway_inference_pool)


def _check_sources(args: argparse.Namespace) -> None:
    if sum(map(bool, _sources(args))) > 1:
        raise ValueError(
            "set only one of --gateway-endpoints-file, --gateway-service and --gateway-inference-pool"
        )


def _namespaced(text: str) -> str:
    if text and not all(text.partition("/")[::2]):
        raise ValueError(f"{text!r} is not NAMESPACE/NAME")
    return text
