"""Resolve: a single pass that parses and checks a Model and its observed state. Pure."""

from __future__ import annotations

import re

import msgspec

from slipway.apis.kubeai import names, system_yaml, urls
from slipway.apis.kubeai.engines import ENGINES, located, refusal
from slipway.apis.kubeai.models import access
from slipway.apis.kubeai.settings import InvalidConfigError, SystemConfig
from slipway.apis.kubeai.types import ModelSpec
from slipway.apis.kubeai.urls import InvalidUrlError, ModelUrl
from slipway.engines.arguments import configured
from slipway.engines.definition.engine import ANYWHERE, Engine, Launch, Task
from slipway.engines.definition.retired import Renewal
from slipway.kube.objects import CONFIG_MAP, DEPLOYMENT, JOB, Object, key, labels, uid
from slipway.serving.containers.diagnosis import WAITING, Diagnosis, Limits, diagnose
from slipway.serving.contract.api import InvalidSpecError, Reference, World
from slipway.serving.contract.settings import Settings
from slipway.serving.pods.job import job_of, pods_of
from slipway.serving.routing.route import MOST_LABEL_CHARACTERS, MOST_LABELS
from slipway.spelling import unknown
from slipway.weights.jobs.loads import Run
from slipway.weights.place import Place, claim_reference

CONFIG_NAME, CONFIG_KEY = "slipway-kubeai", "system.yaml"
CONTAINER, PORT = "server", 8000
START_SECONDS = 10800
"""Startup limit in seconds for pods of an unknown engine. It is about the longest limit of the known engines."""
TASKS: dict[str, Task] = {
    "TextGeneration": "generate",
    "TextEmbedding": "embed",
    "Reranking": "rerank",
    "SpeechToText": "transcribe",
}
LABEL_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A Model that can be served, with its parsed URL, its engine and the system configuration."""

    name: str
    namespace: str
    resource: Object
    spec: ModelSpec
    url: ModelUrl
    engine: Engine
    config: SystemConfig
    place: Place | None
    """Location of the Model's weights in a cache, or None without a cache."""
    settings: Settings
    controller_key: str
    """The controller's public key, see :class:`slipway.serving.contract.api.World`."""

    @property
    def labels(self) -> dict[str, str]:
        """The Model's own labels, with feature labels that match its spec."""
        own = {name: value for name, value in labels(self.resource).items() if not name.startswith(names.FEATURE)}
        return own | {f"{names.FEATURE}{feature}": "true" for feature in self.spec.features}

    @property
    def replicas(self) -> int:
        """The requested number of replicas, within the Model's bounds. If autoscaling is disabled, the bounds do not
        apply. A missing number counts as 0."""
        desired = self.spec.replicas
        if self.spec.autoscaling_disabled:
            return desired or 0
        upper = desired if desired is None or self.spec.max_replicas is None else min(desired, self.spec.max_replicas)
        return max(upper or 0, self.spec.min_replicas)

    @property
    def renewal(self) -> Renewal:
        """The author's engine arguments, in which flags that the engine's default image no longer supports are removed
        or replaced. Unchanged if the author or the operator sets another image."""
        spec = self.spec
        try:
            image = spec.image or self.config.image(spec.engine, self.config.resource_profile(spec.resource_profile))
        except InvalidSpecError:
            image = ""
        return self.engine.renewed(spec.args, author_image=spec.image, image=image)

    @property
    def launch(self) -> Launch:
        return Launch(
            weights=access.weights(self.url, self.engine.reads, self.place.path if self.place else ""),
            served_name=self.name,
            port=PORT,
            tasks=frozenset(TASKS[feature] for feature in self.spec.features),
            adapters=bool(self.spec.adapters),
            extra_args=self.renewal.args,
            hub_mirror=self.settings.hugging_face_endpoint,
            bind=self.settings.engine_address or ANYWHERE[0],
        )


class ModelView(msgspec.Struct, frozen=True, kw_only=True):
    """A Model, which may be invalid, with its observed state."""

    world: World
    name: str
    model: Model | InvalidSpecError
    config: SystemConfig
    """The system configuration, or the defaults if it is invalid."""
    place: Place | None
    """Location of the Model's weights in its current or earlier cache. None if it has none, or if the weights have been
    removed."""
    claim: Object | None
    """The existing claim of ``place``."""
    deployment: Object | None
    pods: list[Object]
    """The pods of the Deployment."""
    load: Run
    """State of the Job that loads the Model's current URL into the cache."""
    eviction: Run
    """State of the Job that removes the weights from the cache."""
    diagnosis: Diagnosis
    """Reason why the pods are not ready."""

    @property
    def failing(self) -> bool:
        """Whether no replica is ready, and none will become ready without a change by the author or the operator. A pod
        that cannot be scheduled does not count, because a node or a claim may be added."""
        if self.deployment and self.deployment.get("status", {}).get("readyReplicas"):
            return False
        failure = self.diagnosis.failure
        return failure is not None and failure.reason not in WAITING

    def valid(self) -> Model:
        """Return the Model. Raise InvalidSpecError with the reason if the Model cannot be served."""
        if isinstance(self.model, InvalidSpecError):
            raise self.model
        return self.model


