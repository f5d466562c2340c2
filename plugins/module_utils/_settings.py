# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.

"""Connection settings for the API server, from options, environment, kubeconfigs and a pod's account.

Tokens, passwords, certificates and HTTP proxies are handled here, without the official client, whose import takes
longer than the rest of a task. The official client handles exec plugins, auth providers, and proxies that use TLS or
SOCKS.
"""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from ipaddress import ip_address, ip_network
from typing import Any
from urllib.parse import SplitResult, urlsplit

from ansible_collections.slipway.inference.plugins.module_utils import _kubeconfig
from ansible_collections.slipway.inference.plugins.module_utils._errors import InferenceError
from ansible_collections.slipway.inference.plugins.module_utils._kubeconfig import NO_PEM, Access, KubeconfigError, Pem

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Directory in a pod with its token and the certificate of the cluster's CA."""
TOKEN_SECONDS = 60.0
"""Seconds after which a token's file is read again. Such tokens are replaced before they expire."""


@dataclass
class Authorization:
    """The value of the ``Authorization`` header, which may be empty. If ``path`` is set, the token comes from this file
    and is kept up to date."""

    value: str = ""
    path: str = ""
    read_at: float = 0.0

    def header(self) -> str:
        if self.path and time.monotonic() - self.read_at > TOKEN_SECONDS:
            # If the file is gone, the server decides whether it still accepts the last token.
            with suppress(OSError):
                self.value = bearer(_token_in(self.path))
            self.read_at = time.monotonic()
        return self.value


@dataclass(frozen=True)
class Settings:
    """Settings of a connection to an API server. ``proxy`` is the URL of an HTTP proxy, or empty for none."""

    host: str = "http://localhost"
    authorization: Authorization = field(default_factory=Authorization)
    validate: bool = True
    authority: Pem = NO_PEM
    certificate: Pem = NO_PEM
    key: Pem = NO_PEM
    tls_server_name: str = ""
    proxy: str = ""
    proxy_headers: tuple[tuple[str, str], ...] = ()
    impersonation: tuple[tuple[str, str], ...] = ()


def resolve(auth: Mapping[str, Any], environment: Mapping[str, str]) -> Settings | None:
    """Return the settings from the options ``auth``, as returned by ``_auth.options``, and the environment.

    Return None if only the official client supports them. Raise InferenceError if there is no usable configuration.
    """
    try:
        base = _from_anywhere(auth, environment)
    except (KubeconfigError, OSError, ValueError) as error:
        if not auth.get("host"):
            text = f"No usable kubeconfig: {_sentence(str(error))}"
            raise InferenceError("no_connection_details", text) from error
        base = Settings()  # A host without credentials is allowed: the server may not require any.
    if base is None:
        return None
    settings = _overridden(base, auth)
    no_proxy = auth.get("no_proxy") or _variable(environment, "no_proxy")
    proxy = auth.get("proxy") or settings.proxy or _proxy_of_environment(settings.host, environment)
    if bypasses(settings.host, no_proxy):
        proxy = ""
    if proxy and not proxy.startswith("http://"):
        return None
    return replace(settings, proxy=proxy)


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?")) else f"{text}."


def is_complete(auth: Mapping[str, Any]) -> bool:
    """Whether the options contain a host and credentials, so that no kubeconfig is read."""
    pairs = (("api_key",), ("username", "password"), ("client_cert", "client_key"))
    return bool(auth.get("host")) and any(all(auth.get(name) for name in names) for names in pairs)


