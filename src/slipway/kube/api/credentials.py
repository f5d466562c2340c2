"""The address of the API server and our authentication: in-cluster, kubeconfig, exec plugins, rotating tokens.

The official client implements all of them; this module only calls it again in time. Certificates and proxies are read
once. Tokens rotate, so they are read every minute, and immediately when the server rejects one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import incluster_config

log = logging.getLogger(__name__)

_REFRESH_SECONDS = 60.0
_KEEP_SECONDS = 85.0
"""Seconds to keep an idle connection, because a TLS handshake costs the API server more than most requests. The API
server closes an idle connection after 90 seconds."""


class _Rest(RESTClientObject):  # type: ignore[misc]  # the official client has no types
    """The official REST client, used only for a session with its TLS settings."""

    further = 0
    """Number of connections beyond the configured limit."""

    def session(self, further: int) -> aiohttp.ClientSession:
        self.further = further
        session: aiohttp.ClientSession = self._create_pool_manager()
        return session

    def _create_connector(self) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector(
            limit=self.maxsize + self.further, ssl=self.ssl_context, keepalive_timeout=_KEEP_SECONDS, ttl_dns_cache=60
        )


class Credentials:
    """The address of an API server, and an ``Authorization`` header that is kept up to date."""

    def __init__(self, configuration: Configuration, reload: Callable[[], Awaitable[None]]) -> None:
        self.configuration = configuration
        self._reload = reload
        self._read = time.monotonic()
        self._lock = asyncio.Lock()

    @classmethod
    async def find(cls, kubeconfig: str = "") -> Credentials:
        """Return the credentials in the file ``kubeconfig``. If it is empty, use the pod's own account, ``$KUBECONFIG``
        or ``~/.kube/config``, in this order.

        Raise the official client's ConfigException if there are no credentials.
        """
        configuration = Configuration()
        if not kubeconfig and os.environ.get(incluster_config.SERVICE_HOST_ENV_NAME):
            return cls._in_cluster(configuration)
        loader = await config.load_kube_config(
            config_file=kubeconfig or None, client_configuration=configuration, persist_config=False
        )

        async def reload() -> None:
            await loader.load_and_set(configuration)

        return cls(configuration, reload)

    @classmethod
    def _in_cluster(cls, configuration: Configuration) -> Credentials:
        loader = incluster_config.InClusterConfigLoader(
            token_filename=incluster_config.SERVICE_TOKEN_FILENAME,
            cert_filename=incluster_config.SERVICE_CERT_FILENAME,
        )
        loader.load_and_set(configuration)

        async def reload() -> None:
            loader.token_expires_at = datetime.min  # the loader also compares naive times
            loader.load_and_set(configuration)

        return cls(configuration, reload)

    @property
    def host(self) -> str:
        """Base URL of the API server, without a trailing slash."""
        return str(self.configuration.host).rstrip("/")

    @property
    def proxy(self) -> str | None:
        """URL of the proxy from the kubeconfig, or else from the environment for this host. The value is None if
        neither has one."""
        if self.configuration.proxy:
            return str(self.configuration.proxy)
        url = urlsplit(self.host)
        if proxy_bypass(url.netloc):
            return None
        return getproxies().get(url.scheme)

    def session(self, further_connections: int = 0) -> aiohttp.ClientSession:
        """Return a new session with the configuration's TLS settings, whose connection limit is raised by
        ``further_connections``.

        The session does not read the environment, which would need a thread for each request, and keeps no cookies,
        because the API server sets none.
        """
        self.configuration.client_session_kwargs = {"trust_env": False, "cookie_jar": aiohttp.DummyCookieJar()}
        return _Rest(self.configuration).session(further_connections)

    async def authorization(self) -> str:
        """Return the value of the ``Authorization`` header, or an empty string if there is no token, such as with a
        client certificate."""
        if time.monotonic() - self._read > _REFRESH_SECONDS:
            await self.refresh()
        token = self.configuration.api_key.get("BearerToken", "")
        return str(token)

    async def refresh(self) -> None:
        """Read the token again, unless this was done within the last second. A failure is logged, and the old token
        remains in use until the server rejects it."""
        async with self._lock:
            if time.monotonic() - self._read < 1.0:  # another request was rejected at the same time
                return
            self._read = time.monotonic()
            try:
                await self._reload()
            except (OSError, config.ConfigException) as error:
                log.warning("Could not refresh the API credentials: %s", error)
