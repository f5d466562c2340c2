"""``slipway depot keys``: creates the keys of the registry and the depot once, and renews their certificates in time.

Each key is in a separate Secret, so a pod mounts only what it needs. The command must be allowed to create Secrets and
ConfigMaps, and to get and update those in ``SECRETS`` and ``CONFIG_MAPS``. It can be repeated: valid keys stay
unchanged.
"""

from __future__ import annotations

import binascii
import logging
import secrets
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import msgspec

from slipway.depot.credentials import certificates, signing
from slipway.depot.credentials.certificates import Pair
from slipway.kube.api.client import Client
from slipway.kube.api.errors import ConflictError, NotFoundError
from slipway.kube.objects import CONFIG_MAP, SECRET, Key, Kind, Object
from slipway.serving.wire import depot_token

log = logging.getLogger(__name__)

REGISTRY, DEPOT = "slipway-registry", "slipway-depot"
"""Services of the registry and the depot, whose names are in the certificates."""
REGISTRY_TLS, DEPOT_TLS = "slipway-registry-tls", "slipway-depot-tls"
TOKEN, HMAC = "slipway-depot-token", "slipway-depot-key"
AUTHORITY = "slipway-depot-ca"
"""Secret with the CA's certificate and key, and ConfigMap with only the certificate."""
KEY_SET = "slipway-registry-keys"
SECRETS = (AUTHORITY, REGISTRY_TLS, DEPOT_TLS, TOKEN, HMAC)
CONFIG_MAPS = (AUTHORITY, KEY_SET)
CERTIFICATE, PRIVATE = "tls.crt", "tls.key"
TOKEN_FIELD, HMAC_FIELD, AUTHORITY_FIELD, KEY_SET_FIELD = "token.key", "hmac", "ca.crt", "jwks.json"
LABELS = {"app.kubernetes.io/name": "slipway-depot", "app.kubernetes.io/part-of": "slipway"}
ATTEMPTS = 10
"""Maximum attempts to write an object that other processes write at the same time."""

Data = dict[str, bytes]
Result = TypeVar("Result")


class Names(msgspec.Struct, frozen=True, kw_only=True):
    """The host names that the certificates of the registry and the depot contain."""

    namespace: str
    cluster_domain: str = "cluster.local"
    registry: tuple[str, ...] = ()
    """Further host names and IP addresses of the registry."""
    depot: tuple[str, ...] = ()
    """Further host names and IP addresses of the depot."""

    def of(self, service: str, further: Sequence[str]) -> tuple[str, ...]:
        """Return all host names of a Service, followed by the ``further`` ones."""
        inside = f"{service}.{self.namespace}.svc"
        usual = (inside, service, f"{service}.{self.namespace}", f"{inside}.{self.cluster_domain}")
        return tuple(dict.fromkeys((*usual, *further)))


async def ensure(client: Client, names: Names, now: datetime) -> list[str]:
    """Create missing keys, and renew certificates that expire soon. Also replace a server certificate that is
    unreadable, is from another CA, or has other names. Return the kind and name of each written object, such as
    ``ConfigMap NAME``.

    Raise ApiError, or ValueError for any other unreadable key or if an object keeps changing. An unreadable key of the
    CA or for tokens is not replaced, because other components depend on it.
    """
    store = _Store(client, names.namespace)

    def authority(before: Data | None) -> Data:
        return _data(certificates.authority(now, _pair(before) if before is not None else None))

    issuer = _pair(await store.update(SECRET, AUTHORITY, authority, type_="kubernetes.io/tls"))
    await store.update(CONFIG_MAP, AUTHORITY, lambda _before: {AUTHORITY_FIELD: issuer.certificate})
    for secret, hosts in (
        (REGISTRY_TLS, names.of(REGISTRY, names.registry)),
        (DEPOT_TLS, names.of(DEPOT, names.depot)),
    ):
        await store.update(SECRET, secret, _server(issuer, hosts, now, secret), type_="kubernetes.io/tls")
    token = await store.update(SECRET, TOKEN, lambda before: before or {TOKEN_FIELD: signing.generate_key()})
    key_set = _sound(SECRET, TOKEN, partial(signing.key_set, token.get(TOKEN_FIELD, b"")))
    await store.update(CONFIG_MAP, KEY_SET, lambda _before: {KEY_SET_FIELD: key_set.encode()})
    hmac = await store.update(
        SECRET, HMAC, lambda before: before or {HMAC_FIELD: secrets.token_bytes(depot_token.KEY_BYTES)}
    )
    if len(hmac.get(HMAC_FIELD, b"")) != depot_token.KEY_BYTES:
        raise ValueError(_unusable(SECRET, HMAC, f"it does not have {depot_token.KEY_BYTES} bytes in {HMAC_FIELD!r}"))
    return store.written


