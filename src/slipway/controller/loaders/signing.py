"""The key by which loaders recognize the controller, stored in a Secret in the controller's namespace.

The first leader creates the Secret, and later leaders read it. The controller may read no other Secret except those of
catalogs. If you delete the Secret and restart the controller, a new key is created, and pods with a loader are
replaced.
"""

from __future__ import annotations

import asyncio
import binascii
import logging
from base64 import b64decode, b64encode

from slipway.kube.api.client import Client
from slipway.kube.api.errors import ConflictError, NotFoundError, ServerError, TooManyRequestsError, UnreachableError
from slipway.kube.objects import SECRET, Key, Object
from slipway.serving.wire.proof import SigningKey

log = logging.getLogger(__name__)

NAME = "slipway-controller-signing"
FIELD = "ed25519"
RETRY_SECONDS = 2.0
LABELS = {
    "app.kubernetes.io/name": "slipway-controller",
    "app.kubernetes.io/component": "controller",
    "app.kubernetes.io/part-of": "slipway",
}


async def signing_key(client: Client, namespace: str) -> SigningKey:
    """Return the controller's key, and create it if necessary. Transient errors are retried.

    Raise any other ApiError, such as for a missing permission, and ValueError if the Secret contains no valid key.
    """
    name = Key(namespace, NAME)
    while True:
        try:
            return await _read_or_make(client, name)
        except ConflictError:
            continue  # another process has created it in the meantime
        except (ServerError, TooManyRequestsError, UnreachableError) as error:
            log.warning("the signing key %s: %s", name, error)
            await asyncio.sleep(RETRY_SECONDS)


async def _read_or_make(client: Client, name: Key) -> SigningKey:
    try:
        return _key_in(await client.get(SECRET, name), name)
    except NotFoundError:
        key = SigningKey.generate()
        await client.create(SECRET, _secret(key, name))
        log.info("created the signing key %s", name)
        return key


def _secret(key: SigningKey, name: Key) -> Object:
    return {
        "apiVersion": SECRET.api_version,
        "kind": SECRET.kind,
        "metadata": {"namespace": name.namespace, "name": name.name, "labels": LABELS},
        "type": "Opaque",
        "immutable": True,
        "data": {FIELD: b64encode(key.seed).decode()},
    }


def _key_in(secret: Object, name: Key) -> SigningKey:
    try:
        return SigningKey(b64decode(secret["data"][FIELD], validate=True))
    except (KeyError, TypeError, ValueError, binascii.Error):
        reason = f"the Secret {name} holds no Ed25519 key in {FIELD!r}. Delete it, and the controller creates a new one"
        raise ValueError(reason) from None  # never show the Secret's content
