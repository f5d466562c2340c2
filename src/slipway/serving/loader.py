"""Loader: what makes a container one that the controller, and nobody else, may ask and tell. Pure."""

from __future__ import annotations

import msgspec

from slipway.kube.objects import Object
from slipway.serving.agent import CONTROLLER_KEY_VARIABLE, POD_UID_VARIABLE
from slipway.serving.server import Container


def asked_by_the_controller(container: Container, controller_key: str) -> Container:
    """The container of a loader, with the public key by which it knows the controller, and the uid of its pod, which is
    signed with each request. No variable of a user's takes their place."""
    ours: tuple[Object, ...] = (
        {"name": CONTROLLER_KEY_VARIABLE, "value": controller_key},
        {"name": POD_UID_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
    )
    names = {variable["name"] for variable in ours}
    others = (variable for variable in container.env if variable["name"] not in names)
    return msgspec.structs.replace(container, env=(*others, *ours))
