# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.

"""Credentials: from options and environment to a connection. Names and precedence are those of kubernetes.core.

Each option comes from the task, or else from its K8S_AUTH_* variable. A host with credentials is sufficient. Otherwise,
the connection uses a named kubeconfig or context, or else the pod's own account, or else KUBECONFIG or
``~/.kube/config``. ``_settings`` handles nearly all cases. The official client is imported only for the others, because
its import takes long.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.slipway.inference.plugins.module_utils import _settings
from ansible_collections.slipway.inference.plugins.module_utils._http import Connection, HttpConnection

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


def options(params: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the authentication options that the task or the environment sets."""
    settings: dict[str, Any] = {}
    for name, spec in ARGUMENTS.items():
        if name == "proxy_headers":
            value = params.get(name) or _proxy_headers(environment)
        elif params.get(name) is not None:
            value = params[name]
        else:
            value = _from_environment(name, spec, environment)
        if value not in (None, {}, []):
            settings[name] = value
    return settings


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
    """Yield the secret values in a kubeconfig that the task contains as a dictionary."""
    if isinstance(kubeconfig, Mapping):
        for key, value in kubeconfig.items():
            if key in _SECRET_FIELDS and isinstance(value, str) and value:
                yield value
            else:
                yield from secrets_of(value)
    elif isinstance(kubeconfig, list):
        for value in kubeconfig:
            yield from secrets_of(value)


def connect(params: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Connection:
    """Return the connection that the options and the environment describe, without sending a request. Raise
    InferenceError if there is no usable configuration."""
    environment = os.environ if environment is None else environment
    auth = options(params, environment)
    settings = _settings.resolve(auth, environment)
    if settings is not None:
        return HttpConnection(settings)
    from ansible_collections.slipway.inference.plugins.module_utils import _official

    return _official.connect(auth)
