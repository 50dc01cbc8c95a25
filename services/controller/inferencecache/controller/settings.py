"""The controller's flags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from inferencecache.controller.admission.validation.storage import is_subdomain
from inferencecache.controller.injection import SidecarSettings
from inferencecache.core.service import (
    AssetSettings,
    NatsSettings,
    SettingsParser,
    add_asset_settings,
    add_log_settings,
    add_nats_settings,
    asset_settings,
    duration,
    listen_address,
    nats_settings,
    nats_url,
)

WEBHOOK_ADDRESS: Final = "--webhook-bind-address"
METRICS_ADDRESS: Final = "--metrics-bind-address"
HEALTH_ADDRESS: Final = "--health-probe-bind-address"
CERTIFICATE: Final = "--webhook-cert-file"
KEY: Final = "--webhook-key-file"
_CERTIFICATES: Final = "/tmp/k8s-webhook-server/serving-certs"  # noqa: S108 - where the manifests mount it

_NAME: Final = "inferencecache-controller"
_ACCOUNT_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_DEFAULT_NAMESPACE: Final = "inference-cache-system"
_DEFAULT_INTERVAL: Final = "30s"
_DESCRIPTION: Final = (
    "The side of an installation that speaks to Kubernetes: it makes what CacheBackend objects ask for, "
    "publishes policies, templates and topologies to routers, tells the state of the index in the status of "
    "objects, and answers the admission webhooks. Any number may run side by side with --leader-elect."
)
_EPILOG: Final = """examples:
  inferencecache-controller --nats-url=nats://inference-cache-nats:4222 --leader-elect
  inferencecache-controller --kubeconfig=$HOME/.kube/config \\
      --nats-url=nats://127.0.0.1:4222 --insecure-nats \\
      --webhook-cert-file=tls.crt --webhook-key-file=tls.key --log-format=text

