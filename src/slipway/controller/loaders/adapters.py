"""Decisions on how every pod of a model gets the desired adapters. Pure.

The labels of a pod name the adapters that it serves. Services select by these labels, so the gateway never sends a
request to a pod that lacks the adapter. A pod downloads a new version of an adapter while it serves the old one. Then,
one pod at a time, the label is removed, requests drain, the engine loads the new version, and the label is added again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from slipway.serving.wire.agent import SERVING, SERVING_LABEL, Adapter, AdapterSet, AdapterState, AgentReport, label

DRAIN_SECONDS = 2.0
"""Seconds for which a pod may still receive requests after a label was removed, until every gateway has updated its
table."""
LABEL_VALUE = re.compile(r"[a-z0-9]{1,10}")
"""Pattern of the values of ``agent.label``. Other values that a pod reports are ignored."""


class Pod(msgspec.Struct, frozen=True):
    """The fields of a pod that the decisions depend on."""

    uid: str
    labels: Mapping[str, str]
    serving: bool
    """Whether the pod's engine has started and is running."""


class Order(msgspec.Struct, frozen=True):
    """The actions to take for one pod."""

    labels: Mapping[str, str | None]
    """Labels to set on the pod. The value None removes a label."""
    desired: tuple[Adapter, ...] | None
    """The adapters to send to the pod's loader, or None if the loader already has them."""
    moving: bool
    """Whether the pod may make progress soon, so that it should be checked again."""


def orders(
    pods: Sequence[Pod],
    adapter_set: AdapterSet,
    reports: Mapping[str, AgentReport],
    unlabelled_seconds: Mapping[tuple[str, str], float],
) -> dict[str, Order]:
    """Return the actions for each pod, by pod UID.

    ``reports`` are recent reports by pod UID. A pod without a report did not respond; its labels stay while its engine
    runs. ``unlabelled_seconds`` maps (pod UID, adapter name) to the seconds since the pod was first seen without the
    adapter's label.
    """
    turns = {(one.name, turn) for one in adapter_set.adapters if (turn := _turn(pods, adapter_set, one, reports))}
    return {pod.uid: _order(pod, adapter_set, reports.get(pod.uid), turns, unlabelled_seconds) for pod in pods}


def is_labelled(pod: Pod, adapter_set: AdapterSet, adapter: Adapter) -> bool:
    """Whether the pod has the adapter's label, so that the gateway may send requests for the adapter to the pod."""
    return pod.labels.get(f"{SERVING_LABEL}{adapter_set.short_name(adapter)}") == SERVING


def _turn(
    pods: Sequence[Pod], adapter_set: AdapterSet, adapter: Adapter, reports: Mapping[str, AgentReport]
) -> str | None:
    """Return the UID of the pod that may switch to another version now, or None. The pod must have downloaded the
    version, and all other pods whose engine runs must serve some version of the adapter or have failed to load it."""
    ready = [pod for pod in pods if pod.serving and _is_ready_to_replace(reports.get(pod.uid), adapter)]
    ready.sort(key=lambda pod: (is_labelled(pod, adapter_set, adapter), pod.uid))
    if not ready:
        return None
    others = [
        pod for pod in pods if pod.serving and pod.uid != ready[0].uid and not is_labelled(pod, adapter_set, adapter)
    ]
    return None if any(not _failed(reports.get(pod.uid), adapter) for pod in others) else ready[0].uid


def _order(
    pod: Pod,
    adapter_set: AdapterSet,
    report: AgentReport | None,
    turns: set[tuple[str, str]],
    unlabelled_seconds: Mapping[tuple[str, str], float],
) -> Order:
    adapters = []
    labels: dict[str, str] = {}
    for adapter in adapter_set.adapters:
        state = _state(report, adapter)
        turn = (adapter.name, pod.uid) in turns
        off = (
            turn
            and not is_labelled(pod, adapter_set, adapter)
            and unlabelled_seconds.get((pod.uid, adapter.name), 0.0) >= DRAIN_SECONDS
        )
        adapters.append(msgspec.structs.replace(adapter, replace=off or not _outdated(state, adapter)))
        if pod.serving and not turn:
            labels |= _labels(pod, adapter_set, adapter, report)
    is_complete = report is not None and _is_settled(report, adapter_set.adapters)
    states = [_state(report, adapter) for adapter in adapter_set.adapters]
    passing = [state for state in states if state is None or state.phase != "Failed"]
    changes = _changes(pod.labels, labels, adapter_set)
    moving = bool(changes) or (report is not None and not is_complete and bool(passing or not states))
    return Order(changes, None if is_complete else tuple(adapters), moving)


def _labels(pod: Pod, adapter_set: AdapterSet, adapter: Adapter, report: AgentReport | None) -> Mapping[str, str]:
    name, state = adapter_set.short_name(adapter), _state(report, adapter)
    serving, version = f"{SERVING_LABEL}{name}", f"{adapter_set.label}{name}" if adapter_set.label else ""
    if report is None:
        return {label: pod.labels[label] for label in (version, serving) if label in pod.labels}
    if state is None or not state.loaded:
        return {}
    if not version:
        return {serving: SERVING}
    value = _loaded_label(adapter, state, pod.labels.get(version, ""))
    return {version: value, serving: SERVING} if value else {}


def _loaded_label(adapter: Adapter, state: AdapterState, before: str) -> str:
    """Return the label value for the loaded version. Loaders of earlier releases do not report the value for a version
    that is no longer desired; the pod then keeps its label."""
    if state.loaded == adapter.digest:
        return label(adapter.url)
    reported = state.loaded_label if LABEL_VALUE.fullmatch(state.loaded_label) else ""
    return reported or before


def _changes(labels: Mapping[str, str], desired: Mapping[str, str], adapter_set: AdapterSet) -> dict[str, str | None]:
    prefixes = (SERVING_LABEL, adapter_set.label) if adapter_set.label else (SERVING_LABEL,)
    ours = [name for name in labels if name.startswith(prefixes)]
    removed: dict[str, str | None] = {name: None for name in ours if name not in desired}
    return removed | {name: value for name, value in desired.items() if labels.get(name) != value}


def _state(report: AgentReport | None, adapter: Adapter) -> AdapterState | None:
    return next((state for state in report.adapters if state.name == adapter.name), None) if report else None


def _outdated(state: AdapterState | None, adapter: Adapter) -> bool:
    return state is not None and state.loaded not in ("", adapter.digest)


def _is_ready_to_replace(report: AgentReport | None, adapter: Adapter) -> bool:
    """Whether the new version has been downloaded and the old one must be unloaded first."""
    state = _state(report, adapter)
    if state is None or not _outdated(state, adapter):
        return False
    return state.phase == "Fetched" and state.digest == adapter.digest


def _failed(report: AgentReport | None, adapter: Adapter) -> bool:
    state = _state(report, adapter)
    return state is not None and state.phase == "Failed"


def _is_settled(report: AgentReport, desired: Sequence[Adapter]) -> bool:
    loaded = {(state.name, state.digest, state.loaded) for state in report.adapters if state.phase == "Loaded"}
    expected = {(adapter.name, adapter.digest, adapter.digest) for adapter in desired}
    return loaded == expected and len(report.adapters) == len(expected)
