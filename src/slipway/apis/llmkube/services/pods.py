"""The pods of an InferenceService, as a ModelServer, and the Service in front of them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from slipway.apis.llmkube import names
from slipway.apis.llmkube.models import usage
from slipway.apis.llmkube.models.loaders import hub_token, loader
from slipway.apis.llmkube.models.placement import Placement
from slipway.apis.llmkube.rules import loras
from slipway.apis.llmkube.rules.hardware import affinity
from slipway.apis.llmkube.rules.scheduling import class_name
from slipway.apis.llmkube.services import autoscaling
from slipway.apis.llmkube.services.service import Service, mode, quantity
from slipway.apis.llmkube.settings import llmkube
from slipway.artifacts.locations.redaction import redact_url
from slipway.kube.objects import MANAGED_BY, Object, created_unix
from slipway.kube.values.names import fitting, label_value
from slipway.serving.containers import env, volumes
from slipway.serving.contract.api import InvalidSpecError, World
from slipway.serving.pods.loader import build_adapter_loader, scratch
from slipway.serving.pods.policies import UNMOVED
from slipway.serving.pods.server import (
    Container,
    ModelServer,
    Mount,
    Probe,
    Probes,
    Scale,
    ServiceSpec,
    failure_window_seconds,
    variables,
)
from slipway.serving.pods.workload import CONFINED, MANAGER, UNPRIVILEGED, restricted
from slipway.serving.routing.route import Route
from slipway.serving.wire import agent
from slipway.serving.wire.agent import AdapterSet
from slipway.weights.sources.source import on_node

POD_SECURITY: Object = {
    **CONFINED,
    "fsGroup": names.GROUP_ID,
    "fsGroupChangePolicy": "OnRootMismatch",
}
"""Default security context of pods. The kubelet sets the group of a cache's files only once, and not at each start."""
START_SECONDS = 1800
FIRST_FREE_PORT = 1024
"""The first port on which any process may listen."""
HISTORY = 10
LOADER_VOLUME = "slipway-adapters"
"""Volume of the adapter loader, with a name that an author is unlikely to use."""
DOWNLOADS, SHARED_MEMORY = "downloads", "dshm"
FEATURES = {"chat": "TextGeneration", "embedding": "TextEmbedding", "rerank": "Reranking"}
OWN_LABELS = frozenset({"app", names.SERVICE_LABEL, names.MODEL_LABEL, names.RUNTIME_LABEL, MANAGED_BY})
"""Labels of all pods, which ``podLabels`` cannot override."""
SERVICE_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


def workload_name(service: str) -> str:
    """Return the name of a service's Deployment and of the objects around it: the name of the service, shortened to a
    valid label value."""
    return label_value(service)


def service_name(service: str) -> str:
    """Return the name of the Service for an InferenceService. It is the original's name, with hyphens instead of dots,
    shortened with a digest if that is not valid."""
    plain = service.replace(".", "-")
    if SERVICE_NAME.fullmatch(plain):
        return plain
    return fitting(plain if plain[:1].isalpha() else f"isvc_{plain}")


def selector(service: str) -> dict[str, str]:
    """Return the labels that select the pods of a service. The name of the Model is not included, so that a service can
    switch to another Model."""
    name = label_value(service)
    return {"app": name, names.SERVICE_LABEL: name}


def server(service: Service, annotations: Mapping[str, str] = {}) -> ModelServer:
    """Return the description of a service's pods. ``annotations`` are additional annotations of the pods. Raise
    InvalidSpecError if a quantity is invalid, a volume is not allowed or there is no image."""
    spec = service.spec
    own = selector(service.name)
    labels = {
        **own,
        names.MODEL_LABEL: label_value(spec.model_ref),
        names.RUNTIME_LABEL: spec.runtime,
    }
    unmoved = UNMOVED if spec.eviction_protection else {}
    return ModelServer(
        name=workload_name(service.name),
        namespace=service.namespace,
        labels=labels,
        selector=own,
        pod_labels={**spec.pod_labels, **labels, MANAGED_BY: MANAGER},
        pod_annotations={**unmoved, **annotations, **spec.pod_annotations, **_uses(service)},
        engine=_engine(service),
        port=service.port,
        probes=_probes(service),
        probe_overrides=_probe_overrides(service),
        drain=service.engine.drain(service.settings.drain_seconds, service.launch.bind),
        init_containers=_before(service),
        sidecars=(_loader(service),) if service.has_adapter_loader else (),
        volumes=_volumes(service),
        image_pull_secrets=tuple(secret["name"] for secret in spec.image_pull_secrets if secret.get("name")),
        device_groups=service.settings.device_groups,
        security=_pod_security(service) if spec.pod_security_context is None else CONFINED | spec.pod_security_context,
        scheduling=_scheduling(service),
    )


