"""Reading: an InferenceService together with the Models that it names, read and checked as a whole. Pure."""

from __future__ import annotations

import msgspec

from slipway.apis.llmkube import placement, service_settings, uses
from slipway.apis.llmkube.hardware import Accelerators, accelerators
from slipway.apis.llmkube.model_types import KIND as MODEL
from slipway.apis.llmkube.model_types import ModelSpec
from slipway.apis.llmkube.placement import Placed, Wanted, Way
from slipway.apis.llmkube.service_types import Endpoint, InferenceServiceSpec
from slipway.artifacts.weights import Unnamed
from slipway.engines.engine import ANYWHERE, Draft, Engine, Launch, Sharding, Task
from slipway.engines.generic import GENERIC
from slipway.engines.llamacpp import LLAMACPP_TUNED
from slipway.engines.personaplex import PERSONAPLEX
from slipway.engines.settings import Value, flags
from slipway.engines.sglang import SGLANG_TUNED
from slipway.engines.tgi import TGI
from slipway.engines.vllm import VLLM_TUNED
from slipway.kube.objects import PRIORITY_CLASS, Object, deleting, generation
from slipway.kube.quantity import multiply
from slipway.serving.plan import Invalid, Reference, World
from slipway.serving.settings import Settings

ENGINES: dict[str, Engine] = {
    "llamacpp": LLAMACPP_TUNED,
    "vllm": VLLM_TUNED,
    "tgi": TGI,
    "personaplex": PERSONAPLEX,
    "generic": GENERIC,
    "sglang": SGLANG_TUNED,
}
CONTAINERS = {
    "llamacpp": "llama-server",
    "vllm": "vllm",
    "tgi": "tgi",
    "personaplex": "personaplex",
    "generic": "inference-server",
    "sglang": "sglang",
}
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
    placed: Placed
    """The Model's weights."""
    draft: Placed | None
    """Those of the Model for speculative decoding, where it is wanted and there is one."""
    settings: Settings

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
        asked = self.spec.endpoint.port if self.spec.endpoint else self.engine.port
        return self.spec.container_port or asked

    @property
    def endpoint(self) -> Endpoint:
        return self.spec.endpoint or Endpoint()

    @property
    def launch(self) -> Launch:
        spec, gpu, draft = self.spec, self.model.hardware.gpu, self.draft
        return Launch(
            weights=self.placed.weights,
            served_name=self.name,
            port=self.port,
            bind=spec.bind_address or ANYWHERE[0],
            tasks=frozenset((TASKS[spec.mode or "chat"],)),
            extra_args=spec.args if spec.runtime == "generic" else spec.extra_args,
            hub_mirror=self.settings.hugging_face_endpoint,
            settings=_settings(spec, self.placed),
            gpus=self.accelerators.count,
            gpu_layers=max(gpu.layers, 0),
            sharding=Sharding(gpu.sharding.strategy, gpu.sharding.layer_split),
            draft=Draft(draft.weights, spec.vllm_config.speculative.num_speculative_tokens) if draft else None,
        )

    def fault(self) -> str | None:
        """Why its parts do not go together; found out here, as engines say it after minutes or not at all."""
        spec, count = self.spec, self.accelerators.count
        parallel = spec.vllm_config.tensor_parallel_size or 0
        if spec.runtime == "vllm" and parallel > max(count, 1):
            return f"vllmConfig.tensorParallelSize {parallel} is more than the {count} GPUs that a pod has"
        changed = self.engine.redefined(self.launch)
        if changed:
            field = "args" if spec.runtime == "generic" else "extraArgs"
            return f"{field} sets {', '.join(changed)}: remove it, or requests would not reach the model"
        return None


def references(resource: Object) -> tuple[Reference, ...]:
    """The Models of a service, and the class that says how important it is."""
    spec, namespace = resource["spec"], resource["metadata"]["namespace"]
    found = tuple(Reference(MODEL, namespace, name) for name in uses.model_names(resource))
    given = spec.get("priorityClassName")
    return (*found, Reference(PRIORITY_CLASS, "", given)) if given else found


def model_of(world: World, name: str) -> Object | None:
    """A Model of the service's namespace as last observed."""
    return world.referenced.get(Reference(MODEL, world.resource["metadata"]["namespace"], name))


def draft_of(world: World) -> Object | None:
    return model_of(world, uses.draft_name(world.resource["spec"]))


