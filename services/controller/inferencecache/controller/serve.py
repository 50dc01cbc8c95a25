"""The controller as a process: webhooks, health and metrics, the operation, and a stop that is bounded.

Every replica answers webhooks, whoever leads, and whether or not NATS is there [ADM-03, CTL-06, CTL-07].
"""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry, ProcessCollector

from inferencecache.controller.admission import AdmissionListener, AdmissionMetrics, webhooks_of
from inferencecache.controller.admission.lookups import lookup_in
from inferencecache.controller.admission.tls import tls_context
from inferencecache.controller.injection import pod_webhook
from inferencecache.controller.kube.leases import LOCK, LeadershipLostError
from inferencecache.controller.operating import Operating
from inferencecache.controller.settings import (
    CERTIFICATE,
    HEALTH_ADDRESS,
    KEY,
    METRICS_ADDRESS,
    WEBHOOK_ADDRESS,
    ControllerSettings,
)
from inferencecache.controller.work import work_of
from inferencecache.core.kube.access import ClusterAccessError, access_to_cluster
from inferencecache.core.kube.cluster import Cluster
from inferencecache.core.service import CertificateError, CertificateFiles, HttpEndpoints, get_logger

log = get_logger("controller")


async def serve(settings: ControllerSettings, stop: asyncio.Event) -> int:
    """Serve until `stop` is set; answers the exit code. Raises `ListenError`."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    try:
        access = access_to_cluster(settings.kubeconfig)
        certificate = CertificateFiles(
            settings.certificate, settings.key, flags=(CERTIFICATE, KEY), reload_event="webhook_tls_reload"
        )
    except ClusterAccessError as error:
        log.error("cluster_access", msg=str(error))  # noqa: TRY400 - the message says all
        return 1
    except CertificateError as error:
        log.error("webhook_tls_load", msg=str(error))  # noqa: TRY400 - the message says all
        return 1
    async with Cluster(access) as cluster:
        webhooks = AdmissionListener(
            settings.webhook_address,
            certificate,
            webhooks_of(pod_webhook(settings.sidecar)),
            lookup_in(cluster),
            AdmissionMetrics(registry),
            setting=WEBHOOK_ADDRESS,
        )
        secured = tls_context(certificate) if settings.metrics_secure else None
        pages = [
            HttpEndpoints(address, lambda: not stop.is_set(), registry, setting=setting, tls=tls)
            for address, setting, tls in (
                (settings.metrics_address, METRICS_ADDRESS, secured),
                (settings.health_address, HEALTH_ADDRESS, None),
            )
        ]
        operating = Operating(settings, access, cluster, registry)
        running: asyncio.Future[None] | None = None
        stopped = asyncio.ensure_future(stop.wait())
        try:
            # Ready means that webhooks answer, so they come first.
            await webhooks.start()
            for page in pages:
                await page.start()
            log.info(
                "controller_started",
                api_server=access.server,
                webhook_port=webhooks.port,
                metrics_port=pages[0].port,
                health_port=pages[1].port,
            )
            running = asyncio.ensure_future(operating.run(work_of))
            await asyncio.wait((running, stopped), return_when=asyncio.FIRST_COMPLETED)
            return _code_of(running) if running.done() else 0
        finally:
            log.info("graceful_shutdown_started")
            stopped.cancel()
            if running is not None:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
            await asyncio.gather(webhooks.stop(), operating.close(), *(page.stop() for page in pages))
            log.info("graceful_shutdown_done")


def _code_of(ended: asyncio.Future[None]) -> int:
    """The exit code of an operation that ended by itself; a process that lost its lease starts anew."""
    error = ended.exception()
    if isinstance(error, BaseExceptionGroup) and error.subgroup(LeadershipLostError) is not None:
        log.error("leadership_lost", lease=LOCK, msg="the lease could not be renewed")
        return 1
    if error is not None:
        raise error
    return 0