def _uses(service: Service) -> Object:
    return usage.annotation(used for place in _places(service) for used in place.used)


def _engine(service: Service) -> Container:
    spec, engine, launch = service.spec, service.engine, service.launch
    args, environment, resources = engine.args(launch), _env(service), _resources(service)
    chosen = image(service)
    container = {"image": chosen, "args": args, "env": environment, "resources": resources}
    return Container(
        name=engine.container,
        image=chosen,
        command=spec.command or engine.command,
        args=args,
        env=(*environment, *engine.named_devices(container)),
        resources=resources,
        mounts=_mounts(service),
        further_mounts=spec.extra_volume_mounts,
        security=_security(service) if spec.security_context is None else _own_security(service, spec.security_context),
    )


def _pod_security(service: Service) -> Object:
    return restricted(None) if service.settings.assigned_ids else POD_SECURITY


def _security(service: Service) -> Object:
    """Return a security context for the restricted Pod Security Standard. An engine with a port below 1024, such as
    TGI, gets the capability to listen on this port."""
    if service.port >= FIRST_FREE_PORT:
        return UNPRIVILEGED
    return {**UNPRIVILEGED, "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}}


def _own_security(service: Service, security: Object) -> Object:
    """Return the author's security context. Unless the author sets the field or the operator allows privileged pods,
    privilege escalation is forbidden, which Kubernetes would otherwise allow."""
    return security if service.settings.authors.privileged else {"allowPrivilegeEscalation": False, **security}


def _before(service: Service) -> tuple[Container, ...]:
    """Return the init containers that download the weights. The result is empty if the pods get the weights in another
    way."""
    named = zip(("model-downloader", "draft-downloader"), _places(service), strict=False)
    return tuple(loader(place.loader, name, volume=place.volumes[0]) for name, place in named if place.loader)


def _loader(service: Service) -> Container:
    """Build the container that makes the engine load adapters. The files of all adapters are already in the engine's
    container."""
    container = Container(name=agent.CONTAINER, image=service.settings.loader_image)
    kind = "" if service.spec.runtime == "vllm" else service.spec.runtime
    size, key = service.settings.adapters.size, service.controller_key
    return build_adapter_loader(container, service.port, size, key, kind=kind, volume=LOADER_VOLUME)


def adapters(service: Service) -> AdapterSet:
    """Return the adapters that the loaders in the service's pods load."""
    return loras.adapters(service.name, service.spec.runtime, service.loras, service.engine.container)


def image(service: Service) -> str:
    """Return the image of the engine: the user's, or else the default. Raise InvalidSpecError with the reason NoImage
    if there is none."""
    reference = service.spec.image or service.own_image
    if not reference:
        raise InvalidSpecError("NoImage", f"spec.image: the runtime {service.spec.runtime} has no default image")
    return reference


def _env(service: Service) -> tuple[Object, ...]:
    """Return the environment variables of the engine: its own, a token for the Hub, and the user's, which take
    precedence."""
    user_env = service.spec.env
    home = service.settings.home()
    own = (*variables({**home, **service.engine.env(service.launch)}), *_token(service))
    return (*env.without(own, user_env), *user_env)


def _token(service: Service) -> tuple[Object, ...]:
    """Return an environment variable with a token for the Hub, from the Secret that the service names, or else from the
    Secret of the Model or the namespace. Only the first Secret must exist, because most repositories need no token.
    Without it, the result is empty for an engine that downloads no weights."""
    spec, variable = service.spec, service.engine.token
    named = {
        "vllm": spec.vllm_config.hf_token_secret_ref,
        "tgi": spec.tgi_config.hf_token_secret_ref,
        "sglang": spec.sglang_config.hf_token_secret_ref,
        "personaplex": spec.persona_plex_config.hf_token_secret_ref,
    }
    if own := named.get(spec.runtime):
        return ({"name": variable, "valueFrom": {"secretKeyRef": own}},)
    if service.placed.way != "engine" and spec.runtime != "personaplex":
        return ()
    return hub_token(service.model, service.settings, variable)


def _resources(service: Service) -> Object:
    """Return the resources of the engine's container. Memory is requested but not limited, as in the original, because
    a model's need is not known precisely enough."""
    resources = service.spec.resources
    memory = ("hostMemory", resources.host_memory) if resources.host_memory else ("memory", resources.memory)
    fields = {
        "cpu": ("cpu", resources.cpu),
        "memory": memory,
        "ephemeral-storage": ("ephemeralStorage", resources.ephemeral_storage),
    }
    requests = {name: quantity(f"resources.{field}", text) for name, (field, text) in fields.items() if text}
    disk = {name: size for name, size in requests.items() if name == "ephemeral-storage"}
    limits = {**disk, **service.accelerators.limits}
    claims = [{"name": claim["name"]} for claim in service.accelerators.claims]
    requirements = {"requests": requests, "limits": limits, "claims": claims}
    return {part: amounts for part, amounts in requirements.items() if amounts}


def asks_for(service: Service, resource: str) -> bool:
    """Whether the service's pods request ``resource``, which is ``cpu`` or ``memory``."""
    resources = service.spec.resources
    return bool({"cpu": resources.cpu, "memory": resources.host_memory or resources.memory}.get(resource))


def _places(service: Service) -> tuple[Placement, ...]:
    return (service.placed, service.draft) if service.draft else (service.placed,)


def _volumes(service: Service) -> tuple[Object, ...]:
    for volume in service.spec.extra_volumes:
        _check_place(service, volume)
    pod_volumes = [volume for place in _places(service) for volume in place.volumes]
    pod_volumes += [volume for volume, _mount in _folders(service)]
    pod_volumes += [scratch(service.settings.adapters.size, LOADER_VOLUME)] if service.has_adapter_loader else []
    # The model and its draft may be on the same volume.
    return (*{volume["name"]: volume for volume in pod_volumes}.values(), *service.spec.extra_volumes)


def _check_place(service: Service, volume: Object) -> None:
    """Raise InvalidSpecError if a volume has a node path that the operator does not allow, or that pods could write to.
    A symbolic link that pods create there could lead readers anywhere on the node."""
    path = (volume.get("hostPath") or {}).get("path")
    if path is None:
        return
    if not on_node(path, service.settings.sources):
        text = f"spec.extraVolumes: {path} is not in a node directory that the operator allows"
        raise InvalidSpecError("SourceNotAllowed", text)
    mounts = (mount for mount in service.spec.extra_volume_mounts if mount.get("name") == volume["name"])
    if not all(mount.get("readOnly") for mount in mounts):
        text = f"spec.extraVolumeMounts: {volume['name']} is a node directory, so it must be readOnly"
        raise InvalidSpecError("SourceNotAllowed", text)


def _mounts(service: Service) -> tuple[Mount, ...]:
    mounts = [mount for place in _places(service) for mount in place.mounts]
    return tuple(dict.fromkeys((*mounts, *(mount for _volume, mount in _folders(service)))))


def _folders(service: Service) -> tuple[tuple[Object, Mount], ...]:
    """Return the volumes and mounts of the empty directories that the engine needs, except for paths where the user
    mounts a volume."""
    engine, folders = service.engine, []
    if engine.shared_memory:
        folders.append((volumes.shared_memory(SHARED_MEMORY), Mount(SHARED_MEMORY, "/dev/shm")))  # noqa: S108
    if engine.cache_path and service.placed.way == "engine":
        folders.append((volumes.scratch(DOWNLOADS), Mount(DOWNLOADS, engine.cache_path)))
    taken = {str(mount.get("mountPath", "")).rstrip("/") for mount in service.spec.extra_volume_mounts}
    return tuple((volume, mount) for volume, mount in folders if mount.path not in taken)


def _probes(service: Service) -> Probes:
    """Return the original's probes, but with a startup check every second, because a request may be waiting for the new
    replica."""
    engine = service.engine
    defaults = engine.probes
    return Probes(
        startup=Probe(path=defaults.startup.path, period=1, timeout=5, failures=START_SECONDS),
        readiness=Probe(path=defaults.readiness.path, period=10, timeout=5, failures=3),
        liveness=engine.liveness(Probe(path=defaults.liveness.path, period=15, timeout=5, failures=3)),
    )


def startup_seconds(service: Service) -> int:
    """Return the maximum seconds that the engine may take to start."""
    probe = service.spec.probe_overrides.startup
    return START_SECONDS if probe is None else failure_window_seconds(probe)


def _probe_overrides(service: Service) -> dict[str, Object]:
    spec = service.spec.probe_overrides
    overrides = {
        "startupProbe": spec.startup,
        "readinessProbe": spec.readiness,
        "livenessProbe": spec.liveness,
    }
    return {field: probe for field, probe in overrides.items() if probe is not None}


def _scheduling(service: Service) -> Object:
    spec, accelerators = service.spec, service.accelerators
    shared = spec.resources.gpu_sharing.mode == "shared" and accelerators.vendor != "amd"
    nodes = llmkube(service.settings).shared_gpu_nodes if shared else {}
    return {
        "nodeSelector": {**nodes, **spec.node_selector, **(service.pool.nodes if service.pool else {})},
        "resourceClaims": list(accelerators.claims),
        "affinity": affinity(spec, accelerators),
        "tolerations": [
            *(taint for taint in accelerators.tolerations if taint not in spec.tolerations),
            *spec.tolerations,
        ],
        "topologySpreadConstraints": list(spec.topology_spread_constraints),
        "runtimeClassName": spec.runtime_class_name,
        "priorityClassName": spec.priority_class_name or class_name(spec.priority),
    }


def scale(world: World, service: Service) -> Scale:
    """Return the number of replicas, and how they are replaced.

    If pods hold GPUs, old pods are deleted first, because new pods would wait for their GPUs. All pods are then
    replaced at once, or one by one if the pods have a maximum age, or if several replicas must finish their requests.
    Other pods are replaced one by one, with the new pod first. ``surge`` is always set, because the API server's
    defaults would conflict with the other fields of the rollout strategy.
    """
    history = service.spec.revision_history_limit
    spec, gpus = service.spec, service.accelerators.count > 0
    several = (spec.autoscaling.max_replicas if spec.autoscaling else spec.replicas) > 1
    one_by_one = spec.max_pod_lifetime_seconds is not None or (service.waits_for_idle and several)
    return Scale(
        autoscaling.replicas(world, service, workload_name(service.name)),
        surge=0 if gpus else 1,
        recreate=gpus and not one_by_one,
        revision_history_limit=HISTORY if history is None else history,
    )


def address(service: Service, container: Container) -> ServiceSpec:
    """Return the description of the Service through which requests reach the engine. ``container`` is the engine's
    container."""
    endpoint = service.endpoint
    route = Route(
        models=(service.name, *service.further_names),
        created=created_unix(service.resource),
        owned_by="llmkube",
        source=redact_url(service.model.source),
        name=service.name,
        features=(FEATURES[mode(service.spec)],),
        wake_seconds=service.pool.wait_seconds if service.pool else 0,
        paths=service.engine.paths_of(container, service.spec.image, service.spec.command),
    )
    return ServiceSpec(
        service_name(service.name),
        selector(service.name),
        route,
        port=endpoint.port,
        type=endpoint.type,
        node_port=endpoint.node_port if endpoint.type != "ClusterIP" else None,
    )


def endpoint_url(service: Service) -> str:
    path = service.endpoint.path
    host = f"{service_name(service.name)}.{service.namespace}.svc.cluster.local"
    return f"http://{host}:{service.endpoint.port}{path if path.startswith('/') else f'/{path}'}"