def resolve(world: World) -> ModelView:
    resource = world.resource
    name, config = resource["metadata"]["name"], _config(world)
    deployment = world.child(DEPLOYMENT, names.workload_name(name))
    pods = [pod for pod in world.pods if not job_of(pod)]
    place = place_of(resource)
    return ModelView(
        world=world,
        name=name,
        model=_model(world, config, place),
        config=system_yaml.parse("") if isinstance(config, InvalidConfigError) else config,
        place=place,
        claim=world.get(place.claim) if place else None,
        deployment=deployment,
        pods=pods,
        load=_run(world, names.load_name(name), url_of(resource)),
        eviction=_run(world, names.evict_name(name)),
        diagnosis=_diagnosis(world, deployment, pods),
    )


def references(resource: Object, operator: Settings) -> tuple[Reference, ...]:
    """Return references to the system configuration and, if the Model has one, to the claim with its cache."""
    place = place_of(resource)
    return (_config_reference(operator), place.claim) if place else (_config_reference(operator),)


def profile_of(resource: Object) -> str:
    """Return the cache profile of a Model, or its earlier profile while the weights may still be in that cache. Return
    an empty string if the Model has neither."""
    recorded = (resource["metadata"].get("annotations") or {}).get(names.PROFILE, "")
    profile: str = resource.get("spec", {}).get("cacheProfile") or recorded
    return profile


def place_of(resource: Object) -> Place | None:
    """Return the Model's own directory in its current or earlier cache, or None if the Model has neither."""
    metadata, profile = resource["metadata"], profile_of(resource)
    if not profile:
        return None
    return Place(
        claim=claim_reference(metadata["namespace"], names.claim_name(profile)),
        prefix=names.LOADED,
        root=f"/{names.ROOT}",
        folder=f"{metadata['name']}-{uid(resource)}",
        entry=metadata["name"],
        inside=names.ROOT,
    )


def url_of(resource: Object) -> str:
    """Return the Model's URL without options. The URL may be invalid."""
    url: str = resource["spec"]["url"]
    return url.partition("?")[0]


def only_config(config_map: Object) -> Object | None:
    """Return the fields of the system configuration that are cached. Return None for other ConfigMaps of the system
    namespace, because the autoscaler's averages may use a megabyte."""
    metadata = config_map["metadata"]
    if metadata["name"] != CONFIG_NAME:
        return None
    metadata_fields = {field: metadata.get(field, "") for field in ("name", "namespace", "uid", "resourceVersion")}
    text = (config_map.get("data") or {}).get(CONFIG_KEY, "")
    return {"kind": CONFIG_MAP.kind, "metadata": metadata_fields, "data": {CONFIG_KEY: text}}


def _config_reference(operator: Settings) -> Reference:
    return Reference(CONFIG_MAP, operator.system_namespace, CONFIG_NAME)


def _config(world: World) -> SystemConfig | InvalidConfigError:
    """Return the system configuration, or the error if it is invalid. Return the defaults if the ConfigMap does not
    exist."""
    config_map = world.get(_config_reference(world.settings)) or {}
    try:
        return system_yaml.parse((config_map.get("data") or {}).get(CONFIG_KEY, ""))
    except InvalidConfigError as error:
        return error


def _model(world: World, config: SystemConfig | InvalidConfigError, place: Place | None) -> Model | InvalidSpecError:
    if _engine(world.resource) is None:
        text = unknown("engine", str(world.resource["spec"].get("engine", "")), ENGINES)
        return InvalidSpecError("InvalidSpec", f"spec.engine: {text}")
    try:
        spec = msgspec.convert(world.resource["spec"], ModelSpec)
        url = urls.parse(spec.url)
    except InvalidUrlError as error:
        return InvalidSpecError("InvalidSpec", f"spec.url: {error}")
    except msgspec.ValidationError as error:
        return InvalidSpecError("InvalidSpec", str(error))
    if isinstance(config, InvalidConfigError):
        return config
    engine = ENGINES[spec.engine]
    namespace, name = key(world.resource)
    model = Model(
        name=name,
        namespace=namespace,
        resource=world.resource,
        spec=spec,
        url=located(url, engine),
        engine=engine,
        config=config,
        place=place if spec.cache_profile else None,
        settings=world.settings,
        controller_key=world.controller_key,
    )
    fault = _fault(model)
    return InvalidSpecError("InvalidSpec", fault) if fault else model


