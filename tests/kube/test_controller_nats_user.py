"""The controller at a NATS server with the shipped users: nothing that it does is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from inferencecache.core.log import Bucket, Log
from inferencecache.core.log.jetstream import NoStreamError, stream_info
from inferencecache.core.log.subjects import POLICY, POLICY_KEY, control_subject, events_stream
from inferencecache.schemas.resources import document_of
from tests.kube.engines import delete_pod, engine_pod, stored_backend
from tests.kube.objects import stored
from tests.support.backends import pod_local
from tests.support.dataplane import ASSETS
from tests.support.kube import ApiServer, KubeClient
from tests.support.nats import NatsServer
from tests.support.nats_roles import as_user, authorization
from tests.support.operating import operating
from tests.support.resources import policy
from tests.support.waiting import eventually

pytestmark = pytest.mark.kube


@pytest.mark.rule("OPS-30")
async def test_the_controller_needs_no_more_than_its_users_permissions(
    operated_server: ApiServer,
    operator_token: str,
    operated: KubeClient,
    operated_namespace: str,
    nats_servers: Callable[..., NatsServer],
) -> None:
    server = nats_servers(extra=authorization())
    backend = await stored_backend(operated, operated_namespace, pod_local())
    user = as_user(server.url, "controller")
    async with operating(operated_server, operator_token, server.url, nats=user):
        log = await Log.connect(as_user(server.url, "observer"), name="inferencecache test", timeout_s=10)

        async def is_published() -> bool:
            try:
                return await Bucket(log, POLICY).get(POLICY_KEY) is not None
            except NoStreamError:
                return False

        async def is_told_everywhere() -> bool:
            """A departure goes to every partition."""
            told = [
                await stream_info(
                    log, events_stream(1, partition), subjects=control_subject(1, partition, "c")
                )
                for partition in range(ASSETS.partitions)
            ]
            return all(info.state.subjects for info in told)

        await stored(operated, document_of(policy(f"{operated_namespace}/lookup")))
        await eventually(is_published, within_s=45)
        await delete_pod(operated, await stored(operated, engine_pod(operated_namespace, "e1", backend)))
        await eventually(is_told_everywhere, within_s=45)
        await log.close()
    assert "Violation" not in server.log_file.read_text()
