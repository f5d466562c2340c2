"""Where the keys of an issuer come from: its address or the API server, asked again and again, or the settings.

The last good answer is kept in the shared directory, so that a control process that is started anew while the issuer
is away has its keys. What an issuer answers is bounded, and an answer that cannot be used changes nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import aiohttp
import msgspec
from prometheus_client import CollectorRegistry, Gauge

from slipway.decoding import said
from slipway.gateway import jwks
from slipway.gateway.dataplane import write_files
from slipway.gateway.jwks import JwksError, VerificationKey
from slipway.gateway.settings import Jwt, Settings

log = logging.getLogger(__name__)

SECONDS = 10.0
"""For one answer."""
REFRESH_SECONDS = 300.0
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 300.0
_JITTER = 0.2
Found = Callable[[tuple[VerificationKey, ...]], None]
"""By which new keys are handed on, and at first that there are none yet."""
Ask = Callable[[], Awaitable[bytes]]
"""Asks for a JWKS; raises ClientError, OSError or JwksError."""
Warn = Callable[[str], None]
"""By which is told that there is no answer any more, and why."""


class KeySource:
    """Keeps the keys of one issuer, whoever is asked for them."""

    def __init__(self, directory: Path, address: str, report: Warn, count: Gauge, up: Gauge) -> None:
        """`address`: where the keys are, as messages name it. `count`, `up`: how many there are, and whether the last
        request for them was answered."""
        self._directory, self._address, self._report = directory, address, report
        self._count, self._up = count, up
        self._kept = f"jwks-{hashlib.sha256(address.encode()).hexdigest()[:16]}.json"
        self._keys: tuple[VerificationKey, ...] = ()
        self._handed_on = False
        self._away, self._left_out = False, ""

    async def _keep(self, ask: Ask, found: Found) -> None:
        """Hands on the keys, and each later change of them, until cancelled."""
        pause = FIRST_PAUSE
        while True:
            if await self._once(ask, found):
                pause = FIRST_PAUSE
                await asyncio.sleep(_spread(REFRESH_SECONDS))
            else:
                await asyncio.sleep(_spread(pause))
                pause = min(2 * pause, LONGEST_PAUSE)

    async def _once(self, ask: Ask, found: Found) -> bool:
        """Asks once; returns whether there was a usable answer."""
        try:
            text = await ask()
            self._take(text, found)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            self._fail(said(error))
            if not self._handed_on:
                self._hand_on((), found)
            return False
        write_files(self._directory, {self._kept: text.decode()})
        self._up.set(1)
        if self._away:
            log.info("The JWKS at %s can be read again", self._address)
        self._away = False
        return True

    def _take(self, text: bytes, found: Found) -> None:
        """Raises JwksError."""
        keys, left_out = jwks.read(text)
        problems = "; ".join(left_out)
        if problems != self._left_out:
            self._left_out = problems
            log.info("Of the JWKS at %s left out: %s", self._address, problems or "nothing any more")
        self._count.set(len(keys))
        if keys != self._keys:
            self._hand_on(keys, found)

    def _hand_on(self, keys: tuple[VerificationKey, ...], found: Found) -> None:
        self._keys, self._handed_on = keys, True
        found(keys)

    def remember(self, found: Found) -> None:
        """Hands on the keys of the last good answer, where there was one."""
        try:
            self._take((self._directory / self._kept).read_bytes(), found)
        except FileNotFoundError:
            return
        except (OSError, JwksError) as error:
            log.warning("Could not read the last good JWKS: %s", error)

    def _fail(self, why: str) -> None:
        self._up.set(0)
        if self._away:
            return
        self._away = True
        kept = "the last good one is used" if self._keys else "no token is accepted"
        message = f"Could not get the JWKS at {self._address}: {why}; {kept}"
        log.warning("%s", message)
        self._report(message)


class JwksSource(KeySource):
    """Keeps the keys of the issuer that the settings name."""

    def __init__(self, settings: Settings, jwt: Jwt, registry: CollectorRegistry, report: Warn) -> None:
        count = Gauge("slipway_gateway_jwt_keys", "Public keys by which tokens are verified.", registry=registry)
        up = Gauge("slipway_gateway_jwks_up", "1 while the last request for them was answered.", registry=registry)
        super().__init__(settings.directory, jwt.jwks_url, report, count, up)
        self._jwt = jwt

    async def run(self, found: Found) -> None:
        """Hands on the keys, and each later change of them, until cancelled."""
        if self._jwt.jwks is not None:
            self._take(msgspec.json.encode(self._jwt.jwks), found)
            self._up.set(1)
            return
        self.remember(found)
        trust = await asyncio.to_thread(ssl.create_default_context, cadata=self._jwt.authorities or None)
        connector = aiohttp.TCPConnector(ssl=trust)
        limit = aiohttp.ClientTimeout(total=SECONDS)
        cookies = aiohttp.DummyCookieJar()
        async with aiohttp.ClientSession(
            connector=connector, timeout=limit, cookie_jar=cookies, trust_env=True
        ) as session:
            await self._keep(partial(_ask, session, self._jwt.jwks_url), found)

    async def refresh(self, session: aiohttp.ClientSession, found: Found) -> bool:
        """Asks once; returns whether there was a usable answer."""
        return await self._once(partial(_ask, session, self._jwt.jwks_url), found)


class AccountKeySource(KeySource):
    """Keeps the keys by which the API server signs tokens of service accounts."""

    def __init__(self, settings: Settings, ask: Ask, registry: CollectorRegistry, report: Warn) -> None:
        """`ask`: reads the API server's JWKS; raises JwksError."""
        count = Gauge(
            "slipway_gateway_service_account_keys",
            "Public keys by which tokens of service accounts are verified.",
            registry=registry,
        )
        up = Gauge(
            "slipway_gateway_service_account_jwks_up",
            "1 while the last request for them was answered.",
            registry=registry,
        )
        super().__init__(settings.directory, "the API server", report, count, up)
        self._ask = ask

    async def run(self, found: Found) -> None:
        """Hands on the keys, and each later change of them, until cancelled."""
        self.remember(found)
        await self._keep(self._ask, found)


async def _ask(session: aiohttp.ClientSession, url: str) -> bytes:
    """Raises ClientError, OSError or JwksError. Follows no redirects: where keys come from is the operator's word."""
    async with session.get(url, allow_redirects=False, headers={"Accept": "application/json"}) as response:
        if response.status != 200:
            raise JwksError(f"status {response.status}")
        text = bytearray()
        async for chunk in response.content.iter_any():
            text += chunk
            if len(text) > jwks.MOST_BYTES:
                raise JwksError(f"it has more than {jwks.MOST_BYTES} bytes")
        return bytes(text)


def _spread(seconds: float) -> float:
    """About so many, so that gateways do not ask together."""
    return seconds * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - no secret
