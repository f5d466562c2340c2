"""Krypton's two pure functions: a Model becomes its children, and what became of them becomes its status."""

from __future__ import annotations

import re

import msgspec

from slipway.apis.krypton.types import MODEL, ModelSpec
from slipway.artifacts import huggingface
from slipway.artifacts.huggingface import HuggingFaceFile
from slipway.engines.engine import Launch
from slipway.engines.llamacpp import LLAMACPP
from slipway.kube.crd import CustomResource
from slipway.kube.objects import (
    DEPLOYMENT,
    NETWORK_POLICY,
    POD_DISRUPTION_BUDGET,
    SERVICE,
    SERVICE_ACCOUNT,
    Kind,
    Object,
    created_unix,
    generation,
)
from slipway.serving.diagnosis import Limits, diagnose
from slipway.serving.freedoms import Freedom, freedoms
from slipway.serving.network import ingress
from slipway.serving.plan import Invalid, Plan, Reference, Refusal, Verdict, World
from slipway.serving.policies import disruption_budget
from slipway.serving.report import report, routed
from slipway.serving.route import Route
from slipway.serving.scaling import Scaling
from slipway.serving.server import Address, Container, Mount, Probe, Probes, Scale, Server, variables
from slipway.serving.settings import Settings
from slipway.serving.times import parse_duration
from slipway.serving.volumes import scratch
from slipway.serving.workload import UNPRIVILEGED, restricted, workload

MODEL_LABEL = "krypton.ai/model"
"""Selects a model's pods, as the original does: its Deployments can be taken over, though a selector cannot change."""
SERVICE_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
DEFAULT_STARTUP_SECONDS = 600
CACHE_VOLUME = "model-cache"
CONTAINER = "llama-server"
IMAGE = "ghcr.io/ggml-org/llama.cpp:server-v0.5.0"


class Krypton:
    """See :class:`slipway.serving.plan.Api`."""

    name = "krypton"
    resources: tuple[CustomResource, ...] = (MODEL,)
    child_kinds: tuple[Kind, ...] = (SERVICE_ACCOUNT, SERVICE, DEPLOYMENT, POD_DISRUPTION_BUDGET, NETWORK_POLICY)
    shared_kinds: tuple[Kind, ...] = ()
    user_kinds: tuple[Kind, ...] = ()
    foreign_finalizers = frozenset({"krypton.ai/cleanup"})
    pod_labels = frozenset({MODEL_LABEL})

    def references(self, _resource: Object, _settings: Settings) -> tuple[Reference, ...]:
        return ()

    def granted(self, world: World, _plan: Plan) -> frozenset[Freedom]:
        """Its image alone: an account that is called as the Model's own would be is none of the operator's."""
        plain = _server(world, ModelSpec(source=read_spec(world.resource).source))
        return freedoms(workload(msgspec.structs.replace(plain, own_account=False), Scale(1), ()))

    def finish(self, _world: World) -> Plan | None:
        return None

    def scaling(self, _world: World) -> Scaling | None:
        return None

    def concerned(self, _old: Object | None, _new: Object | None) -> None:
        return None

    def plan(self, world: World) -> Plan:
        spec = read_spec(world.resource)
        server = _server(world, spec)
        address = Address(server.name, server.selector, route(world.resource, spec))
        scale = Scale(spec.min_replicas)
        guards = ingress(server, world.settings, policed=world.policed)
        budget = disruption_budget(server, scale, world.settings)
        return Plan(children=(*guards, *workload(server, scale, (address,)), *budget))

    def status(self, world: World, refusal: Refusal | None) -> Verdict:
        metadata = world.resource["metadata"]
        name, namespace = metadata["name"], metadata["namespace"]
        settings = world.settings
        limits = Limits(
            startup_seconds=_startup_seconds_or_default(world.resource),
            unschedulable_grace_seconds=settings.unschedulable_grace_seconds,
            drain_seconds=settings.drain_seconds,
            container=CONTAINER,
        )
        deployment = world.children.get(("Deployment", name))
        diagnosis = diagnose(deployment, world.pods, limits, world.now, LLAMACPP.explain)
        told = report(
            deployment,
            diagnosis,
            refusal,
            (routed(f"{namespace}/{name}", (name,), world.routed),),
            generation(world.resource),
        )
        status = {
            "phase": told.phase,
            "replicas": told.replicas,
            "readyReplicas": told.ready_replicas,
            "url": f"http://{name}.{namespace}.svc:{world.resource['spec'].get('port', 8080)}/v1",
            "observedGeneration": generation(world.resource),
            "conditions": [msgspec.to_builtins(condition) for condition in told.conditions],
        }
        return Verdict(status, diagnosis.recheck_seconds)