def read(world: World) -> Service:
    """Raises Invalid where the service cannot be served as it is written, with the reason."""
    resource = world.resource
    try:
        spec = msgspec.convert(resource["spec"], InferenceServiceSpec)
    except msgspec.ValidationError as error:
        raise Invalid("InvalidSpec", str(error)) from error
    model, draft = model_of(world, spec.model_ref), draft_of(world)
    if model is None:
        text = f"There is no Model {spec.model_ref} in the namespace {resource['metadata']['namespace']}."
        raise Invalid("ModelNotFound", text)
    wanted = Wanted(resource=model, spec=_model_spec(model), files=_takes_files(spec))
    if wanted.spec.hardware.accelerator == METAL:
        nowhere = Placed(way="image", weights=Unnamed())
        return Service(
            resource=resource, spec=spec, model=wanted.spec, placed=nowhere, draft=None, settings=world.settings
        )
    second = Wanted(resource=draft, spec=_model_spec(draft), files=False, draft=True) if draft else None
    service = Service(
        resource=resource,
        spec=spec,
        model=wanted.spec,
        placed=_placed(wanted, spec, world.settings),
        draft=_placed(second, spec, world.settings) if second else None,
        settings=world.settings,
    )
    _check(service)
    return service


def _placed(wanted: Wanted, spec: InferenceServiceSpec, settings: Settings) -> Placed:
    try:
        return placement.placed(wanted, spec, settings)
    except Invalid as error:
        name = wanted.resource["metadata"]["name"]
        raise Invalid(error.reason, f"The Model {name} cannot be served: {error.message}") from error


def _model_spec(model: Object) -> ModelSpec:
    try:
        return msgspec.convert(model["spec"], ModelSpec)
    except msgspec.ValidationError as error:
        raise Invalid("InvalidModel", f"The Model {model['metadata']['name']} is not valid: {error}") from error


def _check(service: Service) -> None:
    """Raises Invalid."""
    try:
        fault = service.fault()
        service.engine.args(service.launch)
    except ValueError as error:
        raise Invalid("InvalidSpec", f"The runtime {service.spec.runtime} cannot load this: {error}") from error
    if fault:
        raise Invalid("InvalidSpec", f"spec.{fault}")


def quantity(field: str, text: str) -> str:
    """A quantity in the API server's own form. Raises Invalid: the definition's pattern lets others pass, too."""
    try:
        return multiply(text, 1)
    except ValueError as error:
        raise Invalid("InvalidSpec", f"spec.{field}: {error}") from error


def mode(spec: InferenceServiceSpec) -> str:
    """What the model does: as the service says, or as its arguments or its path do."""
    if spec.mode:
        return spec.mode
    given, path = flags(spec.extra_args), (spec.endpoint or Endpoint()).path.rstrip("/")
    told = (name for name, words in MODE_FLAGS.items() if given.intersection(words))
    paths = {"/rerank": "rerank", "/embeddings": "embedding"}
    asked = (name for end, name in paths.items() if path.endswith(end))
    return next(told, next(asked, "chat"))


def _takes_files(spec: InferenceServiceSpec) -> bool:
    return spec.runtime == "llamacpp"


def _settings(spec: InferenceServiceSpec, own: Placed) -> dict[str, Value]:
    given: dict[str, Value] = {one.setting: one.value for one in service_settings.given(spec)}
    if own.mmproj and _takes_files(spec):
        given["mmproj"] = own.mmproj
    return given


def waits_for(world: World, service: Service) -> tuple[str, str] | None:
    """Reason and message while a Model is not ready that the service needs; None: it can start.

    A pod that loads its weights itself, or has them in its image, waits for nobody.
    """
    models = ((service.placed, model_of(world, service.spec.model_ref)), (service.draft, draft_of(world)))
    for place, model in models:
        found = unready(model, place.way) if place and model and place.way not in ("loader", "image") else None
        if found:
            return found
    return None


def unready(model: Object, way: Way = "engine") -> tuple[str, str] | None:
    """The same of one Model; what its status says of an older spec does not count."""
    name, status = model["metadata"]["name"], model.get("status") or {}
    if deleting(model):
        return "ModelLeaving", f"The Model {name} is being deleted: what runs serves on, and nothing new is started."
    if status.get("observedGeneration", 0) < generation(model) or not status.get("phase"):
        return "ModelNotReady", f"The Model {name} is being looked at."
    conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
    available = conditions.get("Available") or conditions.get("Accepted") or {}
    if status["phase"] == "Ready":
        elsewhere = way == "cache" and available.get("reason") == uses.BY_EACH_POD
        return ("ModelNotReady", f"The weights of the Model {name} are not in the cache yet.") if elsewhere else None
    told = str(available.get("message", ""))
    if status["phase"] == "Failed":
        return "ModelFailed", f"The Model {name} cannot be served: {told or 'its status says why'}"
    return "ModelNotReady", f"The Model {name} is not ready yet{': ' + told if told else '.'}"