def _server(issuer: Pair, names: Sequence[str], now: datetime, secret: str) -> Callable[[Data | None], Data]:
    def renew(before: Data | None) -> Data:
        why = certificates.fault(_pair(before), issuer, names, now) if before is not None else "there is none"
        if not why and before is not None:
            return before
        log.info("creating the certificate %s: %s", secret, why)
        return _data(certificates.server(issuer, names, now))

    return renew


class _Store:
    """The Secrets and ConfigMaps of one namespace. Each update computes the new data from the current data."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace
        self.written: list[str] = []

    async def update(
        self, kind: Kind, name: str, build: Callable[[Data | None], Data], *, type_: str = "Opaque"
    ) -> Data:
        """Set an object's data to the result of ``build``, and return this result. ``build`` gets the current data, or
        None if the object does not exist. Write nothing if the data is already right. Raise ApiError, or ValueError if
        the data is unreadable or keeps changing."""
        for _unused in range(ATTEMPTS):
            try:
                current = await self._client.get(kind, Key(self._namespace, name))
            except NotFoundError:
                current = None
            before = _decoded(kind, current, name) if current is not None else None
            desired = _sound(kind, name, partial(build, before))
            if desired == before:
                return desired
            try:
                await self._write(kind, name, current, desired, type_)
            except ConflictError:
                continue  # another process wrote it in the meantime
            self.written.append(f"{kind.kind} {name}")
            return desired
        raise ValueError(f"{kind.kind} {name} keeps changing: run this again later")

    async def _write(self, kind: Kind, name: str, current: Object | None, desired: Data, type_: str) -> None:
        if current is not None:
            await self._client.replace(kind, {**current, "data": _encoded(kind, desired)})
            return
        metadata = {"namespace": self._namespace, "name": name, "labels": LABELS}
        manifest: Object = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        manifest["data"] = _encoded(kind, desired)
        await self._client.create(kind, manifest | {"type": type_} if kind is SECRET else manifest)


def _decoded(kind: Kind, current: Object, name: str) -> Data:
    data: dict[str, Any] = current.get("data") or {}
    try:
        if kind is SECRET:
            return {field: b64decode(text, validate=True) for field, text in data.items()}
        return {field: text.encode() for field, text in data.items()}
    except (binascii.Error, ValueError, TypeError, AttributeError):
        raise ValueError(_unusable(kind, name, "it cannot be read")) from None


def _encoded(kind: Kind, data: Data) -> dict[str, str]:
    return {field: b64encode(raw).decode() if kind is SECRET else raw.decode() for field, raw in data.items()}


def _sound(kind: Kind, name: str, read: Callable[[], Result]) -> Result:
    try:
        return read()
    except ValueError as error:
        raise ValueError(_unusable(kind, name, str(error))) from None


def _unusable(kind: Kind, name: str, why: str) -> str:
    return f"the {kind.kind} {name}: {why}. Delete it and run this again, then restart registry, depot and controller"


def _pair(data: Data) -> Pair:
    return Pair(data.get(CERTIFICATE, b""), data.get(PRIVATE, b""))


def _data(pair: Pair) -> Data:
    return {CERTIFICATE: pair.certificate, PRIVATE: pair.key}