def _server(world: World, spec: ModelSpec) -> Server:
    metadata, settings = world.resource["metadata"], world.settings
    launch = Launch(
        weights=_weights(spec),
        served_name=metadata["name"],
        port=spec.port,
        extra_args=tuple(spec.args or ()),
        hub_mirror=settings.hugging_face_endpoint,
    )
    redefined = LLAMACPP.redefined(launch)
    if redefined:
        raise Invalid("InvalidSpec", f"spec.args sets {', '.join(redefined)}, which slipway sets itself; remove it")
    return Server(
        name=metadata["name"],
        namespace=metadata["namespace"],
        labels={MODEL_LABEL: metadata["name"]},
        selector={MODEL_LABEL: metadata["name"]},
        engine=_container(launch, spec, settings),
        port=spec.port,
        probes=_probes(spec),
        drain_seconds=settings.drain_seconds,
        volumes=(scratch(CACHE_VOLUME, "20Gi"),),
        image_pull_secrets=tuple(secret.name for secret in spec.image_pull_secrets or () if secret.name),
        service_account=spec.service_account_name or "",
        own_account=True,
        security=restricted(settings.user(settings.run_as_user)),
    )


def _container(launch: Launch, spec: ModelSpec, settings: Settings) -> Container:
    env, env_from = tuple(spec.env or ()), tuple(spec.env_from or ())
    own_env = (*variables({**settings.home(), **LLAMACPP.env(launch)}), *huggingface.token(env, env_from))
    given = {variable["name"] for variable in env}
    return Container(
        name=CONTAINER,
        image=spec.image or settings.images.get(LLAMACPP.name, IMAGE),
        image_pull_policy=spec.image_pull_policy,
        args=LLAMACPP.args(launch),
        env=(*env, *(variable for variable in own_env if variable["name"] not in given)),
        env_from=env_from,
        resources=spec.resources or {},
        mounts=(Mount(CACHE_VOLUME, LLAMACPP.cache_path),),
        security=UNPRIVILEGED,
    )


def _probes(spec: ModelSpec) -> Probes:
    path = LLAMACPP.probes.readiness.path
    return Probes(
        startup=Probe(path=path, period=1, timeout=1, failures=_startup_seconds(spec)),
        readiness=Probe(path=path, period=5, timeout=3, failures=3),
        liveness=Probe(path=path, period=20, timeout=5, failures=6),
    )


def read_spec(resource: Object) -> ModelSpec:
    """Raises Invalid where the resource breaks a rule that the CustomResourceDefinition cannot state."""
    name = resource["metadata"]["name"]
    if not SERVICE_NAME.fullmatch(name):
        raise Invalid("InvalidSpec", f"{name!r} cannot name a Service: at most 63 of a-z, 0-9 and -, a letter first")
    try:
        spec = msgspec.convert(resource["spec"], ModelSpec)
    except msgspec.ValidationError as error:
        raise Invalid("InvalidSpec", str(error)) from error
    _startup_seconds(spec)
    fault = _weights(spec).fault()
    if fault:
        raise Invalid("InvalidSpec", fault)
    return spec


def route(resource: Object, spec: ModelSpec) -> Route:
    return Route(
        models=(resource["metadata"]["name"],),
        created=created_unix(resource),
        owned_by="krypton",
        source=str(_weights(spec)),
    )


def _weights(spec: ModelSpec) -> HuggingFaceFile:
    return HuggingFaceFile(spec.source.huggingface, spec.source.file)


def _startup_seconds(spec: ModelSpec) -> int:
    try:
        seconds = parse_duration(spec.startup_timeout)
    except ValueError as error:
        raise Invalid("InvalidSpec", f"spec.startupTimeout: {error}") from error
    # Typed Go clients cannot leave a duration out: their zero value means the default.
    return max(1, round(seconds)) if seconds else DEFAULT_STARTUP_SECONDS


def _startup_seconds_or_default(resource: Object) -> int:
    try:
        return _startup_seconds(read_spec(resource))
    except Invalid:
        return DEFAULT_STARTUP_SECONDS
