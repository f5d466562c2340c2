"""Gateways: how many requests every Service has in flight and waiting, summed over all gateway pods."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import aiohttp

from slipway.kube.client import Client
from slipway.kube.informer import Informer
from slipway.kube.objects import POD, Key, Object, deleting
from slipway.serving.diagnosis import is_ready

log = logging.getLogger(__name__)

GATEWAY = "app.kubernetes.io/name=slipway-gateway"
PORT = 8081
LIMIT = aiohttp.ClientTimeout(total=1.5)
REMEMBERED_SECONDS = 30.0
"""How long the last numbers of a gateway count that cannot be asked."""
_SAMPLE = re.compile(r"^slipway_gateway_requests_(?:in_flight|waiting)\{([^}]*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


class Traffic(NamedTuple):
    """Requests in flight and waiting, by Service."""

    requests: Mapping[Key, float]
    complete: bool
    """Whether every gateway that serves could be asked."""


class _Known(NamedTuple):
    requests: Mapping[Key, float]
    at: float


class Gateways:
    """Asks all gateways at once."""

    def __init__(
        self, client: Client, session: aiohttp.ClientSession, namespace: str, addresses: Sequence[str] = ()
    ) -> None:
        """``addresses`` (``HOST:PORT``) are asked instead of the gateway pods in the namespace, when there are any."""
        self.pods = Informer(client, POD, namespace=namespace, labels=GATEWAY)
        self._session = session
        self._addresses = tuple(addresses)
        self._known: dict[str, _Known] = {}

    async def traffic(self) -> Traffic:
        """The sum of what all gateways say. Never raises."""
        wanted = self._wanted()
        answers = await asyncio.gather(*(self._ask(address) for address in wanted))
        now = time.monotonic()
        asked = dict(zip(wanted, answers, strict=True))
        self._known |= {address: _Known(answer, now) for address, answer in asked.items() if answer is not None}
        self._known = {
            address: known
            for address, known in self._known.items()
            if address in wanted and now - known.at < REMEMBERED_SECONDS
        }
        total: dict[Key, float] = {}
        for known in self._known.values():
            for service, requests in known.requests.items():
                total[service] = total.get(service, 0.0) + requests
        missing = [address for address, answer in asked.items() if answer is None and wanted[address]]
        return Traffic(total, complete=bool(wanted) and not missing)

    def _wanted(self) -> dict[str, bool]:
        """Address -> whether its numbers must not be missing: pods that start or end need not answer."""
        if self._addresses:
            return dict.fromkeys(self._addresses, True)
        pods = [pod for pod in self.pods.store.all() if pod.get("status", {}).get("podIP")]
        return {_address(pod): is_ready(pod) and not deleting(pod) for pod in pods}

    async def _ask(self, address: str) -> Mapping[Key, float] | None:
        try:
            asked = self._session.get(f"http://{address}/metrics", timeout=LIMIT, allow_redirects=False)
            async with asked as response:
                response.raise_for_status()
                return parse(await response.text())
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            log.debug("gateway %s: %r", address, error)
            return None


def parse(text: str) -> dict[Key, float]:
    """Requests in flight and waiting by Service, of a gateway's metrics. Raises ValueError where they are none."""
    found: dict[Key, float] = {}
    for names, value in _SAMPLE.findall(text):
        given = dict(_LABEL.findall(names))
        service = Key(given.get("namespace", ""), given.get("model", ""))
        found[service] = found.get(service, 0.0) + float(value)
    if not found and "slipway_gateway_haproxy_up 1" not in text:
        raise ValueError("the gateway knows nothing of its requests")
    return found


def _address(pod: Object) -> str:
    ip = pod["status"]["podIP"]
    return f"[{ip}]:{PORT}" if ":" in ip else f"{ip}:{PORT}"
