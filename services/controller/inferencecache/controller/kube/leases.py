"""Who leads: one process at a time, by a Lease that it renews [CTL-07].

A lease of somebody else counts as expired when this process has seen it unchanged for its whole duration
by its own clock, so clocks of other machines do not matter. Whoever cannot renew in time stops leading
before others may begin.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from inferencecache.core.kube.api import KubeApi, KubeError, RefusedCallError
from inferencecache.core.kube.kinds import LEASES, Document
from inferencecache.core.service import get_logger

LOCK: Final = "inference-cache-controller-leader-lock"

logger = get_logger("leader")


class LeadershipLostError(Exception):
    """The lease could not be renewed in time, or somebody else has it: this process must not go on."""

    def __init__(self, holder: str) -> None:
        super().__init__(f"no longer the leader; the lease {LOCK} is held by {holder or 'nobody'}")
        self.holder = holder


class LeaseTimes(msgspec.Struct, frozen=True):
    """Seconds: how long a lease lasts, how long the leader tries to renew it, how often anybody tries."""

    duration_s: float = 15.0
    renewal_s: float = 10.0
    retry_s: float = 2.0


class LeaseHeld:
    """What a process knows about a lease, without I/O. Times are of its own monotonic clock."""

    def __init__(self, identity: str, times: LeaseTimes) -> None:
        self._identity = identity
        self._times = times
        self._seen: tuple[str, str, str] | None = None
        self._changed_at = 0.0

    def wanted(self, lease: Document | None, now: float, wall: datetime) -> dict[str, Any] | None:
        """The spec to write so as to have the lease; None while it is somebody else's."""
        spec = (lease or {}).get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        seen = (holder, str(spec.get("renewTime")), str(spec.get("leaseTransitions")))
        if seen != self._seen:
            self._seen, self._changed_at = seen, now
        lasts = float(spec.get("leaseDurationSeconds") or self._times.duration_s)
        if holder not in ("", self._identity) and now - self._changed_at < lasts:
            return None
        is_mine = holder == self._identity
        moment = wall.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self._times.duration_s)),
            "acquireTime": spec.get("acquireTime") if is_mine else moment,
            "renewTime": moment,
            "leaseTransitions": int(spec.get("leaseTransitions") or 0) + (lease is not None and not is_mine),
        }


class Leadership:
    """One process's part in the election for the lock of a namespace."""

    def __init__(
        self,
        api: KubeApi,
        namespace: str,
        identity: str,
        times: LeaseTimes = LeaseTimes(),  # noqa: B008 - frozen
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._identity = identity
        self._times = times
        self._clock = clock
        self._held = LeaseHeld(identity, times)
        self._renewed_at = float("-inf")
        self._holder = ""

    @property
    def is_certain(self) -> bool:
        """Can nobody else lead now? False in a process that was stopped for longer than its lease lasts, even
        before it has looked who leads.
        """
        is_fresh = self._clock() - self._renewed_at < self._times.duration_s
        return is_fresh and self._holder == self._identity

    async def acquire(self) -> None:
        """Return once this process leads."""
        while True:
            if await self._try():
                break
            await asyncio.sleep(self._times.retry_s)
        logger.info("leader_elected", identity=self._identity)

    async def keep(self) -> None:
        """Renew until cancelled. Raises `LeadershipLostError`."""
        while True:
            await asyncio.sleep(self._times.retry_s)
            is_held = await self._try()
            late = self._clock() - self._renewed_at >= self._times.renewal_s
            if not is_held and (late or self._holder != self._identity):
                raise LeadershipLostError(self._holder)

    async def give_up(self) -> None:
        """Let another process lead at once, as far as that can be told in time."""
        with contextlib.suppress(KubeError, TimeoutError):
            async with asyncio.timeout(self._times.retry_s):
                lease = await self._api.get(LEASES, self._namespace, LOCK)
                spec = (lease or {}).get("spec") or {}
                if lease is not None and spec.get("holderIdentity") == self._identity:
                    freed = spec | {"holderIdentity": "", "leaseDurationSeconds": 1}
                    await self._api.replace(LEASES, lease | {"spec": freed})

    async def _try(self) -> bool:
        """Acquire or renew once."""
        try:
            async with asyncio.timeout(self._times.renewal_s / 2):
                return await self._try_once()
        except RefusedCallError as error:
            if not error.is_conflict:
                logger.warning("lease_refused", error=str(error))
        except (KubeError, TimeoutError) as error:
            logger.warning("lease_unreachable", error=str(error) or "no answer in time")
        return False

    async def _try_once(self) -> bool:
        started = self._clock()
        lease = await self._api.get(LEASES, self._namespace, LOCK)
        self._holder = ((lease or {}).get("spec") or {}).get("holderIdentity") or ""
        spec = self._held.wanted(lease, started, datetime.now(UTC))
        if spec is None:
            return False
        if lease is None:
            metadata = {"name": LOCK, "namespace": self._namespace}
            head = {"apiVersion": LEASES.api_version, "kind": LEASES.name, "metadata": metadata}
            await self._api.create(LEASES, head | {"spec": spec})
        else:
            await self._api.replace(LEASES, lease | {"spec": spec})
        self._holder, self._renewed_at = self._identity, started
        return True