def _run(world: World, name: str, word: str = "") -> Run:
    """Return the state of the Job ``name``. A Job without ``word`` among the arguments of its containers counts as
    missing: it is for an earlier URL."""
    job = world.child(JOB, name)
    pod = (job or {}).get("spec", {}).get("template", {}).get("spec", {})
    fits = not word or any(word in container.get("args", ()) for container in pod.get("containers", ()))
    own_job = job if fits else None
    return Run(name=name, job=own_job, pods=pods_of(own_job, world.pods))


def _engine(resource: Object) -> Engine | None:
    """Return the engine that the spec names, or None if Slipway does not support the engine. KubeAI's own CRD may be
    newer than Slipway."""
    return ENGINES.get(str(resource["spec"].get("engine")))


def _diagnosis(world: World, deployment: Object | None, pods: list[Object]) -> Diagnosis:
    engine = _engine(world.resource)
    limits = Limits(
        startup_seconds=engine.probes.startup.failure_window_seconds if engine else START_SECONDS,
        unschedulable_grace_seconds=world.settings.unschedulable_grace_seconds,
        container=CONTAINER,
    )
    return diagnose(deployment, pods, limits, world.now, engine.explain if engine else lambda _log: None)


def _fault(model: Model) -> str | None:
    """Return a description of a contradiction within the spec, or None. Engines report such contradictions only after
    minutes, or never."""
    refused = refusal(model.url, model.engine, cached=bool(model.spec.cache_profile))
    if refused:
        return f"spec.url: {refused}"
    return _fault_of_features(model) or _fault_of_adapters(model) or _fault_of_args(model) or _fault_of_labels(model)


def _fault_of_features(model: Model) -> str | None:
    spec, engine = model.spec, model.engine
    able = [feature for feature, task in TASKS.items() if task in engine.tasks]
    unable = [feature for feature in spec.features if feature not in able]
    if unable:
        return f"spec.features: the engine {spec.engine} supports {', '.join(able)}, not {', '.join(unable)}"
    others = [feature for feature in spec.features if TASKS[feature] != "generate"]
    if engine.generates_alone and others and len(others) < len(spec.features):
        text = f"{spec.engine} cannot combine text generation with other features"
        return f"spec.features: {text}. Create a second Model for {', '.join(others)}"
    return None


def _fault_of_adapters(model: Model) -> str | None:
    spec = model.spec
    if spec.adapters and not model.engine.adapters:
        advice = "Use VLLM, or weights with the adapter merged in"
        if spec.engine == "LlamaCpp":
            advice += ", or load one at startup with --lora FILE in spec.args"
        return f"spec.adapters: the engine {spec.engine} cannot load adapters at runtime. {advice}"
    names_used: set[str] = set()
    for adapter in spec.adapters:
        if adapter.name in names_used:
            return f"spec.adapters: the name {adapter.name} occurs twice"
        names_used.add(adapter.name)
        if not LABEL_NAME.fullmatch(adapter.name):
            return f"spec.adapters: the name {adapter.name!r} must begin and end with a letter or digit"
        try:
            scheme = urls.parse(adapter.url).scheme
        except InvalidUrlError as error:
            return f"spec.adapters: {error}"
        if scheme not in urls.CACHED:
            return f"spec.adapters: {adapter.url} must begin with one of {', '.join(urls.CACHED)}"
    return None


def _fault_of_args(model: Model) -> str | None:
    engine, launch = model.engine, model.launch
    args, env = engine.conflicting_args(launch), engine.conflicting_env(launch, model.spec.env)
    config = configured(launch.extra_args, {file.path: file.content for file in model.spec.files})
    in_files = (*engine.seals({}, config), *engine.conflicting_settings(launch, config))
    for field, names_set in (("args", args), ("env", env), ("files", in_files)):
        if names_set:
            return f"spec.{field} sets {', '.join(names_set)}. Remove it, because requests would not reach the model"
    return None


def _fault_of_labels(model: Model) -> str | None:
    """Return a description of the problem with the Model's labels, or None. The gateway gets all labels, because a
    request may select a model by any label."""
    number = len(model.labels)
    if number > MOST_LABELS:
        return f"metadata.labels: {number} with those of the features exceed the limit of {MOST_LABELS}. Remove some"
    if sum(len(key) + len(value) for key, value in model.labels.items()) > MOST_LABEL_CHARACTERS:
        return f"metadata.labels: they exceed the limit of {MOST_LABEL_CHARACTERS} characters. Remove some"
    return None
