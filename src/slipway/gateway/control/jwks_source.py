"""The key set of the JWT issuer, which the control process fetches every minute.

It stores the last valid answer in the shared directory, so that a restarted control process has keys even if the issuer
is unreachable. Time and size of an answer are limited. After an invalid answer, the previous keys remain in use.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import ssl
from collections.abc import Callable

import aiohttp
from prometheus_client import CollectorRegistry, Gauge

from slipway.decoding import describe_error
from slipway.gateway.haproxy.dataplane import write_files
from slipway.gateway.rules import jwks
from slipway.gateway.rules.jwks import JwksError, VerificationKey
from slipway.gateway.settings import Jwt, Settings

log = logging.getLogger(__name__)

_TIMEOUT_SECONDS = 10.0
"""Timeout of one request."""
_REFRESH_SECONDS = 60.0
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_JITTER = 0.2
Receive = Callable[[tuple[VerificationKey, ...]], None]
"""A function that gets the keys after each change. It gets an empty tuple if the first request fails and no keys are
stored."""


class JwksSource:
    """A task that keeps the issuer's keys up to date."""

    def __init__(self, settings: Settings, jwt: Jwt, registry: CollectorRegistry) -> None:
        self._directory, self._jwt = settings.directory, jwt
        self._file = f"jwks-{hashlib.sha256(jwt.jwks_url.encode()).hexdigest()[:16]}.json"
        self._logged_url = jwt.jwks_url.partition("?")[0]
        """URL of the key set for logs, without the query, which may contain a secret."""
        self._keys: tuple[VerificationKey, ...] = ()
        self._published = False
        self._is_unreachable, self._logged_problems = False, ""
        self._count = Gauge("slipway_gateway_jwt_keys", "Public keys that verify JWTs.", registry=registry)
        self._up = Gauge("slipway_gateway_jwks_up", "1 while the issuer's key set can be fetched.", registry=registry)

    async def run(self, receive: Receive) -> None:
        """Publish the issuer's keys after each change, until cancelled."""
        self.restore(receive)
        trust = await asyncio.to_thread(ssl.create_default_context, cadata=self._jwt.ca or None)
        pause = _FIRST_PAUSE
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=trust),
            timeout=aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=True,
        ) as session:
            while True:
                if await self.refresh(session, receive):
                    pause = _FIRST_PAUSE
                    await asyncio.sleep(_add_jitter(_REFRESH_SECONDS))
                else:
                    await asyncio.sleep(_add_jitter(pause))
                    pause = min(2 * pause, _LONGEST_PAUSE)

    def restore(self, receive: Receive) -> None:
        """Publish the keys of the last valid answer, if it is stored and readable."""
        try:
            self._accept((self._directory / self._file).read_bytes(), receive)
        except FileNotFoundError:
            return
        except (OSError, JwksError) as error:
            log.warning("Could not read the last good JWKS: %s", error)

    async def refresh(self, session: aiohttp.ClientSession, receive: Receive) -> bool:
        """Fetch the key set once, and publish its keys if they changed. After a failure, publish an empty tuple if
        nothing has been published before. Return whether the issuer responded with a valid key set."""
        try:
            body = await _fetch(session, self._jwt.jwks_url)
            text = body.decode()
            self._accept(body, receive)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            self._report_failure(describe_error(error))
            if not self._published:
                self._publish((), receive)
            return False
        write_files(self._directory, {self._file: text})
        self._up.set(1)
        if self._is_unreachable:
            log.info("The JWKS at %s is available again", self._logged_url)
        self._is_unreachable = False
        return True

    def _accept(self, text: bytes, receive: Receive) -> None:
        """Parse a key set, and publish its keys if they changed. Raise JwksError if it is invalid."""
        keys, ignored = jwks.parse_jwks(text, self._jwt.algorithms)
        problems = "; ".join(ignored)
        if problems != self._logged_problems:
            self._logged_problems = problems
            log.info("Ignored keys of the JWKS at %s: %s", self._logged_url, problems or "none")
        self._count.set(len(keys))
        if keys != self._keys:
            self._publish(keys, receive)

    def _publish(self, keys: tuple[VerificationKey, ...], receive: Receive) -> None:
        self._keys, self._published = keys, True
        receive(keys)

    def _report_failure(self, reason: str) -> None:
        self._up.set(0)
        if self._is_unreachable:
            return
        self._is_unreachable = True
        effect = "The gateway uses the last good one" if self._keys else "The gateway accepts no tokens"
        log.warning("Could not fetch the JWKS at %s: %s. %s.", self._logged_url, reason, effect)


async def _fetch(session: aiohttp.ClientSession, url: str) -> bytes:
    """Fetch the key set without following redirects, because only the operator chooses the URL.

    Raise ClientError or OSError if the request fails, and JwksError if the status is not 200 or the answer is too long.
    """
    async with session.get(url, allow_redirects=False, headers={"Accept": "application/json"}) as response:
        if response.status != 200:
            raise JwksError(f"status {response.status}")
        text = bytearray()
        async for chunk in response.content.iter_any():
            text += chunk
            if len(text) > jwks.MOST_BYTES:
                raise JwksError(f"more than {jwks.MOST_BYTES} bytes")
        return bytes(text)


def _add_jitter(seconds: float) -> float:
    return seconds * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311
