"""Uploads: the URL of a user's upload, and the token that authorizes it. Pure."""

from __future__ import annotations

from slipway.kube.objects import Object, key, uid
from slipway.serving.wire.depot_token import Claim, sign


def session(shared: bytes, depot: str, model: Object, until: int) -> dict[str, str]:
    """Return ``url``, ``token`` and ``command`` for an upload until the Unix time ``until``. ``shared``: the key that
    controller and depot share; ``depot``: the URL at which users reach the depot."""
    namespace, name = key(model)
    token = sign(shared, Claim(use="upload", namespace=namespace, name=name, uid=uid(model), expires=until))
    url = f"{depot.rstrip('/')}/v1/upload/{namespace or '-'}/{name}/{uid(model)}"
    command = f"curl --fail -H 'Authorization: Bearer {token}' -T FILE '{url}'"
    return {"url": url, "token": token, "command": command}
