"""Parsing and validation of an InferenceService together with its Models. Pure."""

from __future__ import annotations

import msgspec

from slipway.apis.llmkube.models import placement, usage
from slipway.apis.llmkube.models.placement import Placement, PlacementRequest
from slipway.apis.llmkube.rules import loras, pools, quotas
from slipway.apis.llmkube.rules.engines import ENGINES
from slipway.apis.llmkube.rules.hardware import gpus_of
from slipway.apis.llmkube.rules.quotas import Record
from slipway.apis.llmkube.rules.scheduling import VALUES, has_node
from slipway.apis.llmkube.services.service import METAL, Service, takes_files
from slipway.apis.llmkube.services.surroundings import draft_of, model_of, pool_of, runs, suggestion
from slipway.apis.llmkube.types.model import ModelSpec
from slipway.apis.llmkube.types.service import InferenceServiceSpec
from slipway.artifacts.locations.weights import Unnamed
from slipway.kube.objects import DEPLOYMENT, PRIORITY_CLASS, Object, deleting, key
from slipway.kube.values.names import label_value
from slipway.serving.containers.diagnosis import ended
from slipway.serving.contract.api import InvalidSpecError, Reference, World
from slipway.serving.contract.settings import Settings
from slipway.spelling import unknown


class ServiceView(msgspec.Struct, frozen=True, kw_only=True):
    """An InferenceService, valid or not, and its observed state. ``deployment`` is None if it does not exist."""

    world: World
    service: Service | InvalidSpecError
    deployment: Object | None
    waits: tuple[str, str] | None
    """Reason and message while the service waits for a Model or for GPUs of its GPUQuotas; None: it can start, or it is
    invalid."""
    quota: Record
    """The service's share of GPUQuotas, for its status."""

    @property
    def most_replicas(self) -> int | None:
        """Maximum number of replicas of the existing Deployment while the service waits; None: unlimited."""
        if self.waits is None or not self.quota.names or self.deployment is None:
            return None
        each = _gpus_per_pod(self.deployment, self.service)
        if not each and self.waits[0] == quotas.PRIORITY_TOO_LOW:
            return 0
        granted = quotas.count_granted(self.world.resource, self.running)
        return min(self.quota.gpus, granted) // each if each else None

    @property
    def running(self) -> int:
        """Number of GPUs that the service's scheduled pods hold, without terminating and ended pods."""
        return _count_running_gpus(self.world, self.service)

    @property
    def quota_while_blocked(self) -> Record:
        """The service's share of GPUQuotas while it cannot start. Running pods keep their GPUs. The share is empty
        without a Deployment."""
        return quotas.record_while_blocked(self.world, self.running) if self.deployment else Record()

    def valid(self) -> Service:
        """Return the service. Raise InvalidSpecError, with the reason, if it cannot be served as written."""
        if isinstance(self.service, InvalidSpecError):
            raise self.service
        return self.service


def resolve(world: World) -> ServiceView:
    service: Service | InvalidSpecError
    deployment = world.child(DEPLOYMENT, label_value(key(world.resource).name))
    waits: tuple[str, str] | None = None
    try:
        service = build_service(world)
        waits = find_obstacle(world, service)
    except InvalidSpecError as error:
        service = error
    view = ServiceView(world=world, service=service, deployment=deployment, waits=waits, quota=Record())
    # A service that cannot start for another reason must not take GPUs from those that can.
    if isinstance(service, InvalidSpecError):
        return msgspec.structs.replace(view, quota=view.quota_while_blocked)
    if waits:
        return msgspec.structs.replace(view, quota=_quota_while_waiting(view, service))
    class_value = priority(world, service)
    number = VALUES["normal"] if class_value is None else class_value
    gpus, starts = _max_replicas(service) * _quota_gpus(service), _starts_without_gpus(service, deployment)
    verdict = quotas.judge(world, gpus, view.running, number, starts=starts)
    return msgspec.structs.replace(view, waits=verdict.waits, quota=verdict.record)


