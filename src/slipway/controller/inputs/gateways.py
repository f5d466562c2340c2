"""Number of requests in flight or waiting for each Service, summed over all gateway pods."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlencode

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from slipway.decoding import decode_json, refuse_longer
from slipway.kube.api.client import Client
from slipway.kube.caches.informer import Informer
from slipway.kube.objects import POD, Key, Object, deleting
from slipway.serving.containers.diagnosis import is_ready

log = logging.getLogger(__name__)

GATEWAY = "app.kubernetes.io/name=slipway-gateway"
PORT = 8081
LIMIT = aiohttp.ClientTimeout(total=1.5)
REMEMBERED_SECONDS = 30.0
"""Seconds for which the last numbers of an unreachable gateway still count."""
METRICS_BYTES = 64 << 20
"""Maximum size of one gateway's metrics in bytes. The metrics of 10,000 models have a tenth of this size."""
AT_ONCE = 256
"""Maximum number of Services in one request to a gateway."""
COUNTED = ("slipway_gateway_requests_in_flight", "slipway_gateway_requests_waiting")
UP = "slipway_gateway_haproxy_up"


class Traffic(NamedTuple):
    """Numbers of requests in flight or waiting, by Service. A Service without requests may be missing."""

    requests: Mapping[Key, float]
    complete: bool
    """Whether every serving gateway responded. The value is False if there is no gateway."""


class _Sample(NamedTuple):
    requests: Mapping[Key, float]
    at: float


class Gateways:
    """A client that queries all gateways concurrently."""

    def __init__(
        self, client: Client, session: aiohttp.ClientSession, namespace: str, addresses: Sequence[str] = ()
    ) -> None:
        """Create a client. ``addresses`` (``HOST:PORT``) are queried instead of the gateway pods in the namespace,
        unless empty."""
        self.pods = Informer(client, POD, namespace=namespace, labels=GATEWAY)
        self._session = session
        self._addresses = tuple(addresses)
        self._samples: dict[str, _Sample] = {}

    async def traffic(self) -> Traffic:
        """Return the number of requests for each Service, from the metrics of all gateways. The last numbers of an
        unreachable gateway count for ``REMEMBERED_SECONDS``, but the result is then incomplete. This method never
        raises an error."""
        addresses = self._list_addresses()
        answers = await asyncio.gather(*(self._query(address, "/metrics", parse) for address in addresses))
        now = time.monotonic()
        by_address = dict(zip(addresses, answers, strict=True))
        self._samples |= {address: _Sample(answer, now) for address, answer in by_address.items() if answer is not None}
        self._samples = {
            address: sample
            for address, sample in self._samples.items()
            if address in addresses and now - sample.at < REMEMBERED_SECONDS
        }
        total: dict[Key, float] = {}
        for sample in self._samples.values():
            for service, requests in sample.requests.items():
                total[service] = total.get(service, 0.0) + requests
        missing = [address for address, answer in by_address.items() if answer is None and addresses[address]]
        return Traffic(total, complete=bool(addresses) and not missing)

    async def requests(self, services: Iterable[Key]) -> Traffic:
        """Return the number of requests for each of ``services``. An unreachable gateway makes the result incomplete,
        and its earlier numbers do not count. This method never raises an error."""
        required = self._list_addresses()
        paths = _requests_paths(sorted(services))
        queries = [(address, path) for address in required for path in paths]
        answers = await asyncio.gather(*(self._query(address, path, parse_requests) for address, path in queries))
        total: dict[Key, float] = {}
        missing = False
        for (address, _path), answer in zip(queries, answers, strict=True):
            missing = missing or (answer is None and required[address])
            for service, requests in (answer or {}).items():
                total[service] = total.get(service, 0.0) + requests
        return Traffic(total, complete=bool(required) and not missing)

    def _list_addresses(self) -> dict[str, bool]:
        """Return the address of each gateway, and whether its numbers are required. Pods that are starting or
        terminating need not respond."""
        if self._addresses:
            return dict.fromkeys(self._addresses, True)
        pods = [pod for pod in self.pods.store.all() if pod.get("status", {}).get("podIP")]
        return {_address(pod): is_ready(pod) and not deleting(pod) for pod in pods}

    async def _query(
        self, address: str, path: str, read: Callable[[str], Mapping[Key, float]]
    ) -> Mapping[Key, float] | None:
        try:
            request = self._session.get(f"http://{address}{path}", timeout=LIMIT, allow_redirects=False)
            async with request as response:
                response.raise_for_status()
                return read(await _text(response))
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            log.debug("gateway %s: %r", address, error)
            return None


async def _text(response: aiohttp.ClientResponse) -> str:
    """Return the body of a gateway's response as text. Raise ValueError if it exceeds METRICS_BYTES or is not text."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        refuse_longer(body, METRICS_BYTES)
    return body.decode()


def parse(text: str) -> dict[Key, float]:
    """Return the number of requests in flight or waiting, by Service, from a gateway's metrics. Raise ValueError if
    they are invalid, or if they contain no requests and do not show that HAProxy runs."""
    requests: dict[Key, float] = {}
    up = False
    lines = [line for line in text.splitlines(keepends=True) if line.startswith((*COUNTED, UP))]
    for family in text_string_to_metric_families("".join(lines)):
        for sample in family.samples:
            if sample.name in COUNTED:
                service = Key(sample.labels.get("namespace", ""), sample.labels.get("model", ""))
                requests[service] = requests.get(service, 0.0) + sample.value
            up = up or (sample.name == UP and sample.value == 1)
    if not requests and not up:
        raise ValueError("the gateway does not report its requests")
    return requests


def parse_requests(text: str) -> dict[Key, float]:
    """Return the number of requests, by Service, from a gateway's JSON response. Raise ValueError if it is invalid."""
    numbers = decode_json(text, dict[str, int], most=METRICS_BYTES)
    return {Key(*service.split("/", 1)): float(number) for service, number in numbers.items() if "/" in service}


def _requests_paths(services: Sequence[Key]) -> list[str]:
    """Return the paths and queries of the requests to a gateway that together name all ``services``."""
    parts = (services[start : start + AT_ONCE] for start in range(0, len(services), AT_ONCE))
    return [f"/requests?{urlencode([('service', str(service)) for service in part])}" for part in parts]


def _address(pod: Object) -> str:
    ip = pod["status"]["podIP"]
    return f"[{ip}]:{PORT}" if ":" in ip else f"{ip}:{PORT}"
