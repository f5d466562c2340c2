"""Model: a resource together with the configuration that it refers to, read and checked as a whole. Pure."""

from __future__ import annotations

import re

import msgspec

from slipway.apis.kubeai import config, names
from slipway.apis.kubeai.sources import weights
from slipway.apis.kubeai.types import ModelSpec
from slipway.artifacts import urls
from slipway.artifacts.urls import InvalidUrl, ModelUrl
from slipway.engines.engine import Engine, Launch, Task
from slipway.engines.faster_whisper import FASTER_WHISPER
from slipway.engines.infinity import INFINITY
from slipway.engines.llamacpp import LLAMACPP
from slipway.engines.ollama import OLLAMA
from slipway.engines.sglang import SGLANG
from slipway.engines.vllm import VLLM
from slipway.kube.objects import CONFIG_MAP, PERSISTENT_VOLUME_CLAIM, Object, labels, uid
from slipway.serving.plan import Invalid, Reference, World
from slipway.serving.route import MOST_LABEL_CHARACTERS, MOST_LABELS
from slipway.serving.settings import Settings

CONFIG_NAME, CONFIG_KEY = "slipway-kubeai", "system.yaml"
PORT = 8000
ENGINES: dict[str, Engine] = {
    "OLlama": OLLAMA,
    "VLLM": VLLM,
    "FasterWhisper": FASTER_WHISPER,
    "Infinity": INFINITY,
    "SGLang": SGLANG,
    "LlamaCpp": LLAMACPP,
}
TASKS: dict[str, Task] = {
    "TextGeneration": "generate",
    "TextEmbedding": "embed",
    "Reranking": "rerank",
    "SpeechToText": "transcribe",
}
LABEL_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A Model that can be served."""

    resource: Object
    spec: ModelSpec
    url: ModelUrl
    engine: Engine
    config: config.SystemConfig
    settings: Settings
    controller_key: str
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
    def labels(self) -> dict[str, str]:
        """The Model's own, with those of its features as they ought to be."""
        kept = {name: value for name, value in labels(self.resource).items() if not name.startswith(names.FEATURE)}
        return kept | {f"{names.FEATURE}{feature}": "true" for feature in self.spec.features}

    @property
    def cache_folder(self) -> str:
        """The Model's own folder in its cache, relative to the volume. Empty: it has no cache."""
        return f"models/{self.name}-{uid(self.resource)}" if self.spec.cache_profile else ""

    @property
    def replicas(self) -> int:
        """What the Model asks for, within its bounds."""
        wanted = self.spec.replicas
        if self.spec.autoscaling_disabled:
            return wanted or 0
        upper = wanted if wanted is None or self.spec.max_replicas is None else min(wanted, self.spec.max_replicas)
        return max(upper or 0, self.spec.min_replicas)

    @property
    def launch(self) -> Launch:
        return Launch(
            weights=weights(self.url, self.engine.name, f"/{self.cache_folder}" if self.cache_folder else ""),
            served_name=self.name,
            port=PORT,
            tasks=frozenset(TASKS[feature] for feature in self.spec.features),
            adapters=bool(self.spec.adapters),
            extra_args=self.spec.args,
            hub_mirror=self.settings.hugging_face_endpoint,
        )


def references(resource: Object, settings: Settings) -> tuple[Reference, ...]:
    """The system configuration, and the claim that the Model's cache lies on."""
    profile = profile_of(resource)
    claims = (claim_reference(resource["metadata"]["namespace"], profile),) if profile else ()
    return (_config_reference(settings), *claims)


def profile_of(resource: Object) -> str:
    """The cache profile of a Model, or that of before while its weights may still be there. Empty: neither."""
    recorded = (resource["metadata"].get("annotations") or {}).get(names.PROFILE, "")
    profile: str = resource.get("spec", {}).get("cacheProfile") or recorded
    return profile


def _config_reference(settings: Settings) -> Reference:
    return Reference(CONFIG_MAP, settings.system_namespace, CONFIG_NAME)