def impersonation(auth: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the headers that request to act as another user or group."""
    user = auth.get("impersonate_user")
    groups = (("Impersonate-Group", group) for group in auth.get("impersonate_groups") or ())
    return (*((("Impersonate-User", user),) if user else ()), *groups)


def bearer(token: str) -> str:
    return f"Bearer {token}"


def basic(username: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{username}:{password}'.encode('latin-1')).decode()}"


def _from_anywhere(auth: Mapping[str, Any], environment: Mapping[str, str]) -> Settings | None:
    if is_complete(auth):
        return Settings()
    kubeconfig, context = auth.get("kubeconfig"), auth.get("context")
    if not kubeconfig and not context and (pod := of_pod(environment)):
        return pod
    if isinstance(kubeconfig, Mapping):
        config = _kubeconfig.from_dictionary(kubeconfig)
    else:
        config = _kubeconfig.read(str(kubeconfig or environment.get("KUBECONFIG", "~/.kube/config")))
    access = _kubeconfig.access(config, context)
    return None if access is None else _of_access(access)


def of_pod(environment: Mapping[str, str]) -> Settings | None:
    """Return the settings for the account of the pod in which this process runs. The result is None if it runs in no
    pod, or the pod has no account."""
    host, port = (environment.get(f"KUBERNETES_SERVICE_{name}") for name in ("HOST", "PORT"))
    token, authority = os.path.join(ACCOUNT, "token"), os.path.join(ACCOUNT, "ca.crt")
    if not host or not port:
        return None
    try:
        value = _token_in(token)
        if not value or not os.path.getsize(authority):
            return None
    except OSError:
        return None
    return Settings(
        host=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        authorization=Authorization(bearer(value), token, time.monotonic()),
        authority=Pem(authority),
    )


def _token_in(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read().strip()


def _of_access(access: Access) -> Settings:
    authorization = Authorization()
    if access.token:
        authorization = Authorization(bearer(access.token))
    elif access.token_file:
        authorization = Authorization(bearer(_token_in(access.token_file)), access.token_file, time.monotonic())
    elif access.username and access.password:
        authorization = Authorization(basic(access.username, access.password))
    return Settings(
        host=access.server or Settings.host,
        authorization=authorization,
        validate=access.validate,
        authority=access.authority,
        certificate=access.certificate,
        key=access.key,
        tls_server_name=access.tls_server_name,
        proxy=access.proxy,
    )


def _overridden(settings: Settings, auth: Mapping[str, Any]) -> Settings:
    """Return the settings with the values of options applied. A password counts only if there is no other
    credential."""
    authorization = settings.authorization
    if auth.get("api_key"):
        authorization = Authorization(bearer(auth["api_key"]))
    elif not authorization.header() and auth.get("username") and auth.get("password"):
        authorization = Authorization(basic(auth["username"], auth["password"]))
    pems = {"authority": "ca_cert", "certificate": "client_cert", "key": "client_key"}
    return replace(
        settings,
        host=str(auth.get("host") or settings.host),
        authorization=authorization,
        validate=auth.get("validate_certs", settings.validate),
        proxy_headers=_proxy_headers(auth.get("proxy_headers") or {}),
        impersonation=impersonation(auth),
        **{name: Pem(auth[option]) for name, option in pems.items() if auth.get(option)},
    )


def _proxy_headers(options: Mapping[str, str | None]) -> tuple[tuple[str, str], ...]:
    """Return the headers for the proxy, as the official client does. ``basic_auth`` is also sent to the proxy."""
    headers = [("User-Agent", options.get("user_agent") or "")]
    for name, option in (("Authorization", "basic_auth"), ("Proxy-Authorization", "proxy_basic_auth")):
        username, _colon, password = (options.get(option) or "").partition(":")
        headers.append((name, basic(username, password) if options.get(option) else ""))
    return tuple(header for header in headers if header[1])


# ---- proxies of the environment --------------------------------------------------------------------------------------


def _proxy_of_environment(host: str, environment: Mapping[str, str]) -> str:
    return _variable(environment, f"{split(host).scheme}_proxy") or _variable(environment, "all_proxy")


def _variable(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name) or environment.get(name.upper()) or ""


def split(host: str) -> SplitResult:
    """Return the parts of a URL, whose scheme may be missing. Raise InferenceError if it is invalid."""
    try:
        parts = urlsplit(host if "://" in host else f"http://{host}")
        parts.port  # noqa: B018  (which is read here for the first time)
    except ValueError as error:
        shown = hide_credentials(host)
        raise InferenceError("unreachable", f"{shown} cannot be reached: {error}.") from error
    return parts


def hide_credentials(url: str) -> str:
    """Return a URL for messages, without its user name and password."""
    before, at, rest = url.rpartition("@")
    scheme, separator, _credentials = before.partition("://")
    return f"{scheme}{separator}{rest}" if at and separator else rest


def bypasses(host: str, no_proxy: str) -> bool:
    """Whether ``no_proxy`` contains a host. Its entries are names, domains, addresses and networks, separated by
    commas."""
    address = split(host)
    name, place = (address.hostname or "").lower(), address.netloc.lower()
    for entry in (part.strip().lower() for part in no_proxy.split(",")):
        plain = entry.lstrip(".")
        if entry == "*" or (plain and any(f".{whole}".endswith(f".{plain}") for whole in (name, place))):
            return True
        if _inside(name, entry):
            return True
    return False


def _inside(name: str, network: str) -> bool:
    try:
        return ip_address(name) in ip_network(network, strict=False)
    except ValueError:
        return False
