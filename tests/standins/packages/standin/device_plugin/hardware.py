"""Which devices a node has, and what a plugin makes of them: functions of the node's file and the plugin's settings.

The file `standin-gpus.json` lies beside the kubelet's sockets, where the plugin's pod sees it and a test writes it:

    {"gpus": 2, "unhealthy": ["GPU-1"], "driver": true, "mig": {"1g.10gb": 7}}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

FILE = "standin-gpus.json"
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"
Devices = dict[str, str]
"""Id -> health."""


class Hardware(NamedTuple):
    """``mig``: devices of each kind into which every GPU is cut."""

    gpus: int = 2
    unhealthy: tuple[str, ...] = ()
    driver: bool = True
    mig: Mapping[str, int] = {}


class DriverError(Exception):
    """What the real plugin ends with where it finds no driver."""


def hardware(text: str) -> Hardware:
    fields = json.loads(text)
    return Hardware(**{**fields, "unhealthy": tuple(fields.get("unhealthy", ()))})


def resources(machine: Hardware, settings: Mapping[str, Any]) -> dict[str, Devices]:
    """Resource -> its devices, as NVIDIA's plugin offers them with these settings."""
    if not machine.driver:
        raise DriverError("failed to initialize NVML: ERROR_LIBRARY_NOT_FOUND: is the driver of the node loaded?")
    strategy = settings.get("flags", {}).get("migStrategy", "none")
    plain = _devices(machine, strategy)
    return {
        _name(resource, settings): _shared(devices, _replicas(resource, settings))
        for resource, devices in plain.items()
    }


def fails_beyond_one(settings: Mapping[str, Any]) -> bool:
    return bool(_sharing(settings).get("failRequestsGreaterThanOne"))


def visible(ids: list[str]) -> str:
    """What a container is told of its devices: the GPUs behind what it was given."""
    return ",".join(dict.fromkeys(one.partition("::")[0] for one in ids))


def _devices(machine: Hardware, strategy: str) -> dict[str, Devices]:
    if strategy == "none" or not machine.mig:
        return {"nvidia.com/gpu": {f"GPU-{gpu}": _health(machine, gpu) for gpu in range(machine.gpus)}}
    kinds: dict[str, Devices] = {}
    for kind, count in machine.mig.items():
        name = "nvidia.com/gpu" if strategy == "single" else f"nvidia.com/mig-{kind}"
        for gpu in range(machine.gpus):
            cut = {f"MIG-{gpu}-{kind}-{number}": _health(machine, gpu) for number in range(count)}
            kinds.setdefault(name, {}).update(cut)
    return kinds


def _health(machine: Hardware, gpu: int) -> str:
    return UNHEALTHY if f"GPU-{gpu}" in machine.unhealthy else HEALTHY


def _sharing(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    sharing = settings.get("sharing", {})
    shared: Mapping[str, Any] = sharing.get("timeSlicing") or sharing.get("mps") or {}
    return shared


def _replicas(resource: str, settings: Mapping[str, Any]) -> int:
    counts = {entry["name"]: int(entry["replicas"]) for entry in _sharing(settings).get("resources", [])}
    return counts.get(resource, 1)


def _name(resource: str, settings: Mapping[str, Any]) -> str:
    renamed = _sharing(settings).get("renameByDefault") and _replicas(resource, settings) > 1
    return f"{resource}.shared" if renamed else resource


def _shared(devices: Devices, replicas: int) -> Devices:
    if replicas == 1:
        return devices
    return {f"{one}::{number}": health for one, health in devices.items() for number in range(replicas)}
