"""Resolve: an InferenceService together with the Models that it names, read and checked as a whole. Pure."""

from __future__ import annotations

import msgspec

from slipway.apis.llmkube.models import placement, usage
from slipway.apis.llmkube.models.placement import Placement, PlacementRequest
from slipway.apis.llmkube.rules import loras, pools, quotas, ranks, service_flags
from slipway.apis.llmkube.rules.engines import ENGINES, EVERY_ADDRESS, IMPLIED_MODE
from slipway.apis.llmkube.rules.hardware import Accelerators, accelerators, gpus_of, sharing_fault
from slipway.apis.llmkube.rules.loras import Lora
from slipway.apis.llmkube.rules.pools import Membership
from slipway.apis.llmkube.rules.quotas import Record
from slipway.apis.llmkube.rules.scheduling import VALUES, has_node
from slipway.apis.llmkube.services.surroundings import draft_of, model_of, pool_of, runs, suggestion
from slipway.apis.llmkube.settings import llmkube
from slipway.apis.llmkube.types.model import ModelSpec
from slipway.apis.llmkube.types.runtime import SpeculativeDecoding
from slipway.apis.llmkube.types.service import Endpoint, InferenceServiceSpec
from slipway.artifacts.locations.weights import Unnamed
from slipway.engines.definition.engine import ANYWHERE, Draft, Engine, Launch, Sharding, Task
from slipway.engines.definition.flags import Value, given_flags
from slipway.engines.definition.retired import Renewal
from slipway.kube.objects import DEPLOYMENT, PRIORITY_CLASS, Object, deleting, key
from slipway.kube.values.names import label_value
from slipway.kube.values.quantity import multiply
from slipway.serving.containers.diagnosis import ended
from slipway.serving.contract.api import InvalidSpecError, Reference, World
from slipway.serving.contract.settings import Settings
from slipway.spelling import unknown

TASKS: dict[str, Task] = {"chat": "generate", "embedding": "embed", "rerank": "rerank"}
MODE_FLAGS = {
    "rerank": ("--reranking", "--rerank"),
    "embedding": ("--embedding", "--embeddings", "--is-embedding"),
}
METAL = "metal"


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """An InferenceService that can be served, once its Models are ready."""

    resource: Object
    spec: InferenceServiceSpec
    model: ModelSpec
    placed: Placement
    """The Model's weights."""
    draft: Placement | None
    """Those of the Model for speculative decoding, where it is wanted and there is one."""
    settings: Settings
    loras: tuple[Lora, ...] = ()
    """The adapters that its engine is to load while it runs."""
    pool: Membership | None = None
    """What follows from the ModelPool that it belongs to."""
    controller_key: str = ""
    """See World."""

    @property
    def name(self) -> str:
        name: str = self.resource["metadata"]["name"]
        return name

    @property
    def namespace(self) -> str:
        namespace: str = self.resource["metadata"]["namespace"]
        return namespace

    @property
    def engine(self) -> Engine:
        return ENGINES[self.spec.runtime]

    @property
    def accelerators(self) -> Accelerators:
        return accelerators(self.spec, self.model.hardware)

    @property
    def port(self) -> int:
        """The engine's."""
        default = self.spec.endpoint.port if self.spec.endpoint else self.engine.port
        return self.spec.container_port or default

    @property
    def endpoint(self) -> Endpoint:
        return self.spec.endpoint or Endpoint()

    @property
    def further_names(self) -> tuple[str, ...]:
        """That the model has at the gateway."""
        gateway = self.endpoint.gateway
        return (gateway.model_name or self.spec.model_ref,) if gateway and gateway.enabled else ()

    @property
    def decoding(self) -> SpeculativeDecoding | None:
        """How llama.cpp has tokens proposed; None: it has not."""
        decoding = self.spec.speculative_decoding
        return decoding if decoding and decoding.active and self.spec.runtime == "llamacpp" else None

    @property
    def waits_for_idle(self) -> bool:
        """Whether a rollout must not interrupt requests."""
        return self.spec.rollout_policy.wait_for_idle and not self.spec.rollout_policy.force

    @property
    def is_off(self) -> bool:
        """Whether its own spec sets no replicas."""
        return self.spec.suspend or self.spec.replicas == 0

    @property
    def stopped(self) -> bool:
        """Whether it has no replicas, whatever an autoscaler would set."""
        return self.is_off or (self.pool is not None and not self.pool.awake)

    @property
    def has_adapter_loader(self) -> bool:
        """Whether its pods have a loader for adapters."""
        return loras.has_adapter_loader(self.spec.runtime, self.loras, self.spec.extra_args)

    @property
    def own_image(self) -> str:
        """The operator's, else the engine's public one for the accelerator; empty: there is none."""
        images, backend, engine = self.settings.images, self.accelerators.backend, self.engine
        # What the operator has for CPUs would leave GPUs idle, without a word.
        plain = "" if backend and backend in engine.images else images.get(engine.name, "")
        return images.get(f"{engine.name}-{backend}") or plain or engine.image(backend)

    @property
    def renewal(self) -> Renewal:
        """The arguments that it gives its engine, as the image takes them that it gets."""
        own = self.spec.image or "".join(self.spec.command[:1])
        return self.engine.renewed(user_args(self.spec), author_image=own, image=self.own_image)

    @property
    def launch(self) -> Launch:
        spec, gpu, draft = self.spec, self.model.hardware.gpu, self.draft
        return Launch(
            weights=self.placed.weights,
            served_name=self.name,
            further_names=self.further_names,
            port=self.port,
            bind=spec.bind_address or EVERY_ADDRESS.get(spec.runtime, self.settings.engine_address or ANYWHERE[0]),
            tasks=frozenset((TASKS[mode(spec) if spec.runtime in IMPLIED_MODE else spec.mode or "chat"],)),
            adapters=self.has_adapter_loader,
            extra_args=self.renewal.args,
            hub_mirror=self.settings.hugging_face_endpoint,
            settings=_settings(spec, self.placed, self.decoding),
            gpus=self.accelerators.count,
            gpu_layers=max(gpu.layers, 0),
            sharding=Sharding(gpu.sharding.strategy, gpu.sharding.layer_split),
            draft=Draft(draft.weights, spec.vllm_config.speculative.num_speculative_tokens) if draft else None,
        )

    def fault(self) -> str | None:
        """Why its parts do not go together; found out here, as engines say it after minutes or not at all."""
        spec, gpus = self.spec, self.accelerators
        # How many devices a claim stands for is not known here.
        count = 0 if gpus.claims else gpus.count
        if many := ranks.fault(spec.runtime, self.engine.args(self.launch), spec.extra_args, count):
            return many
        changed = self.engine.conflicting_args(self.launch)
        decoding = self.decoding
        companion = decoding.draft_model if decoding else ""
        if companion and not (self.placed.folder and companion in self.model.files):
            return f"speculativeDecoding.draftModel: {companion} is not one of the Model's files"
        sharing = sharing_fault(spec, self.model.hardware, llmkube(self.settings).shared_gpu_nodes)
        if sharing:
            return f"resources.gpuSharing: {sharing}"
        if changed:
            field = "args" if spec.runtime == "generic" else "extraArgs"
            return f"{field} sets {', '.join(changed)}: remove it, or requests would not reach the model"
        values = {str(one.get("name")): str(one["value"]) for one in spec.env if "value" in one}
        if changed := self.engine.conflicting_env(self.launch, values):
            return f"env sets {', '.join(changed)}: remove it, or requests would not reach the model"
        return None


