"""The messages of the kubelet's device plugin API, version v1beta1, as far as a plugin sends or reads them."""

from __future__ import annotations

from .wire import Field, Shape

VERSION = "v1beta1"
REGISTER = f"/{VERSION}.Registration/Register"
SERVICE = f"{VERSION}.DevicePlugin"

EMPTY: Shape = {}
OPTIONS: Shape = {
    "pre_start_required": Field(1, bool),
    "get_preferred_allocation_available": Field(2, bool),
}
REGISTRATION: Shape = {
    "version": Field(1),
    "endpoint": Field(2),
    "resource_name": Field(3),
    "options": Field(4, shape=OPTIONS),
}
DEVICE: Shape = {"ID": Field(1), "health": Field(2)}
DEVICES: Shape = {"devices": Field(1, shape=DEVICE, repeated=True)}
CONTAINER: Shape = {"devices_ids": Field(1, repeated=True)}
ALLOCATION: Shape = {"container_requests": Field(1, shape=CONTAINER, repeated=True)}
GRANT: Shape = {"envs": Field(1, is_map=True), "annotations": Field(4, is_map=True)}
GRANTS: Shape = {"container_responses": Field(1, shape=GRANT, repeated=True)}