def claim_reference(namespace: str, profile: str) -> Reference:
    return Reference(PERSISTENT_VOLUME_CLAIM, namespace, f"shared-model-cache-{profile}")


def read_config(world: World) -> config.SystemConfig:
    """Defaults where there is no ConfigMap. Raises InvalidConfig."""
    found = world.referenced.get(_config_reference(world.settings), {})
    return config.parse((found.get("data") or {}).get(CONFIG_KEY, ""))


def read(world: World) -> Model:
    """Raises Invalid where the Model cannot be served as it is written, with the reason."""
    try:
        spec = msgspec.convert(world.resource["spec"], ModelSpec)
        url = urls.parse(spec.url)
    except (msgspec.ValidationError, InvalidUrl) as error:
        raise Invalid("InvalidSpec", f"spec.url: {error}" if isinstance(error, InvalidUrl) else str(error)) from error
    model = Model(
        resource=world.resource,
        spec=spec,
        url=url,
        engine=ENGINES[spec.engine],
        config=read_config(world),
        settings=world.settings,
        controller_key=world.controller_key,
    )
    fault = _fault(model)
    if fault:
        raise Invalid("InvalidSpec", fault)
    return model


def _fault(model: Model) -> str | None:
    """Why the parts of the spec do not go together; found out here, as engines say it after minutes or not at all."""
    refused = urls.refusal(model.url, model.engine.name, cached=bool(model.spec.cache_profile))
    if refused:
        return f"spec.url {refused}"
    return _fault_of_features(model) or _fault_of_adapters(model) or _fault_of_args(model) or _fault_of_labels(model)


def _fault_of_features(model: Model) -> str | None:
    spec, engine = model.spec, model.engine
    able = [feature for feature, task in TASKS.items() if task in engine.tasks]
    unable = [feature for feature in spec.features if feature not in able]
    if unable:
        return f"spec.features: the engine {spec.engine} does {', '.join(able)}, not {', '.join(unable)}"
    if engine.one_task and len(set(spec.features)) > 1:
        return f"spec.features: {spec.engine} does one of {', '.join(able)} in a process; make a Model for each"
    return None


def _fault_of_adapters(model: Model) -> str | None:
    spec = model.spec
    if spec.adapters and not model.engine.adapters:
        advice = "take VLLM, or weights that have the adapter merged in"
        if spec.engine == "LlamaCpp":
            advice += ", or give it one for its start, by spec.args: --lora and its file"
        return f"spec.adapters: the engine {spec.engine} loads none while it runs: {advice}"
    seen: set[str] = set()
    for adapter in spec.adapters:
        if adapter.name in seen:
            return f"spec.adapters: the name {adapter.name} occurs twice"
        seen.add(adapter.name)
        if not LABEL_NAME.fullmatch(adapter.name):
            return (
                f"spec.adapters: the name {adapter.name!r} must begin and end with a letter or digit, to be a label's"
            )
        try:
            scheme = urls.parse(adapter.url).scheme
        except InvalidUrl as error:
            return f"spec.adapters: {error}"
        if scheme not in urls.CACHED:
            return f"spec.adapters: {adapter.url} is not a url of {', '.join(urls.CACHED)}"
    return None


def _fault_of_args(model: Model) -> str | None:
    args, env = model.engine.redefined(model.launch), model.engine.moved(model.launch, model.spec.env)
    for field, names_set in (("args", args), ("env", env)):
        if names_set:
            return f"spec.{field} sets {', '.join(names_set)}: remove it, or requests would not reach the model"
    return None


def _fault_of_labels(model: Model) -> str | None:
    """The gateway gets them all, as a request may choose by any of them."""
    number = len(model.labels)
    if number > MOST_LABELS:
        return f"metadata.labels: {number} with those of the features, and the gateway takes {MOST_LABELS}: remove some"
    if sum(len(key) + len(value) for key, value in model.labels.items()) > MOST_LABEL_CHARACTERS:
        return f"metadata.labels: the gateway takes {MOST_LABEL_CHARACTERS} characters, and there are more: remove some"
    return None