class ServiceView(msgspec.Struct, frozen=True, kw_only=True):
    """An InferenceService that may not be valid, and what is known of it."""

    world: World
    service: Service | InvalidSpecError
    deployment: Object | None
    waits: tuple[str, str] | None
    """Reason and message while a Model is not ready that the service needs, or GPUQuotas have no room for it; None: it
    can start."""
    quota: Record
    """What it has of GPUQuotas, for its status."""

    @property
    def most_replicas(self) -> int | None:
        """That the Deployment may have which serves on while the service waits; None: as many as it wants."""
        if self.waits is None or not self.quota.names or self.deployment is None:
            return None
        each = _each(self.deployment, self.service)
        if not each and self.waits[0] == quotas.PRIORITY_TOO_LOW:
            return 0
        written = quotas.count_granted(self.world.resource, self.running)
        return min(self.quota.gpus, written) // each if each else None

    @property
    def running(self) -> int:
        """GPUs that its pods hold."""
        return _running(self.world, self.service)

    @property
    def quota_while_blocked(self) -> Record:
        """Its part of GPUQuotas while it cannot start. Running pods keep theirs."""
        return quotas.record_while_blocked(self.world, self.running) if self.deployment else Record()

    def valid(self) -> Service:
        """Raises InvalidSpecError where the service cannot be served as it is written, with the reason."""
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
    # Who cannot start for another reason takes nothing from those who can.
    if isinstance(service, InvalidSpecError):
        return msgspec.structs.replace(view, quota=view.quota_while_blocked)
    if waits:
        return msgspec.structs.replace(view, quota=_kept(view, service))
    class_value = priority(world, service)
    number = VALUES["normal"] if class_value is None else class_value
    gpus, starts = _most(service) * _count(service), _starts_without_gpus(service, deployment)
    verdict = quotas.judge(world, gpus, view.running, number, starts=starts)
    return msgspec.structs.replace(view, waits=verdict.waits, quota=verdict.record)


