"""The combined state of a resource's adapters in all of its pods. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from slipway.kube.objects import Object, deleting, uid
from slipway.serving.containers.diagnosis import is_ready
from slipway.serving.wire.agent import Adapter, AdapterState, AgentReport


class Standing(msgspec.Struct, frozen=True):
    """The state of one adapter in all pods that serve the model."""

    adapter: Adapter
    phase: Literal["Loading", "Loaded", "Failed"]
    """``Loaded`` if every pod that serves the model has loaded this version of the adapter, ``Failed`` if such a pod
    cannot load it, and ``Loading`` otherwise. While no pod serves the model, the phase is ``Loading``."""
    message: str = ""
    """The pod that cannot load the adapter, and the cause. The value is empty unless the phase is ``Failed``."""


def standings(
    adapters: Iterable[Adapter], pods: Iterable[Object], reports: Mapping[str, AgentReport]
) -> tuple[Standing, ...]:
    """Return the state of each adapter. ``reports`` maps a pod UID to the last report of the pod's loader."""
    serving = [pod for pod in pods if not deleting(pod) and is_ready(pod)]
    states = {(uid(pod), state.name): state for pod in serving for state in _states(reports, pod)}
    return tuple(_standing(adapter, serving, states) for adapter in adapters)


def _standing(adapter: Adapter, serving: list[Object], states: Mapping[tuple[str, str], AdapterState]) -> Standing:
    pairs = [(pod, states.get((uid(pod), adapter.name))) for pod in serving]
    missing = [(pod, state) for pod, state in pairs if state is None or state.loaded != adapter.digest]
    for pod, state in missing:
        if state and state.phase == "Failed":
            return Standing(adapter, "Failed", f"in pod {pod['metadata']['name']}: {state.message}")
    return Standing(adapter, "Loading" if missing or not serving else "Loaded")


def _states(reports: Mapping[str, AgentReport], pod: Object) -> tuple[AdapterState, ...]:
    report = reports.get(uid(pod))
    return report.adapters if report else ()
