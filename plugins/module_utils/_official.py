# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.

"""Connections that use the official client, for cases that ``_settings`` does not support: exec plugins, auth providers
and rare proxies."""

from __future__ import annotations

import os
import ssl
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from ansible.module_utils.basic import missing_required_lib
from ansible_collections.slipway.inference.plugins.module_utils import _http
from ansible_collections.slipway.inference.plugins.module_utils._errors import InferenceError
from ansible_collections.slipway.inference.plugins.module_utils._settings import impersonation, is_complete

CONNECTIONS = 32

# Attributes of the client's configuration to which options are copied unchanged.
_PLAIN = {
    "validate_certs": "verify_ssl",
    "ca_cert": "ssl_ca_cert",
    "client_cert": "cert_file",
    "client_key": "key_file",
    "proxy": "proxy",
    "no_proxy": "no_proxy",
    "username": "username",
    "password": "password",
}


class OfficialConnection:
    """A connection that uses a urllib3 pool for TLS and proxies, and headers with a fresh token."""

    def __init__(self, pool: Any, configuration: Any, headers: tuple[tuple[str, str], ...]) -> None:
        self.host: str = configuration.host.rstrip("/")
        self._pool, self._configuration, self._impersonation = pool, configuration, headers
        self._lock = threading.Lock()

    def headers(self) -> list[tuple[str, str]]:
        """Return the headers that identify the caller. An expired token is replaced."""
        with self._lock:
            token = self._configuration.auth_settings().get("BearerToken", {}).get("value")
        if not token and self._configuration.username and self._configuration.password:
            token = self._configuration.get_basic_auth_token()
        named = [("Authorization", token)] if token else []
        return [("User-Agent", _http.USER_AGENT), *named, *self._impersonation]

    def request(
        self, method: str, target: str, headers: dict[str, str], body: bytes | None, seconds: float, *, streamed: bool
    ) -> _http.Answer:
        from urllib3 import HTTPHeaderDict, Timeout
        from urllib3.exceptions import HTTPError, SSLError

        sent = HTTPHeaderDict()
        for name, value in (*self.headers(), *headers.items()):
            sent.add(name, value)
        try:
            answer = self._pool.request(
                method,
                self.host + target,
                body=body,
                headers=sent,
                preload_content=not streamed,
                retries=False,
                redirect=False,
                timeout=Timeout(connect=min(_http.CONNECT_SECONDS, seconds), read=seconds, total=seconds),
            )
            # For a stream, only the body of an error response is read here.
            content = b"" if streamed and answer.status < 300 else answer.data
        except (HTTPError, OSError) as error:
            cause = getattr(error, "reason", None) or error
            untrusted = isinstance(error, SSLError) or isinstance(cause, SSLError)
            _http.fail(self.host, ssl.SSLError(str(cause)) if untrusted else error, cause)
        warnings = answer.headers.getlist("Warning") if hasattr(answer.headers, "getlist") else []
        retry_after = answer.headers.get("Retry-After")
        return _http.Answer(answer.status, warnings, retry_after, content, _chunks(answer), answer.close)


def _chunks(answer: Any) -> Iterator[bytes]:
    from urllib3.exceptions import HTTPError

    try:
        yield from answer.stream(None)
    except (HTTPError, OSError, ValueError) as error:
        raise _http.cut(error) from error


def connect(auth: Mapping[str, Any]) -> OfficialConnection:
    """Return the connection that the options and this process's environment describe, without sending a request. Raise
    InferenceError if there is no usable configuration."""
    try:
        import urllib3
        from kubernetes.client.rest import RESTClientObject
    except ImportError as error:
        raise InferenceError("missing_library", missing_required_lib("kubernetes")) from error
    configuration = _configuration(auth)
    configuration.connection_pool_maxsize = CONNECTIONS
    if not configuration.verify_ssl:
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    try:
        pool = RESTClientObject(configuration).pool_manager
    except (OSError, ValueError, urllib3.exceptions.HTTPError) as error:
        raise InferenceError("no_connection_details", f"Certificates or proxy cannot be used: {error}.") from error
    return OfficialConnection(pool, configuration, impersonation(auth))


def _configuration(auth: Mapping[str, Any]) -> Any:
    from kubernetes.client import Configuration

    configuration = Configuration()
    if not is_complete(auth):
        _load(auth, configuration)
    if auth.get("host"):
        configuration.host = auth["host"]
    if auth.get("api_key"):
        configuration.refresh_api_key_hook = None
        configuration.api_key = {"authorization": f"Bearer {auth['api_key']}"}
        configuration.api_key_prefix = {}
    for name, attribute in _PLAIN.items():
        if name in auth:
            setattr(configuration, attribute, auth[name])
    if auth.get("proxy_headers"):
        from urllib3.util import make_headers

        configuration.proxy_headers = make_headers(**auth["proxy_headers"])
    return configuration


def _load(auth: Mapping[str, Any], configuration: Any) -> None:
    """Fill the configuration from a kubeconfig or from the account of the pod in which this process runs."""
    import yaml
    from kubernetes import config

    kubeconfig, context = auth.get("kubeconfig"), auth.get("context")
    further = {
        "context": context,
        "client_configuration": configuration,
        "persist_config": bool(auth.get("persist_config")),
    }
    try:
        if isinstance(kubeconfig, Mapping):
            config.load_kube_config_from_dict(config_dict=kubeconfig, **further)
            return
        if not kubeconfig and not context:
            try:
                config.load_incluster_config(client_configuration=configuration)
            except config.ConfigException:
                pass
            else:
                return
        paths = os.pathsep.join(os.path.expanduser(path) for path in str(kubeconfig or "").split(os.pathsep))
        config.load_kube_config(config_file=paths or None, **further)
    except (config.ConfigException, yaml.YAMLError, OSError, ValueError, KeyError, TypeError) as error:
        if auth.get("host"):
            return  # A host without credentials is allowed: the server may not require any.
        raise InferenceError("no_connection_details", f"No usable kubeconfig: {str(error).rstrip('.')}.") from error
