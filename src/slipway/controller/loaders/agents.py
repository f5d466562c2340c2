"""Clients of the loaders in pods: they read the loaders' progress, send the desired adapters, and label the pods
accordingly. Each request is signed for its pod (see :mod:`slipway.serving.wire.proof`).

This module does the I/O for :mod:`slipway.controller.loaders.adapters`, which makes the decisions. Each resource that
has pods with a loader has one task, which polls often while an adapter or a download makes progress. A change triggers
a reconciliation of the resource.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus

import aiohttp
import msgspec

from slipway.controller.loaders.adapters import Order, Pod, is_labelled, orders
from slipway.controller.loaders.places import Places
from slipway.decoding import decode_json
from slipway.kube.api.client import Client
from slipway.kube.api.errors import ApiError, ConflictError, NotFoundError
from slipway.kube.objects import POD, Key, Kind, Object, deleting, key, labels, uid
from slipway.serving.pods.job import job_of
from slipway.serving.wire.agent import CONTAINER, PORT, AdapterSet, AgentReport
from slipway.serving.wire.proof import HEADER, SigningKey

log = logging.getLogger(__name__)

QUICK_SECONDS = 1.5
PROGRESS_SECONDS = 5.0
"""Seconds between two polls of a cache's progress. The interval is long because each poll causes a write of the status.
The Job reports the end of the download immediately."""
SLOW_SECONDS = 15.0
CONCURRENT_REQUESTS, OF_A_NAMESPACE = 32, 8
LIMIT = aiohttp.ClientTimeout(total=3.0, sock_connect=2.0)
REPORT_BYTES = 2**20
REASON_BYTES = 300
"""Number of bytes of an error response that are logged."""
SILENCE_SECONDS = 30.0
"""Longest pause, in seconds, before a loader that does not respond is polled again."""

_Subject = tuple[Kind, Key]


def address(pod: Object) -> str:
    """Return the base URL of the loader in a pod, without a trailing slash."""
    ip = pod["status"]["podIP"]
    return f"http://[{ip}]:{PORT}" if ":" in ip else f"http://{ip}:{PORT}"


def has_loader(pod: Object) -> bool:
    """Whether a loader runs in the pod and can be reached. The result is False for a terminating pod."""
    status = pod.get("status", {})
    running = any("running" in one.get("state", {}) for one in _containers(pod) if one["name"] == CONTAINER)
    return running and bool(status.get("podIP")) and not deleting(pod)


def engine_started(pod: Object, container: str) -> bool:
    """Whether the engine has passed its startup probe since its container last started. ``container`` is the name of
    that container."""
    return any(one.get("started") for one in _containers(pod) if one["name"] == container)


def _containers(pod: Object) -> list[Object]:
    status = pod.get("status", {})
    return [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]


def _fills_a_cache(pod: Object) -> bool:
    return job_of(pod) is not None


class _Silent(msgspec.Struct):
    """A loader that does not respond: the number of failed polls, and the monotonic time of the next one."""

    times: int
    until: float


class LoaderClients:
    """Clients of the loaders of every resource. Only the leader's reconciliations start the polling."""

    def __init__(
        self, client: Client, session: aiohttp.ClientSession, address_of: Callable[[Object], str] = address
    ) -> None:
        self._client, self._session, self._address = client, session, address_of
        self._key: SigningKey | None = None
        self._followed: dict[_Subject, _Followed] = {}
        self._listeners: dict[Kind, Callable[[Key], None]] = {}
        self._reports: dict[str, AgentReport] = {}
        self._silent: dict[str, _Silent] = {}
        self._places = Places(CONCURRENT_REQUESTS, OF_A_NAMESPACE)

    def sign_with(self, key: SigningKey) -> None:
        """Set the key that signs all requests. Call this before the first reconciliation."""
        self._key = key

    @property
    def public_key(self) -> str:
        """The public key, as text, by which loaders recognize the controller. Raises RuntimeError before
        ``sign_with``."""
        return self._signing.public

    @property
    def _signing(self) -> SigningKey:
        if self._key is None:
            raise RuntimeError("the controller has no signing key yet")
        return self._key

    def on_change(self, kind: Kind, listener: Callable[[Key], None]) -> None:
        """Register a listener that is called with the key of a resource of ``kind`` whose loaders report a change."""
        self._listeners[kind] = listener

    def reports(self, pods: Iterable[Object]) -> Mapping[str, AgentReport]:
        """Return the last reports of the loaders in ``pods``, by pod UID. Pods without a report are missing."""
        return {uid(pod): self._reports[uid(pod)] for pod in pods if uid(pod) in self._reports}

    def follow(self, kind: Kind, name: Key, pods: Sequence[Object], adapters: AdapterSet) -> None:
        """Set the resource's current pods and their desired adapters, and start polling the loaders. Stop polling if no
        pod has a loader."""
        pods = [pod for pod in pods if has_loader(pod)]
        followed = self._followed.get((kind, name))
        if not pods:
            self.forget(kind, name)
        elif followed is None:
            followed = self._followed[kind, name] = _Followed(pods, adapters)
            followed.task = asyncio.create_task(self._poll(kind, name, followed))
        else:
            self._set_pods(followed, pods, adapters)

    def set_pods(self, kind: Kind, name: Key, pods: Sequence[Object]) -> None:
        """Set the resource's current pods. Their desired adapters stay unchanged. Do nothing if the resource's loaders
        are not polled."""
        followed = self._followed.get((kind, name))
        if followed is not None:
            self._set_pods(followed, [pod for pod in pods if has_loader(pod)], followed.adapters)

    def forget(self, kind: Kind, name: Key) -> None:
        """Stop polling the loaders of a resource."""
        followed = self._followed.pop((kind, name), None)
        if followed is None:
            return
        if followed.task is not None:
            followed.task.cancel()
        self._set_pods(followed, (), followed.adapters)

    async def close(self) -> None:
        """Cancel the polling tasks, and wait until they have ended."""
        tasks = [followed.task for followed in self._followed.values() if followed.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _poll(self, kind: Kind, name: Key, followed: _Followed) -> None:
        while True:
            followed.news.clear()
            seconds = SLOW_SECONDS
            try:
                seconds = await self._poll_once(kind, name, followed)
            except ApiError as error:
                log.warning("adapters of %s %s: %s", kind.kind, name, error)
            except Exception:  # a bug must only affect this resource
                log.exception("loaders of %s %s", kind.kind, name)
            try:
                async with asyncio.timeout(seconds):
                    await followed.news.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(0.05)  # several changes often arrive together

    async def _poll_once(self, kind: Kind, name: Key, followed: _Followed) -> float:
        """Poll every pod once, and execute the orders that follow. Return the seconds until the next poll."""
        pods, before = followed.pods, self.reports(followed.pods)
        fresh = await self._request_reports(followed, pods)
        views = [_view(pod, followed.adapters) for pod in pods if not _fills_a_cache(pod)]
        pod_orders = orders(views, followed.adapters, fresh, followed.unlabelled_seconds(views))
        await asyncio.gather(
            *(self._execute(followed, pod, pod_orders[uid(pod)]) for pod in pods if uid(pod) in pod_orders)
        )
        if self.reports(pods) != before and kind in self._listeners:
            self._listeners[kind](name)
        filling = [pod for pod in pods if _fills_a_cache(pod)]
        if any(order.moving for order in pod_orders.values()) or any(uid(pod) not in fresh for pod in filling):
            return QUICK_SECONDS
        if filling:
            return PROGRESS_SECONDS
        pauses = [silent.until - time.monotonic() for pod in pods if (silent := self._silent.get(uid(pod)))]
        return max(QUICK_SECONDS, min([*pauses, SLOW_SECONDS]))

    async def _request_reports(self, followed: _Followed, pods: Sequence[Object]) -> dict[str, AgentReport]:
        answers = await asyncio.gather(*(self._request_report(followed, pod, "GET", "/v1/state") for pod in pods))
        return {uid(pod): answer for pod, answer in zip(pods, answers, strict=True) if answer is not None}

    async def _execute(self, followed: _Followed, pod: Object, order: Order) -> None:
        if order.labels:
            patch = {"metadata": {"uid": uid(pod), "labels": dict(order.labels)}}
            try:
                await self._client.merge_patch(POD, key(pod), patch)
            except (NotFoundError, ConflictError):
                return
        if order.desired is not None:
            await self._request_report(followed, pod, "PUT", "/v1/adapters", msgspec.json.encode(order.desired))

    async def _request_report(
        self, followed: _Followed, pod: Object, method: str, path: str, body: bytes = b""
    ) -> AgentReport | None:
        """Send one request to the pod's loader, and return its report. Return None if there is no valid response, if
        the pod is gone, or if the loader is not polled for a while because it did not respond earlier."""
        identity = uid(pod)
        silent = self._silent.get(identity)
        if silent is not None and time.monotonic() < silent.until:
            return None
        try:
            async with (
                self._places.of(key(pod).namespace),
                # A pod must not redirect the controller to another host.
                self._session.request(
                    method,
                    self._address(pod) + path,
                    data=body or None,
                    headers={HEADER: self._signing.proof(method, path, body, identity, time.time_ns())},
                    timeout=LIMIT,
                    allow_redirects=False,
                ) as response,
            ):
                report = decode_json(await _body(response), AgentReport, most=REPORT_BYTES)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            if not followed.has(pod):
                return None
            times = silent.times + 1 if silent else 1
            pause = min(QUICK_SECONDS * 2.0 ** min(times, 10), SILENCE_SECONDS)
            self._silent[identity] = _Silent(times, time.monotonic() + pause)
            log.log(logging.WARNING if times == 3 else logging.DEBUG, "loader in pod %s: %r", key(pod), error)
            return None
        if not followed.has(pod):  # its state would otherwise never be removed
            return None
        self._silent.pop(identity, None)
        self._reports[identity] = report
        return report

    def _set_pods(self, followed: _Followed, pods: Sequence[Object], adapters: AdapterSet) -> None:
        for removed in {uid(pod) for pod in followed.pods} - {uid(pod) for pod in pods}:
            self._drop(removed)
        followed.update(pods, adapters)

    def _drop(self, identity: str) -> None:
        self._reports.pop(identity, None)
        self._silent.pop(identity, None)


async def _body(response: aiohttp.ClientResponse) -> bytearray:
    """Return the response body. Raise ValueError for an error response, with the loader's reason.

    Reading stops after ``REPORT_BYTES``, because a hostile pod could otherwise fill the controller's memory.
    """
    refused = response.status != HTTPStatus.OK
    most, body = REASON_BYTES if refused else REPORT_BYTES, bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > most:
            break
    if refused:
        raise ValueError(f"status {response.status}: {body[:most].decode(errors='replace').strip()}")
    return body


class _Followed:
    """The pods of one resource that have loaders, and their desired adapters."""

    def __init__(self, pods: Sequence[Object], adapters: AdapterSet) -> None:
        self.pods, self.adapters = pods, adapters
        self._uids = set(map(uid, pods))
        self.news = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self._unlabelled: dict[tuple[str, str], float] = {}

    def update(self, pods: Sequence[Object], adapters: AdapterSet) -> None:
        """Set the pods and their desired adapters, and wake the polling task if they changed."""
        before, after = ([_view(pod, adapters) for pod in some] for some in (self.pods, pods))
        if adapters != self.adapters or before != after:
            self.news.set()
        self.pods, self.adapters = pods, adapters
        self._uids = set(map(uid, pods))

    def has(self, pod: Object) -> bool:
        """Whether the pod is among the resource's current pods."""
        return uid(pod) in self._uids

    def unlabelled_seconds(self, pods: Sequence[Pod]) -> dict[tuple[str, str], float]:
        """Return the seconds since this process first saw a pod without an adapter's label, by (pod UID, adapter
        name)."""
        now = time.monotonic()
        adapter_set = self.adapters
        lacking = [
            (pod.uid, one.name)
            for pod in pods
            for one in adapter_set.adapters
            if not is_labelled(pod, adapter_set, one)
        ]
        self._unlabelled = {pair: self._unlabelled.get(pair, now) for pair in lacking}
        return {pair: now - since for pair, since in self._unlabelled.items()}


def _view(pod: Object, adapters: AdapterSet) -> Pod:
    return Pod(uid(pod), labels(pod), engine_started(pod, adapters.container))