def _kept(view: ServiceView, service: Service) -> Record:
    """Of GPUQuotas, while a Model is not ready and the Deployment that there is serves on, with no more replicas than
    the service wants: it gives back what neither the one nor the other needs."""
    record, each = view.quota_while_blocked, _each(view.deployment, service)
    serving = min(_most(service), record.gpus // each) * each if each else 0
    gpus = max(min(record.gpus, _most(service) * _count(service)), serving)
    return msgspec.structs.replace(record, gpus=gpus, wanted=gpus)


def _most(service: Service) -> int:
    """All replicas that there may be."""
    spec = service.spec
    if service.stopped or service.pool:
        return int(not service.stopped)
    return spec.autoscaling.max_replicas if spec.autoscaling else spec.replicas


def _starts_without_gpus(service: Service, deployment: Object | None) -> bool:
    """Whether it gets its first pods, and these need no GPUs."""
    running = bool(deployment and deployment["spec"].get("replicas", 1))
    needless = not _count(service) and service.model.hardware.accelerator != METAL
    return needless and not running and bool(_most(service))


def _count(service: Service) -> int:
    """GPUs of a pod that are taken from quotas."""
    return 0 if service.model.hardware.accelerator == METAL else service.accelerators.count


def _each(deployment: Object | None, service: Service | InvalidSpecError) -> int:
    """GPUs of each pod of a Deployment as it is, which may be of an older spec."""
    pod = deployment["spec"].get("template", {}).get("spec") or {} if deployment else {}
    return gpus_of(pod, _claimed(service))


def _running(world: World, service: Service | InvalidSpecError) -> int:
    """GPUs that pods hold: those that have a node, as anybody may write a Deployment of many replicas."""
    pods = (pod for pod in world.pods if has_node(pod) and not deleting(pod) and not ended(pod))
    return sum(gpus_of(pod.get("spec") or {}, _claimed(service)) for pod in pods)


def _claimed(service: Service | InvalidSpecError) -> int:
    return service.accelerators.count if isinstance(service, Service) else 0


def priority(world: World, service: Service) -> int | None:
    """The number of the class that the pods have. None: there is no such class."""
    given = service.spec.priority_class_name
    if not given:
        return VALUES[service.spec.priority]
    number: int | None = (world.get(Reference(PRIORITY_CLASS, "", given)) or {}).get("value")
    return number


def build_service(world: World) -> Service:
    """Builds the service from its resource and its Models. Raises InvalidSpecError, with the reason, if it cannot be
    served as written."""
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
        resource=model, service=name, spec=_model_spec(model), files=_takes_files(spec), needless=needless
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
        PlacementRequest(resource=draft, service=name, spec=_model_spec(draft), files=_takes_files(spec), draft=True)
        if draft
        else None
    )
    service = Service(
        resource=resource,
        spec=spec,
        model=request.spec,
        placed=_placed(request, spec, world.settings),
        draft=_placed(second, spec, world.settings) if second else None,
        settings=world.settings,
        loras=loras.of_service(world, resource),
        pool=pools.membership(pool_of(world), name, runs=runs(world)),
        controller_key=world.controller_key,
    )
    _check(service)
    return service


def _placed(request: PlacementRequest, spec: InferenceServiceSpec, settings: Settings) -> Placement:
    try:
        return placement.place_weights(request, spec, settings)
    except InvalidSpecError as error:
        name = request.resource["metadata"]["name"]
        raise InvalidSpecError(error.reason, f"The Model {name} cannot be served: {error.message}") from error


def _model_spec(model: Object) -> ModelSpec:
    try:
        return msgspec.convert(model["spec"], ModelSpec)
    except msgspec.ValidationError as error:
        raise InvalidSpecError(
            "InvalidModel", f"The Model {model['metadata']['name']} is not valid: {error}"
        ) from error


def _check(service: Service) -> None:
    """Raises InvalidSpecError."""
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


def quantity(field: str, text: str) -> str:
    """A quantity in the API server's own form. Raises InvalidSpecError: the definition's pattern lets others pass."""
    try:
        return multiply(text, 1)
    except ValueError as error:
        raise InvalidSpecError("InvalidSpec", f"spec.{field}: {error}") from error


def user_args(spec: InferenceServiceSpec) -> tuple[str, ...]:
    """The arguments that the service gives its engine itself."""
    return spec.args if spec.runtime == "generic" else spec.extra_args


def mode(spec: InferenceServiceSpec) -> str:
    """What the model does: as the service says, or as its arguments or its path do."""
    if spec.mode:
        return spec.mode
    given, path = given_flags(user_args(spec)), (spec.endpoint or Endpoint()).path.rstrip("/")
    flag_modes = (name for name, words in MODE_FLAGS.items() if given.intersection(words))
    paths = {"/rerank": "rerank", "/embeddings": "embedding"}
    path_modes = (name for end, name in paths.items() if path.endswith(end))
    return next(flag_modes, next(path_modes, "chat"))


def _takes_files(spec: InferenceServiceSpec) -> bool:
    return ENGINES[spec.runtime].reads == "file"


def _settings(spec: InferenceServiceSpec, own: Placement, decoding: SpeculativeDecoding | None) -> dict[str, Value]:
    given: dict[str, Value] = {one.setting: one.value for one in service_flags.given(spec)}
    if decoding and decoding.draft_model:
        given["draft_model"] = f"{own.folder}/{decoding.draft_model}"
    if own.mmproj and _takes_files(spec):
        given["mmproj"] = own.mmproj
    return given


def find_obstacle(world: World, service: Service) -> tuple[str, str] | None:
    """Returns reason and message while a Model that the service needs is not ready, and None if it can start.

    A pod that loads its weights itself, or has them in its image, waits for nobody.
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
