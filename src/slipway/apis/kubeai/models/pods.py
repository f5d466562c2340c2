"""Pods: the ModelServer of a Model, with the names of the original KubeAI, and its Services. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from slipway.apis.kubeai import names, urls
from slipway.apis.kubeai.engines import WITHOUT_SECURITY_CONTEXT
from slipway.apis.kubeai.models import access as reading
from slipway.apis.kubeai.models.resolve import CONTAINER, PORT, Model
from slipway.apis.kubeai.settings import ResourceProfile, SystemConfig
from slipway.apis.kubeai.types import ModelSpec
from slipway.apis.labels import RESERVED
from slipway.artifacts.locations import huggingface
from slipway.kube.objects import MANAGED_BY, Object, created_unix, labels
from slipway.serving.containers import env, volumes
from slipway.serving.contract.settings import Settings
from slipway.serving.pods.loader import ADAPTERS_FOLDER, build_adapter_loader, scratch
from slipway.serving.pods.server import Container, File, ModelServer, Scale, ServiceSpec, variables
from slipway.serving.pods.workload import CONFINED, restricted
from slipway.serving.routing.route import PrefixHash, Route, ScaleTarget
from slipway.serving.wire import agent
from slipway.serving.wire.agent import Adapter, AdapterSet
from slipway.weights.sources.credentials import Access, mounted, of_operator

SLIPWAY_LABELS = (names.ADAPTER_LABEL, agent.SERVING_LABEL)
NAME_LABEL, INSTANCE_LABEL = "app.kubernetes.io/name", "app.kubernetes.io/instance"
OWN_LABELS = frozenset({*names.selector(""), NAME_LABEL, INSTANCE_LABEL, MANAGED_BY})
"""Labels that all pods have, which a Model's own labels cannot override."""
MANAGER = "kubeai"
PORT_ANNOTATION = "model-pod-port"
CACHE = "models"
DOWNLOADS = "downloads"
SHARED_MEMORY = "dshm"


def server(model: Model) -> ModelServer:
    """Return the ModelServer with everything that the Model's pods need. Raise InvalidSpecError for an invalid profile,
    and for a profile or an image that is missing from the system configuration."""
    spec, pods = model.spec, model.config.model_server_pods
    profile = model.config.resource_profile(spec.resource_profile)
    access = _access(model)
    loader = loader_access(model) if spec.adapters else Access()
    volume_names = {volume["name"] for volume in access.volumes}
    return ModelServer(
        name=names.workload_name(model.name),
        namespace=model.namespace,
        labels=names.selector(model.name),
        selector=names.selector(model.name),
        pod_labels=_pod_labels(model),
        pod_annotations={PORT_ANNOTATION: str(PORT)},
        engine=_engine(model, profile, access),
        port=PORT,
        probes=model.engine.probes_of(model.launch),
        drain=model.engine.drain(model.settings.drain_seconds, model.launch.bind),
        sidecars=(_loader(model, loader),) if spec.adapters else (),
        volumes=(*access.volumes, *(volume for volume in loader.volumes if volume["name"] not in volume_names)),
        files=tuple(File(file.path, file.content) for file in spec.files),
        image_pull_secrets=(*(secret.name for secret in pods.image_pull_secrets), *access.image_pull_secrets),
        service_account=pods.service_account_name,
        device_groups=model.settings.device_groups,
        security=pod_security(model.config, model.settings),
        scheduling={
            "nodeSelector": profile.node_selector,
            "resourceClaims": list(profile.dra.in_pod),
            "affinity": profile.affinity,
            "tolerations": list(profile.tolerations),
            "schedulerName": profile.scheduler_name,
            "runtimeClassName": profile.runtime_class_name,
            "priorityClassName": spec.priority_class_name,
        },
        own_patches=tuple(msgspec.to_builtins(patch) for patch in spec.json_patches),
        patches=tuple(msgspec.to_builtins(patch) for patch in pods.json_patches),
        patches_field="jsonPatches",
    )