The API server finds it by the webhook configurations of deploy/base/webhooks."""


class ControllerSettings(msgspec.Struct, frozen=True):
    """`kubeconfig` None means the pod's service account; an address None means no listener.

    `namespace` is where the lock of leader election is. Times in seconds.
    """

    kubeconfig: Path | None
    webhook_address: tuple[str, int]
    certificate: Path
    key: Path
    metrics_address: tuple[str, int] | None
    health_address: tuple[str, int] | None
    sidecar: SidecarSettings
    nats: NatsSettings
    log_format: str = "json"
    log_level: str = "info"
    assets: AssetSettings = AssetSettings()
    leader_elect: bool = False
    namespace: str = _DEFAULT_NAMESPACE
    functional_probe: bool = True
    refresh_interval_s: float = 30.0
    push_interval_s: float = 30.0
    metrics_secure: bool = False


def read_settings(
    arguments: Sequence[str] | None = None, environment: Mapping[str, str] | None = None
) -> ControllerSettings:
    """Settings from the command line and the environment; a wrong one ends the process with 2."""
    parser = SettingsParser(_NAME, _DESCRIPTION, epilog=_EPILOG, environment=environment)
    with parser.section("Kubernetes"):
        parser.setting(
            "--kubeconfig",
            default="",
            help="File with address and credentials of the API server, as for kubectl: a token or a client "
            "certificate. Empty: the service account of the pod that this process runs in.",
        )
        parser.setting(
            "--leader-elect",
            default=False,
            parse=bool,
            help="Let one process at a time reconcile, decided by a Lease; every process answers webhooks.",
        )
        parser.setting(
            "--leader-election-namespace",
            default="",
            help="Namespace of the Lease. Empty: that of the pod that this process runs in, else "
            f"{_DEFAULT_NAMESPACE}.",
        )
    add_nats_settings(parser, required=True)
    add_asset_settings(parser)
    with parser.section("reconciliation"):
        parser.setting(
            "--functional-probe",
            default=True,
            parse=bool,
            help="Have a router try the way from the log to a hint for each managed backend, and let its "
            "readiness depend on that.",
        )
        parser.setting(
            "--cacheindex-refresh-interval",
            default=_DEFAULT_INTERVAL,
            parse=_interval,
            help="How often the state of the index is told in the status of objects; 0 or less means the "
            "default.",
        )
        parser.setting(
            "--cachepolicy-push-interval",
            default=_DEFAULT_INTERVAL,
            parse=_interval,
            help="How often the policy set is compared with what routers read, beside every change; 0 or "
            "less means the default.",
        )
    with parser.section("webhooks", "Where the API server calls, by HTTPS."):
        parser.setting(
            WEBHOOK_ADDRESS, default=":9443", parse=_address, help="Address of the admission webhooks."
        )
        parser.setting(
            CERTIFICATE,
            default=f"{_CERTIFICATES}/tls.crt",
            help="PEM certificate (chain) of the webhooks, as cert-manager issues it. A new file is used "
            "from the next handshake on.",
        )
        parser.setting(KEY, default=f"{_CERTIFICATES}/tls.key", help=f"PEM private key of {CERTIFICATE}.")
    with parser.section("engine pods", "What they get besides the wiring that their backend asks for."):
        parser.setting(
            "--kvevent-subscriber-image",
            default="",
            parse=str.strip,
            help="Image of the sidecar that reports an engine's KV events. Empty: pods get no sidecar, all "
            "other wiring still happens.",
        )
        parser.setting(
            "--kvevent-subscriber-nats-url",
            default="",
            parse=nats_url,
            help="NATS address that sidecars report to, as seen from the engines' namespaces. Empty: that of "
            "the manifests.",
        )
        parser.setting(
            "--kvevent-subscriber-credentials-secret",
            default="",
            parse=_secret_name,
            help="Secret with the sidecar's NATS credentials, looked for in each engine's namespace. Empty: "
            "sidecars connect without.",
        )
    with parser.section("health and metrics"):
        parser.setting(
            METRICS_ADDRESS,
            default=":8080",
            parse=listen_address,
            help="Address of /metrics; empty for none.",
        )
        parser.setting(
            HEALTH_ADDRESS,
            default=":8081",
            parse=listen_address,
            help="Address of /healthz and /readyz; empty for none.",
        )
        parser.setting(
            "--metrics-secure",
            default=False,
            parse=bool,
            help=f"Serve /metrics by HTTPS, with the certificate of {CERTIFICATE}.",
        )
        parser.setting(
            "--enable-http2",
            default=False,
            parse=_no_http2,
            help="Only false: the HTTPS listeners offer HTTP/1.1 and nothing else.",
        )
    add_log_settings(parser)
    args = parser.parse_args(arguments)
    return ControllerSettings(
        kubeconfig=Path(args.kubeconfig) if args.kubeconfig else None,
        webhook_address=args.webhook_bind_address,
        certificate=Path(args.webhook_cert_file),
        key=Path(args.webhook_key_file),
        metrics_address=args.metrics_bind_address,
        health_address=args.health_probe_bind_address,
        sidecar=SidecarSettings(
            image=args.kvevent_subscriber_image,
            nats_url=args.kvevent_subscriber_nats_url,
            credentials_secret=args.kvevent_subscriber_credentials_secret,
        ),
        nats=nats_settings(args),
        log_format=args.log_format,
        log_level=args.log_level,
        assets=asset_settings(args),
        leader_elect=args.leader_elect,
        namespace=args.leader_election_namespace or _own_namespace(),
        functional_probe=args.functional_probe,
        refresh_interval_s=args.cacheindex_refresh_interval,
        push_interval_s=args.cachepolicy_push_interval,
        metrics_secure=args.metrics_secure,
    )


def _own_namespace() -> str:
    try:
        return _ACCOUNT_NAMESPACE.read_text().strip() or _DEFAULT_NAMESPACE
    except OSError:
        return _DEFAULT_NAMESPACE


def _interval(text: str) -> float:
    """Seconds; 0 or less means the default [CTL-01]."""
    seconds = duration(text)
    return seconds if seconds > 0 else duration(_DEFAULT_INTERVAL)


def _secret_name(text: str) -> str:
    """A name that the API refuses would keep every engine out [ADM-228]."""
    name = text.strip()
    if name and not is_subdomain(name):
        raise ValueError("no name of a Secret; write lower-case letters, digits, '-' and '.'")
    return name


def _no_http2(text: str) -> bool:
    if text.strip().lower() not in ("false", "0"):
        raise ValueError("HTTP/2 is not offered; leave --enable-http2 out")
    return False


def _address(text: str) -> tuple[str, int]:
    address = listen_address(text)
    if address is None:
        raise ValueError("without webhooks the controller serves nobody; write HOST:PORT or :PORT")
    return address
