"""Status fields of the original OME for an InferenceService: its components with their revisions, and its model.
Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from slipway.apis.ome import names
from slipway.apis.ome.services import canary
from slipway.apis.ome.services import rollout as service_rollout
from slipway.apis.ome.services.resolve import ServiceView
from slipway.apis.ome.services.service import Service
from slipway.kube.objects import DEPLOYMENT, Object, key
from slipway.serving.containers.diagnosis import MISSING, NO_NODE, Diagnosis, Failure, is_ready
from slipway.serving.contract.api import Rejection
from slipway.serving.status.builder import permanent
from slipway.serving.status.report import Component, complete

CREATED, ANSWERS = "latestCreatedRevision", "latestReadyRevision"
ROLLED_OUT, PREVIOUS = "latestRolledoutRevision", "previousRolledoutRevision"
REVISIONS = (CREATED, ANSWERS, ROLLED_OUT, PREVIOUS)
"""Fields of a component's status that keep their values until a later revision is observed."""
OF_CONTAINERS = frozenset(
    {"ImagePullBackOff", "CreateContainerConfigError", "PodsRejected", *NO_NODE, *(row.reason for row in MISSING)}
)
"""Reasons of failures that occur before the engine starts to load the model, and so do not concern the model."""
FAILURES = {
    "BaseModelNotFound": "BaseModelNotFound",
    "NoRuntime": "NoSupportingRuntime",
    "RuntimeDisabled": "RuntimeDisabled",
    "RuntimeNotFound": "RuntimeNotRecognized",
}
"""Reason of a rejection -> reason in the original OME's status."""


class ComponentState(msgspec.Struct, frozen=True, kw_only=True):
    """The observed state of one component."""

    name: str
    workload: Object | None
    pods: Sequence[Object]
    diagnosis: Diagnosis

    @property
    def component(self) -> Component:
        return Component(self.workload, self.diagnosis, self.name)

    @property
    def is_asleep(self) -> bool:
        """Whether the component's workload currently has zero desired replicas."""
        return self.workload is not None and not self.workload["spec"].get("replicas", 1)


def address_of(resource: Object, port: int, name: str = "") -> Object:
    """Return the status fields ``url`` and ``address`` of an InferenceService, or those of its Service ``name``."""
    namespace, own = key(resource)
    url = f"http://{name or own}.{namespace}.svc.cluster.local:{port}"
    return {"url": url, "address": {"url": url}}


def component_fields(view: ServiceView, service: Service | None, one: ComponentState) -> Object:
    """Return ``status.components.<name>``: the component's address, its revisions, named after the digests of their pod
    templates, and their shares of the requests. There is no address if ``service`` is None because the spec is invalid,
    and only the revisions of the previous status if there is no workload."""
    resource, own = view.world.resource, names.component_name(key(view.world.resource).name, one.name)
    tried = view.world.child(DEPLOYMENT, service_rollout.canary_name(key(resource).name, one.name))
    before = ((resource.get("status") or {}).get("components") or {}).get(one.name) or {}
    stable, newer = (canary.revision(workload) for workload in (one.workload, tried))
    fields = {field: before[field] for field in REVISIONS if field in before}
    part = service.part(one.name) if service else None
    address = address_of(resource, part.port, own) if part else {}
    address |= {"restURL": address["url"]} if address else {}
    if stable is None:
        return fields | address
    rolled_out, latest = f"{own}-{stable.digest}", f"{own}-{(newer or stable).digest}"
    fields[CREATED] = latest
    if stable.complete or (newer and newer.complete):
        fields[ANSWERS] = latest if newer is None or newer.complete else rolled_out
    if stable.complete and fields.get(ROLLED_OUT) != rolled_out:
        fields |= {PREVIOUS: fields[ROLLED_OUT]} if ROLLED_OUT in fields else {}
        fields[ROLLED_OUT] = rolled_out
    percent = part.component.extension.canary_traffic_percent if part else None
    split = canary.decide(newer.digest, percent, stable, newer) if newer and latest != rolled_out else None
    share = split.share if split else canary.ALL
    traffic = [{"revisionName": latest, "latestRevision": True, "percent": share}]
    if share < canary.ALL:
        traffic[0]["tag"] = "latest"
        traffic.append({"revisionName": rolled_out, "latestRevision": False, "percent": 100 - share, "tag": "prev"})
    return fields | address | {"traffic": traffic}


def model_status(components: Sequence[ComponentState], rejection: Rejection | None) -> Object:
    """Return ``status.modelStatus``: the state of the model in the engine and decoder pods."""
    loading = [one for one in components if one.name != "router"]
    copies = sum(is_ready(pod) for one in loading for pod in one.pods)
    failed = next((one for one in loading if one.diagnosis.failure), None)
    ready = bool(loading) and all(one.component.ready for one in loading)
    current = ready and all(one.workload is not None and complete(one.workload) for one in loading)
    fields: Object = {"modelCopies": {"failedCopies": _failing(loading), "totalCopies": copies}}
    active = "Loaded" if ready else "Loading" if any(one.pods for one in loading) else "Pending"
    if refused := permanent(rejection):
        reason = FAILURES.get(refused.reason)
        fields["lastFailureInfo"] = {"message": refused.message} | ({"reason": reason} if reason else {})
        return fields | _states("InvalidSpec", active, "")
    failure = failed.diagnosis.failure if failed else None
    if failed and failure and failure.reason not in OF_CONTAINERS:
        fields["lastFailureInfo"] = _failure_info(failed, failure)
        return fields | _states("BlockedByFailedLoad", "Loaded" if ready else "FailedToLoad", "FailedToLoad")
    return fields | _states("UpToDate" if current else "InProgress", active, "Loaded")


def _states(transition: str, active: str, target: str) -> Object:
    states = {"activeModelState": active, "targetModelState": target}
    return {"transitionStatus": transition, "modelRevisionStates": states}


def _failing(loading: Sequence[ComponentState]) -> int:
    """Return the number of pods that are not ready and in which a container has ended."""
    return sum(bool(_ended(pod)) and not is_ready(pod) for one in loading for pod in one.pods)


def _failure_info(one: ComponentState, failure: Failure) -> Object:
    info: Object = {"reason": "ModelLoadFailed", "message": failure.message}
    for pod in sorted(one.pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp")), reverse=True):
        if ended := _ended(pod):
            info |= {"location": key(pod).name, "exitCode": ended.get("exitCode", 0)}
            return info | ({"time": ended["finishedAt"]} if ended.get("finishedAt") else {})
    return info


def _ended(pod: Object) -> Object:
    """Return the ``terminated`` state in which a container of the pod last ended, or an empty object if none has
    ended."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    terminations = (
        one.get("state", {}).get("terminated") or one.get("lastState", {}).get("terminated") for one in statuses
    )
    return next((one for one in terminations if one), {})
