# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.

"""Credentials: from options and environment to a connection pool. Names and order are those of kubernetes.core.

Each option is taken from the task, else from its K8S_AUTH_* variable. An address with credentials is enough by itself;
else a kubeconfig or context that is named; else the pod's own account; else KUBECONFIG or ~/.kube/config.
The official client reads all that (exec plugins, OIDC, certificates); requests are made by ``_client``.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible.module_utils.basic import missing_required_lib
from ansible_collections.slipway.inference.plugins.module_utils._errors import InferenceError

PROXY_HEADERS: dict[str, dict[str, Any]] = {
    "proxy_basic_auth": {"type": "str", "no_log": True},
    "basic_auth": {"type": "str", "no_log": True},
    "user_agent": {"type": "str"},
}

ARGUMENTS: dict[str, dict[str, Any]] = {
    "kubeconfig": {"type": "raw"},
    "context": {"type": "str"},
    "host": {"type": "str"},
    "api_key": {"type": "str", "no_log": True},
    "username": {"type": "str"},
    "password": {"type": "str", "no_log": True},
    "validate_certs": {"type": "bool", "aliases": ["verify_ssl"]},
    "ca_cert": {"type": "path", "aliases": ["ssl_ca_cert"]},
    "client_cert": {"type": "path", "aliases": ["cert_file"]},
    "client_key": {"type": "path", "aliases": ["key_file"]},
    "proxy": {"type": "str"},
    "no_proxy": {"type": "str"},
    "proxy_headers": {"type": "dict", "options": PROXY_HEADERS},
    "persist_config": {"type": "bool"},
    "impersonate_user": {"type": "str"},
    "impersonate_groups": {"type": "list", "elements": "str"},
}

# Fields of a kubeconfig whose values are secret.
_SECRET_FIELDS = frozenset(
    {"token", "password", "client-key-data", "client-secret", "id-token", "access-token", "refresh-token", "secret"}
)

# Options that are set on the client's configuration as they are, by the name that they have there.
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


def options(params: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """The auth options that are set, by the task or by the environment."""
    found: dict[str, Any] = {}
    for name, spec in ARGUMENTS.items():
        if name == "proxy_headers":
            value = params.get(name) or _proxy_headers(environment)
        elif params.get(name) is not None:
            value = params[name]
        else:
            value = _from_environment(name, spec, environment)
        if value not in (None, {}, []):
            found[name] = value
    return found


def _proxy_headers(environment: Mapping[str, str]) -> dict[str, str]:
    variables = {name: f"K8S_AUTH_PROXY_HEADERS_{name.upper()}" for name in PROXY_HEADERS}
    return {name: environment[variable] for name, variable in variables.items() if variable in environment}


def _from_environment(name: str, spec: Mapping[str, Any], environment: Mapping[str, str]) -> Any:
    for variable in (name, *spec.get("aliases", ())):
        text = environment.get(f"K8S_AUTH_{variable.upper()}")
        if text:
            if spec["type"] == "bool":
                return text.lower() not in ("0", "false", "no", "off")
            if spec["type"] == "list":
                return [part for part in text.split(",") if part]
            return text
    return None


def secrets_of(kubeconfig: Any) -> Iterator[str]:
    """The secret values in a kubeconfig that was given as a dictionary."""
    if isinstance(kubeconfig, Mapping):
        for key, value in kubeconfig.items():
            if key in _SECRET_FIELDS and isinstance(value, str) and value:
                yield value
            else:
                yield from secrets_of(value)
    elif isinstance(kubeconfig, list):
        for value in kubeconfig:
            yield from secrets_of(value)


@dataclass
class Connection:
    """An address, a urllib3 pool that speaks TLS and proxies as configured, and headers with a fresh token."""

    host: str
    pool: Any
    configuration: Any
    impersonation: tuple[tuple[str, str], ...] = ()
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def headers(self) -> Any:
        """Headers that identify the caller. A token that has expired is replaced."""
        from urllib3 import HTTPHeaderDict

        headers = HTTPHeaderDict({"User-Agent": "slipway.inference"})
        with self._lock:
            token = self.configuration.auth_settings().get("BearerToken", {}).get("value")
        if token:
            headers["Authorization"] = token
        elif self.configuration.username and self.configuration.password:
            headers["Authorization"] = self.configuration.get_basic_auth_token()
        for name, value in self.impersonation:
            headers.add(name, value)
        return headers


def connect(
    params: Mapping[str, Any], environment: Mapping[str, str] | None = None, connections: int = 32
) -> Connection:
    """The connection that options and environment describe. Nothing is sent yet."""
    try:
        import urllib3
        from kubernetes.client.rest import RESTClientObject
    except ImportError as error:
        raise InferenceError("missing_library", missing_required_lib("kubernetes")) from error
    auth = options(params, os.environ if environment is None else environment)
    configuration = _configuration(auth)
    configuration.connection_pool_maxsize = connections
    if not configuration.verify_ssl:
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    try:
        pool = RESTClientObject(configuration).pool_manager
    except (OSError, ValueError, urllib3.exceptions.HTTPError) as error:
        raise InferenceError("no_connection_details", f"Certificates or proxy cannot be used: {error}.") from error
    user, groups = auth.get("impersonate_user"), auth.get("impersonate_groups") or ()
    headers = [("Impersonate-User", user)] if user else []
    headers += [("Impersonate-Group", group) for group in groups]
    return Connection(configuration.host.rstrip("/"), pool, configuration, tuple(headers))


def _configuration(auth: Mapping[str, Any]) -> Any:
    from kubernetes.client import Configuration

    configuration = Configuration()
    complete = auth.get("host") and (
        auth.get("api_key")
        or (auth.get("username") and auth.get("password"))
        or (auth.get("client_cert") and auth.get("client_key"))
    )
    if not complete:
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
    """Fills the configuration from a kubeconfig or from the pod that this runs in."""
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
            return  # An address alone is allowed: it may ask for no credentials.
        raise InferenceError("no_connection_details", f"No usable kubeconfig: {str(error).rstrip('.')}.") from error