def _engine(model: Model, profile: ResourceProfile, access: Access) -> Container:
    pods, claims = model.config.model_server_pods, list(profile.dra.in_container)
    sizes = {"requests": profile.requests, "limits": profile.limits, "claims": claims}
    image = model.spec.image or model.config.image(model.spec.engine, profile)
    engine_env = _env(model, {**model.settings.home(), **model.engine.env(model.launch)}, access)
    args, resources = model.engine.args(model.launch), {part: amounts for part, amounts in sizes.items() if amounts}
    engine_env += model.engine.cleared(engine_env, env_from(model), image)
    engine_env += model.engine.named_devices({"image": image, "args": args, "env": engine_env, "resources": resources})
    return Container(
        name=CONTAINER,
        image=image,
        command=model.engine.command,
        args=args,
        env=engine_env,
        env_from=env_from(model),
        resources=resources,
        mounts=access.mounts,
        security={} if model.spec.engine in WITHOUT_SECURITY_CONTEXT else pods.security_context,
    )


def scale(model: Model) -> Scale:
    return Scale(model.replicas, model.config.model_rollouts.surge)


def addresses(model: Model, container: Container, *, failing: bool) -> tuple[ServiceSpec, ...]:
    """Return the Service of the Model, followed by a Service for each adapter. ``container``: the engine's container;
    ``failing``: whether the Model cannot currently become ready."""
    plain = route(model, container, failing=failing)
    return (
        ServiceSpec(names.service_name(model.name), names.selector(model.name), plain),
        *(
            ServiceSpec(
                names.adapter_service_name(model.name, adapter.name),
                names.adapter_selector(model.name, adapter.name),
                msgspec.structs.replace(plain, models=(public,), name=public, source=adapter.url),
            )
            for adapter in model.spec.adapters
            for public in (names.public_name(model.name, adapter.name),)
        ),
    )


def route(model: Model, container: Container, *, failing: bool) -> Route:
    """Return the route by which the gateway sends requests to the Model. ``container``: the engine's container;
    ``failing``: whether the Model cannot currently become ready, so that requests wait less long than for a starting
    Model."""
    spec = model.spec
    scaled = not spec.autoscaling_disabled and not failing
    plain = Route(
        models=(model.name,),
        created=created_unix(model.resource),
        owned_by=spec.owner,
        source=spec.url,
        name=model.name,
        features=tuple(spec.features),
        labels=model.labels,
        scale=ScaleTarget("kubeai.org", "v1", "models", model.name) if scaled else None,
        drop_model_field=not model.engine.reads_model_field,
        paths=model.engine.paths_of(container, spec.image),
    )
    if spec.load_balancing.strategy == "LeastLoad":
        return plain
    hashed = spec.load_balancing.prefix_hash
    chosen = PrefixHash(hashed.mean_load_factor, hashed.prefix_char_length)
    return msgspec.structs.replace(plain, strategy=spec.load_balancing.strategy, prefix_hash=chosen)


def adapters(model: Model) -> AdapterSet:
    """Return the adapters that the loaders must load. The engine also serves an adapter under its public name, so that
    the gateway does not change request bodies."""
    return AdapterSet(
        adapters=tuple(Adapter(names.public_name(model.name, one.name), one.url) for one in model.spec.adapters),
        prefix=names.public_name(model.name, ""),
        label=names.ADAPTER_LABEL,
        container=CONTAINER,
    )


def env_from(model: Model) -> tuple[Object, ...]:
    return tuple(msgspec.to_builtins(source) for source in model.spec.env_from)


def loader_image(config: SystemConfig, settings: Settings) -> str:
    return config.model_loading.image or settings.loader_image


def pod_security(config: SystemConfig, settings: Settings) -> Object:
    """Return the security context of the pods: the defaults, overridden by the fields in the system configuration. The
    defaults contain ``runAsNonRoot`` only if the cluster assigns the user."""
    usual = restricted(None) if settings.assigned_ids else CONFINED
    return usual | config.model_server_pods.pod_security_context


def loader_env(model: Model, access: Access) -> tuple[Object, ...]:
    """Return the environment variables of the loader: the Model's own variables, which may contain the address of a
    bucket, and the variables that the sources need."""
    return _env(model, huggingface.environment(model.settings.hugging_face_endpoint), access)