def _quota_while_waiting(view: ServiceView, service: Service) -> Record:
    """Return the share of GPUQuotas while a Model is not ready. The existing Deployment continues to serve with at most
    the replicas that the spec allows. GPUs that neither the Deployment nor the spec needs are released."""
    record, each = view.quota_while_blocked, _gpus_per_pod(view.deployment, service)
    serving = min(_max_replicas(service), record.gpus // each) * each if each else 0
    gpus = max(min(record.gpus, _max_replicas(service) * _quota_gpus(service)), serving)
    return msgspec.structs.replace(record, gpus=gpus, requested=gpus)


def _max_replicas(service: Service) -> int:
    """Return the maximum number of replicas that a service can get."""
    spec = service.spec
    if service.stopped or service.pool:
        return int(not service.stopped)
    return spec.autoscaling.max_replicas if spec.autoscaling else spec.replicas


def _starts_without_gpus(service: Service, deployment: Object | None) -> bool:
    """Whether a service is about to start its first pods, and they need no GPUs."""
    running = bool(deployment and deployment["spec"].get("replicas", 1))
    needless = not _quota_gpus(service) and service.model.hardware.accelerator != METAL
    return needless and not running and bool(_max_replicas(service))


def _quota_gpus(service: Service) -> int:
    """Return the number of GPUs per pod that count against quotas."""
    return 0 if service.model.hardware.accelerator == METAL else service.accelerators.count


def _gpus_per_pod(deployment: Object | None, service: Service | InvalidSpecError) -> int:
    """Return the number of GPUs of each pod of the current Deployment, which may come from an older spec. Return 0 if
    there is no Deployment."""
    pod = deployment["spec"].get("template", {}).get("spec") or {} if deployment else {}
    return gpus_of(pod, _claimed_gpus(service))


def _count_running_gpus(world: World, service: Service | InvalidSpecError) -> int:
    """Return the number of GPUs that scheduled pods hold. Pods without a node do not count, because any user can set
    many replicas. Terminating pods and ended pods do not count either."""
    pods = (pod for pod in world.pods if has_node(pod) and not deleting(pod) and not ended(pod))
    return sum(gpus_of(pod.get("spec") or {}, _claimed_gpus(service)) for pod in pods)


def _claimed_gpus(service: Service | InvalidSpecError) -> int:
    return service.accelerators.count if isinstance(service, Service) else 0


def priority(world: World, service: Service) -> int | None:
    """Return the value of the pods' PriorityClass, or None if the class does not exist."""
    class_name = service.spec.priority_class_name
    if not class_name:
        return VALUES[service.spec.priority]
    number: int | None = (world.get(Reference(PRIORITY_CLASS, "", class_name)) or {}).get("value")
    return number


def build_service(world: World) -> Service:
    """Build the service from an InferenceService and its Models. Raise InvalidSpecError, with the reason, if it cannot
    be served as written."""
    resource = world.resource
    runtime = resource["spec"].get("runtime", "llamacpp")
    if runtime not in ENGINES:
        raise InvalidSpecError("InvalidSpec", f"spec.runtime: {unknown('runtime', str(runtime), ENGINES)}")
    try:
        spec = msgspec.convert(resource["spec"], InferenceServiceSpec)
    except msgspec.ValidationError as error:
        raise InvalidSpecError("InvalidSpec", str(error)) from error
    model, draft = model_of(world, spec.model_ref), draft_of(world)
    if model is None:
        text = f"There is no Model {spec.model_ref} in the namespace {resource['metadata']['namespace']}"
        raise InvalidSpecError("ModelNotFound", f"{text}{suggestion(world, spec.model_ref)}")
    needless = not usage.gets_cached_weights(resource["spec"])
    name = key(resource).name
    request = PlacementRequest(
        resource=model, service=name, spec=_parse_spec(model), files=takes_files(spec), needless=needless
    )
    if request.spec.hardware.accelerator == METAL:
        nowhere = Placement(way="image", weights=Unnamed())
        return Service(
            resource=resource, spec=spec, model=request.spec, placed=nowhere, draft=None, settings=world.settings
        )
    missing = usage.draft_name(resource["spec"]) if draft is None and spec.runtime == "llamacpp" else ""
    if missing:
        text = f"There is no Model {missing} in the namespace {resource['metadata']['namespace']} as the draft model"
        raise InvalidSpecError("ModelNotFound", f"{text}{suggestion(world, missing)}")
    second = (
        PlacementRequest(resource=draft, service=name, spec=_parse_spec(draft), files=takes_files(spec), draft=True)
        if draft
        else None
    )
    service = Service(
        resource=resource,
        spec=spec,
        model=request.spec,
        placed=_place_weights(request, spec, world.settings),
        draft=_place_weights(second, spec, world.settings) if second else None,
        settings=world.settings,
        loras=loras.of_service(world, resource),
        pool=pools.membership(pool_of(world), name, runs=runs(world)),
        controller_key=world.controller_key,
    )
    _check_launch(service)
    return service


def _place_weights(request: PlacementRequest, spec: InferenceServiceSpec, settings: Settings) -> Placement:
    try:
        return placement.place_weights(request, spec, settings)
    except InvalidSpecError as error:
        name = request.resource["metadata"]["name"]
        raise InvalidSpecError(error.reason, f"The Model {name} cannot be served: {error.message}") from error


def _parse_spec(model: Object) -> ModelSpec:
    try:
        return msgspec.convert(model["spec"], ModelSpec)
    except msgspec.ValidationError as error:
        raise InvalidSpecError(
            "InvalidModel", f"The Model {model['metadata']['name']} is not valid: {error}"
        ) from error


def _check_launch(service: Service) -> None:
    """Raise InvalidSpecError if the runtime cannot load the Model with the arguments in the spec."""
    if service.placed.way == "engine" and "hf" not in service.engine.schemes:
        text = f"The runtime {service.spec.runtime} does not support repositories. Name a file or a directory"
        raise InvalidSpecError("InvalidSpec", text)
    try:
        fault = service.fault()
        service.engine.args(service.launch)
    except ValueError as error:
        raise InvalidSpecError(
            "InvalidSpec", f"The runtime {service.spec.runtime} cannot load this: {error}"
        ) from error
    if fault:
        raise InvalidSpecError("InvalidSpec", f"spec.{fault}")


def find_obstacle(world: World, service: Service) -> tuple[str, str] | None:
    """Return a reason and a message if a Model that the service needs is not ready, or None if the service can start.

    A service does not wait for a Model if each pod downloads the weights itself, or if they are in the image.
    """
    models = ((service.placed, model_of(world, service.spec.model_ref)), (service.draft, draft_of(world)))
    for place, model in models:
        obstacle = (
            placement.explain_unready(model, place.way)
            if place and model and place.way not in ("loader", "image")
            else None
        )
        if obstacle:
            return obstacle
    return None
