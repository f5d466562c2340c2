"""The status of a LoRAAdapter: whether a service loads the adapter, and whether the replicas have loaded it. Pure."""

from __future__ import annotations

from slipway.apis.llmkube import names
from slipway.apis.llmkube.routing.lora_plan import AdapterView
from slipway.apis.llmkube.rules import loras
from slipway.kube.objects import Object, key
from slipway.kube.schemas.conditions import Condition, find, timestamp
from slipway.serving.contract.api import Rejection, StatusResult
from slipway.serving.contract.readiness import ROUTED
from slipway.serving.status.builder import build_status, first_rejection, permanent, verdict
from slipway.serving.status.report import model_id, routed

CONDITIONS = frozenset({"Available", "Loaded", "Error", ROUTED})
"""Types of the conditions of LoRAAdapters."""
PASSED_THROUGH = frozenset({"LoadingAdapter", "ServiceNotReady"})
"""Intermediate reasons, which cause no Events."""


def status(view: AdapterView, rejection: Rejection | None) -> StatusResult:
    world, resource = view.world, view.world.resource
    rejection = first_rejection(view.spec, rejection)
    fault = permanent(rejection)
    loaded = _loaded(view, fault)
    available = verdict(rejection, "The service loads the adapter.", type_="Available")
    served, public = _route(view)
    route = [] if fault else [routed(served, (public,), world.routed)]
    conditions = [available, loaded, _error(fault, loaded), *route]
    fields = {} if fault else model_id(served, (public,), world.routed)
    trailing = {}
    if loaded.status == "True":
        trailing = {"loadedPath": resource["spec"]["path"], "lastLoadedAt": _since(resource, world.now)}
    return build_status(resource, fields, conditions, trailing=trailing, passed_through=PASSED_THROUGH)


def _loaded(view: AdapterView, fault: Rejection | None) -> Condition:
    if fault or view.service is None:
        reason = fault.reason if fault else "ServiceNotReady"
        return Condition("Loaded", "False", reason, "See the condition Available.")
    name = key(view.service).name
    adapter = _find_adapter_status(view.service, view.world.resource["spec"])
    if adapter is None:
        text = f"The InferenceService {name} has not started to load it. See its status."
        return Condition("Loaded", "False", "ServiceNotReady", text)
    message = adapter.get("message", "")
    if adapter["phase"] == "Loaded":
        return Condition("Loaded", "True", "Loaded", f"Every replica of {name} has loaded it.")
    if adapter["phase"] == "Failed":
        return Condition("Loaded", "False", "AdapterFailed", f"{name} cannot load it {message}")
    if adapter["phase"] == "Stopped":
        return Condition("Loaded", "False", "ScaledToZero", f"{name} has no replicas; each loads it when it starts.")
    return Condition("Loaded", "False", "LoadingAdapter", f"The replicas of {name} are loading it.")


def _find_adapter_status(service: Object, spec: Object) -> Object | None:
    """Return the adapter's entry in the status of a service, or None if the service has not begun to load it from this
    path."""
    entries: list[Object] = (service.get("status") or {}).get("adapters") or []
    entry = next((one for one in entries if one["name"] == spec["name"]), None)
    return entry if entry and entry.get("path") == spec["path"] else None


def _error(fault: Rejection | None, loaded: Condition) -> Condition:
    if fault:
        return Condition("Error", "True", fault.reason, "See the condition Available.")
    if loaded.reason == "AdapterFailed":
        return Condition("Error", "True", loaded.reason, "See the condition Loaded.")
    return Condition("Error", "False", "AsExpected", "Nothing is wrong.")


def _route(view: AdapterView) -> tuple[str, str]:
    """Return the adapter's Service, as ``namespace/name``, and its model ID."""
    spec, (namespace, name) = view.world.resource["spec"], key(view.world.resource)
    public = loras.public_name(spec["inferenceServiceRef"]["name"], spec["name"])
    return f"{namespace}/{names.lora_service(name)}", public


def _since(resource: Object, now: float) -> str:
    """Return the time since which all replicas have had the adapter from its current path, in Kubernetes' format."""
    before = find(resource, "Loaded") or {}
    previous: Object = resource.get("status") or {}
    same = before.get("status") == "True" and previous.get("loadedPath") == resource["spec"]["path"]
    stamp: str = previous.get("lastLoadedAt", "") if same else ""
    return stamp or timestamp(now)