def loader_options(model: Model) -> tuple[str, ...]:
    """Return the options that restrict the addresses to which the loader connects. The Model's environment variables
    and Secrets may contain addresses of buckets and hubs."""
    settings = model.settings
    return settings.sources.options(guarded=True, by_env=True, mirror=settings.hugging_face_endpoint)


def loader_access(model: Model) -> Access:
    """Return the credentials of the loader in an engine's pod. In addition to what the operator adds to loaders, it
    only gets the credentials for the adapters' sources."""
    schemes = (urls.parse(adapter.url).scheme for adapter in model.spec.adapters)
    return of_operator(model.settings.loader) + reading.credentials(schemes, model.config.secret_names)


def _pod_labels(model: Model) -> dict[str, str]:
    """Return the labels of the pods: the labels of the original KubeAI, and the Model's own labels except those by
    which Services select pods."""
    own = {name: value for name, value in model.labels.items() if name not in RESERVED}
    return own | {
        **names.selector(model.name),
        NAME_LABEL: model.engine.name,
        INSTANCE_LABEL: f"{model.engine.name}-{model.name}",
        MANAGED_BY: MANAGER,
    }


def withheld_labels(resource: Object) -> list[str]:
    """Return the names of the Model's labels that the original KubeAI sets on the pods, but Slipway does not."""
    own = (name for name in labels(resource) if name in RESERVED and name not in OWN_LABELS)
    return sorted(name for name in own if not name.startswith(SLIPWAY_LABELS))


def rightly_labelled(deployment: Object | None) -> Object | None:
    """Return the Deployment, or None if its pods have a reserved label that Slipway no longer sets, so that their
    labels are not kept."""
    template = deployment["spec"].get("template") or {} if deployment else {}
    pod_labels = (template.get("metadata") or {}).get("labels") or {}
    return None if any(name in RESERVED and name not in OWN_LABELS for name in pod_labels) else deployment


def plain(model: Model) -> Model:
    """Return the Model with only its URL, engine, features, adapters and profiles, as if its author had omitted the
    other fields."""
    spec = model.spec
    required = ModelSpec(
        url=spec.url,
        engine=spec.engine,
        features=spec.features,
        adapters=spec.adapters,
        resource_profile=spec.resource_profile,
        cache_profile=spec.cache_profile,
    )
    return msgspec.structs.replace(model, spec=required)


def _env(model: Model, own: Mapping[str, str], access: Access) -> tuple[Object, ...]:
    """Return the environment variables of a container: ``own``, the Model's in the order of their names, and those of
    ``access``. The Model's variables take precedence over both, and those of ``access`` over ``own``."""
    user_env = variables(dict(sorted(model.spec.env.items())))
    own_env = env.without(variables(own), (*user_env, *access.env))
    return (*own_env, *user_env, *env.without(access.env, user_env))


def _access(model: Model) -> Access:
    """Return the volumes and mounts of the engine's container, and the credentials for the scheme of the Model's
    URL."""
    engine, secrets, access = model.engine, model.config.secret_names, Access()
    if engine.shared_memory:
        access += mounted(volumes.shared_memory(SHARED_MEMORY), "/dev/shm")  # noqa: S108 - where engines look for it
    if engine.cache_path:
        access += mounted(volumes.scratch(DOWNLOADS), engine.cache_path)
    if model.spec.adapters:
        access += mounted(scratch(model.settings.adapters.size), ADAPTERS_FOLDER, read_only=True)
    if model.place:
        access += model.place.access(CACHE, read_only=True)
    return access + reading.credentials((model.url.scheme,), secrets) + reading.volume(model.url, secrets)


def _loader(model: Model, access: Access) -> Container:
    """Build the container that downloads adapters and makes the engine load them when the controller requests that."""
    container = Container(
        name=agent.CONTAINER,
        image=loader_image(model.config, model.settings),
        args=loader_options(model),
        env=loader_env(model, access),
        env_from=env_from(model),
        mounts=access.mounts,
    )
    return build_adapter_loader(container, PORT, model.settings.adapters.size, model.controller_key)
