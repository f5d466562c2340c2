"""A valid InferenceService together with its Models. Pure."""

from __future__ import annotations

import msgspec

from slipway.apis.llmkube.models.placement import Placement
from slipway.apis.llmkube.rules import loras, ranks, service_flags
from slipway.apis.llmkube.rules.engines import ENGINES, EVERY_ADDRESS, IMPLIED_MODE
from slipway.apis.llmkube.rules.hardware import Accelerators, accelerators, sharing_fault
from slipway.apis.llmkube.rules.loras import Lora
from slipway.apis.llmkube.rules.pools import Membership
from slipway.apis.llmkube.settings import llmkube
from slipway.apis.llmkube.types.model import ModelSpec
from slipway.apis.llmkube.types.runtime import SpeculativeDecoding
from slipway.apis.llmkube.types.service import Endpoint, InferenceServiceSpec
from slipway.engines.definition.engine import ANYWHERE, Draft, Engine, Launch, Sharding, Task
from slipway.engines.definition.flags import Value, flag_names
from slipway.engines.definition.retired import Renewal
from slipway.kube.objects import Object
from slipway.kube.values.quantity import multiply
from slipway.serving.contract.api import InvalidSpecError
from slipway.serving.contract.settings import Settings

TASKS: dict[str, Task] = {"chat": "generate", "embedding": "embed", "rerank": "rerank"}
MODE_FLAGS = {
    "rerank": ("--reranking", "--rerank"),
    "embedding": ("--embedding", "--embeddings", "--is-embedding"),
}
METAL = "metal"


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """An InferenceService that can be served once its Models are ready, or that a Mac outside of the cluster serves."""

    resource: Object
    spec: InferenceServiceSpec
    model: ModelSpec
    placed: Placement
    """The Model's weights. For a Mac, they are a placeholder."""
    draft: Placement | None
    """The draft model's weights; None: speculative decoding is off, or the draft Model does not exist."""
    settings: Settings
    loras: tuple[Lora, ...] = ()
    """The LoRA adapters that the engine loads at runtime."""
    pool: Membership | None = None
    """The service's membership in a ModelPool; None: no pool has an effect on it."""
    controller_key: str = ""
    """The controller's public key, as in :class:`World`."""

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
        """The port on which the engine listens."""
        default = self.spec.endpoint.port if self.spec.endpoint else self.engine.port
        return self.spec.container_port or default

    @property
    def endpoint(self) -> Endpoint:
        return self.spec.endpoint or Endpoint()

    @property
    def further_names(self) -> tuple[str, ...]:
        """Additional model IDs at the gateway."""
        gateway = self.endpoint.gateway
        return (gateway.model_name or self.spec.model_ref,) if gateway and gateway.enabled else ()

    @property
    def decoding(self) -> SpeculativeDecoding | None:
        """llama.cpp's speculative decoding; None: it is off, or the service has another runtime."""
        decoding = self.spec.speculative_decoding
        return decoding if decoding and decoding.active and self.spec.runtime == "llamacpp" else None

    @property
    def waits_for_idle(self) -> bool:
        """Whether a rollout must not interrupt requests of the service."""
        return self.spec.rollout_policy.wait_for_idle and not self.spec.rollout_policy.force

    @property
    def is_off(self) -> bool:
        """Whether the service's own spec requests zero replicas."""
        return self.spec.suspend or self.spec.replicas == 0

    @property
    def stopped(self) -> bool:
        """Whether the service gets no replicas, regardless of its autoscaling settings."""
        return self.is_off or (self.pool is not None and not self.pool.awake)

    @property
    def has_adapter_loader(self) -> bool:
        """Whether the service's pods have a loader for adapters."""
        return loras.has_adapter_loader(self.spec.runtime, self.loras, self.spec.extra_args)

    @property
    def own_image(self) -> str:
        """The default image: the operator's, or else the engine's public image for the accelerator; empty: there is
        none."""
        images, backend, engine = self.settings.images, self.accelerators.backend, self.engine
        # The operator's CPU image would silently leave GPUs idle.
        plain = "" if backend and backend in engine.images else images.get(engine.name, "")
        return images.get(f"{engine.name}-{backend}") or plain or engine.image(backend)

    @property
    def renewal(self) -> Renewal:
        """The author's arguments, in which flags that the default image no longer supports are removed or replaced.
        They are unchanged for other images and commands."""
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
        """Return a message about a contradiction within the spec, or None. The message begins with the path of a field,
        without ``spec.``. Engines report such contradictions only after minutes, or never. Raise ValueError for weights
        that the engine cannot load."""
        spec, gpus = self.spec, self.accelerators
        # The number of devices in a claim is unknown here.
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


def quantity(field: str, text: str) -> str:
    """Return a quantity in the API server's format. Raise InvalidSpecError for an invalid quantity that the
    definition's pattern accepts. ``field`` is its path in the spec."""
    try:
        return multiply(text, 1)
    except ValueError as error:
        raise InvalidSpecError("InvalidSpec", f"spec.{field}: {error}") from error


def user_args(spec: InferenceServiceSpec) -> tuple[str, ...]:
    """Return the author's arguments for the engine."""
    return spec.args if spec.runtime == "generic" else spec.extra_args


def mode(spec: InferenceServiceSpec) -> str:
    """Return the task of the model: the ``mode`` of the service, or else the task that its arguments imply, or else the
    task that its path implies. The default is ``chat``."""
    if spec.mode:
        return spec.mode
    flags, path = flag_names(user_args(spec)), (spec.endpoint or Endpoint()).path.rstrip("/")
    flag_modes = (name for name, words in MODE_FLAGS.items() if flags.intersection(words))
    paths = {"/rerank": "rerank", "/embeddings": "embedding"}
    path_modes = (name for end, name in paths.items() if path.endswith(end))
    return next(flag_modes, next(path_modes, "chat"))


def takes_files(spec: InferenceServiceSpec) -> bool:
    return ENGINES[spec.runtime].reads == "file"


def _settings(spec: InferenceServiceSpec, own: Placement, decoding: SpeculativeDecoding | None) -> dict[str, Value]:
    settings: dict[str, Value] = {one.setting: one.value for one in service_flags.explicit_settings(spec)}
    if decoding and decoding.draft_model:
        settings["draft_model"] = f"{own.folder}/{decoding.draft_model}"
    if own.mmproj and takes_files(spec):
        settings["mmproj"] = own.mmproj
    return settings
