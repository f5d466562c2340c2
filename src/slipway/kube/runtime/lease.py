"""Leader election with a Lease object, so that at most one process writes.

A candidate takes the lease if its holder has not renewed it for the lease's duration. The candidate measures this time
with its own monotonic clock from the moment at which it first saw the last renewal, so wall clocks do not matter. A
leader that fails to renew within the shorter renew deadline is no longer ``leading`` from that moment, and its process
ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import time
import uuid
from datetime import UTC, datetime

from slipway.kube.api.client import Client
from slipway.kube.api.errors import ApiError, ConflictError, NotFoundError
from slipway.kube.metrics import Metrics
from slipway.kube.objects import LEASE, Key, Object

log = logging.getLogger(__name__)

LEASE_SECONDS = 15.0
RENEW_SECONDS = 10.0
RETRY_SECONDS = 2.0
"""Seconds between two attempts. Like the lease duration and the renew deadline, this is the default of Kubernetes' own
controllers."""


class LeadershipLostError(Exception):
    """Another process may have become the leader, so this process must end."""


class LeaderElector:
    """A candidate for one Lease. Pass ``leading`` to :meth:`slipway.kube.api.client.Client.fenced`."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        *,
        metrics: Metrics,
        identity: str = "",
        lease_seconds: float = LEASE_SECONDS,
        renew_seconds: float = RENEW_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        """Create a candidate. ``identity`` names this process; the default is ``$POD_NAME``, or else the host name with
        a random suffix. The other parameters are the duration of the lease, the deadline for its renewal, and the pause
        between two attempts.

        A container that restarts in its pod takes over its own lease immediately: its predecessor has ended, and no
        other process has the pod's name.
        """
        self._client = client
        self._name = Key(namespace, name)
        self.identity = identity or os.environ.get("POD_NAME") or f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}"
        self._lease_seconds = lease_seconds
        self._renew_seconds = renew_seconds
        self._retry_seconds = retry_seconds
        self._gauge = metrics.leading.labels(name)
        self._lease: Object | None = None
        """The lease as this process last wrote it. The value is None while another process may hold it."""
        self._renewed = float("-inf")
        self._observed: tuple[object, ...] = ()
        self._observed_at = 0.0

    def leading(self) -> bool:
        """Whether this process may currently write."""
        return time.monotonic() < self._renewed + self._renew_seconds

    async def acquire(self) -> None:
        """Wait until this process leads. Errors of the API server are retried."""
        while True:
            if await self._attempt():
                break
            await asyncio.sleep(self._retry_seconds * random.uniform(0.7, 1.0))  # noqa: S311
        log.info("Became leader as %s", self.identity)
        self._gauge.set(1)

    async def hold(self) -> None:
        """Renew the lease until leadership is lost. Then raise LeadershipLostError."""
        try:
            while self.leading():
                await asyncio.sleep(self._retry_seconds)
                await self._attempt()
        finally:
            self._gauge.set(0)
        raise LeadershipLostError(f"the lease {self._name} could not be renewed for {self._renew_seconds:g} s")

    async def release(self) -> None:
        """Release the lease, so that a successor need not wait until it expires. Do nothing if this process does not
        lead. A failure is only logged."""
        if self._lease is None or not self.leading():
            return
        self._renewed = float("-inf")
        self._gauge.set(0)
        try:
            async with asyncio.timeout(self._retry_seconds):
                await self._client.replace(LEASE, self._record(self._lease, holder="", seconds=1))
            log.info("Released lease %s", self._name)
        except (ApiError, TimeoutError) as error:
            log.warning("Could not release lease %s: %s", self._name, error)

    async def _attempt(self) -> bool:
        """Try once to acquire or renew the lease. Return whether this succeeded. Errors are logged.

        The attempt ends early enough for another one, and no later than the leader's deadline.
        """
        began = time.monotonic()
        remaining = self._renewed + self._renew_seconds - began
        try:
            async with asyncio.timeout(
                min(self._renew_seconds / 2, remaining) if remaining > 0 else self._renew_seconds / 2
            ):
                held = await self._renew() if self._lease is not None else await self._acquire()
        except (ApiError, TimeoutError) as error:
            log.warning("Could not acquire or renew lease %s: %s", self._name, error or type(error).__name__)
            return False
        if held:
            self._renewed = began
        return held

    async def _renew(self) -> bool:
        try:
            self._lease = await self._client.replace(LEASE, self._record(self._lease or {}, self.identity))
        except (ConflictError, NotFoundError):  # another process wrote to it: check who holds it now
            self._lease = None
            return await self._acquire()
        return True

    async def _acquire(self) -> bool:
        try:
            current = await self._client.get(LEASE, self._name)
        except NotFoundError:
            try:
                self._lease = await self._client.create(LEASE, self._record({}, self.identity))
            except ConflictError:
                return False
            return True
        if not self._free(current.get("spec") or {}):
            self._renewed = float("-inf")  # another process holds it, whatever we assumed
            return False
        try:
            self._lease = await self._client.replace(LEASE, self._record(current, self.identity))
        except ConflictError:
            return False
        return True

    def _free(self, spec: Object) -> bool:
        """Whether the lease is ours, has no holder, or has expired."""
        record = (spec.get("holderIdentity"), spec.get("renewTime"), spec.get("leaseTransitions"))
        if record != self._observed:
            self._observed, self._observed_at = record, time.monotonic()
        if spec.get("holderIdentity") in (None, "", self.identity):
            return True
        return time.monotonic() >= self._observed_at + float(spec.get("leaseDurationSeconds") or self._lease_seconds)

    def _record(self, current: Object, holder: str, seconds: float = 0.0) -> Object:
        """Return the lease to write, with the resource version of ``current`` as a precondition. An empty ``holder``
        releases the lease. ``seconds`` is its duration; 0 means the usual one."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        before = current.get("spec") or {}
        is_takeover = bool(holder and before) and before.get("holderIdentity") != holder
        metadata = {"namespace": self._name.namespace, "name": self._name.name}
        spec = {
            "holderIdentity": holder,
            "leaseDurationSeconds": int(seconds or self._lease_seconds),
            "acquireTime": now if is_takeover else before.get("acquireTime") or now,
            "renewTime": now,
            "leaseTransitions": int(before.get("leaseTransitions") or 0) + is_takeover,
        }
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": current.get("metadata") or metadata,
            "spec": spec,
        }
