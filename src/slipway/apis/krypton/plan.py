"""The children of a Model: its Deployment, and the objects around it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from slipway.apis.krypton.resolve import Model, ModelView
from slipway.apis.krypton.types import ModelSpec
from slipway.apis.sealed import refuse_sealed
from slipway.engines.definition.engine import ANYWHERE, Launch
from slipway.engines.definition.retired import Renewal
from slipway.engines.programs.llamacpp import LLAMACPP
from slipway.kube.objects import created_unix
from slipway.serving.containers.env import without
from slipway.serving.containers.freedoms import Freedom, freedoms
from slipway.serving.containers.volumes import scratch
from slipway.serving.contract.api import InvalidSpecError, Plan
from slipway.serving.contract.settings import Settings
from slipway.serving.pods.network import ingress
from slipway.serving.pods.policies import disruption_budget
from slipway.serving.pods.server import Container, ModelServer, Mount, Probe, Probes, Scale, ServiceSpec, variables
from slipway.serving.pods.workload import UNPRIVILEGED, restricted, workload
from slipway.serving.routing.route import Route
from slipway.weights.sources.credentials import renamed_token

MODEL_LABEL = "krypton.ai/model"
"""Label that selects a model's pods. It is the original's label, so that Slipway can take over the original's
Deployments, whose selectors are immutable."""
CACHE_VOLUME = "model-cache"


def plan(view: ModelView) -> Plan:
    """Return the Model's children. Raise InvalidSpecError if the Model cannot be served."""
    model, world = view.served(), view.world
    server, scale = _server(model, world.settings), Scale(model.spec.min_replicas)
    route = Route(
        models=(model.name,),
        created=created_unix(world.resource),
        owned_by="krypton",
        source=str(model.weights),
        paths=LLAMACPP.paths_of(server.engine, model.spec.image),
    )
    bundle = workload(server, scale, (ServiceSpec(server.name, server.selector, route),))
    refuse_sealed(bundle.deployment, LLAMACPP.container, LLAMACPP)
    guards = ingress(server, world.settings, policed=world.has_foreign_policies)
    return Plan(children=(*guards, *bundle.children, *disruption_budget(server, scale, world.settings)))


def granted(view: ModelView, _plan: Plan) -> frozenset[Freedom]:
    """Return the privileged fields (freedoms) in a Model's children that come from the operator: those of a Model that
    sets only its source, such as the default image. The ServiceAccount is not among them, because an account with the
    Model's name may belong to another user. Raise InvalidSpecError if the Model cannot be served."""
    model = view.served()
    plain = msgspec.structs.replace(model, spec=ModelSpec(source=model.spec.source))
    server = msgspec.structs.replace(_server(plain, view.world.settings), own_account=False)
    return freedoms(workload(server, Scale(1), ()).children)


def image(spec: ModelSpec, settings: Settings) -> str:
    return spec.image or settings.images.get(LLAMACPP.name, LLAMACPP.image(""))


def renewal(spec: ModelSpec, settings: Settings) -> Renewal:
    """Return the author's arguments for llama.cpp, in which flags that the default image no longer supports are removed
    or replaced. They are unchanged if the author or the operator chose another image."""
    return LLAMACPP.renewed(spec.args or (), author_image=spec.image or "", image=image(spec, settings))


def _server(model: Model, settings: Settings) -> ModelServer:
    spec = model.spec
    launch = Launch(
        weights=model.weights,
        served_name=model.name,
        port=spec.port,
        extra_args=renewal(spec, settings).args,
        hub_mirror=settings.hugging_face_endpoint,
        bind=settings.engine_address or ANYWHERE[0],
    )
    values = {str(one.get("name")): str(one["value"]) for one in spec.env or () if "value" in one}
    _refuse("args", LLAMACPP.conflicting_args(launch))
    _refuse("env", LLAMACPP.conflicting_env(launch, values))
    return ModelServer(
        name=model.name,
        namespace=model.namespace,
        labels={MODEL_LABEL: model.name},
        selector={MODEL_LABEL: model.name},
        engine=_container(launch, spec, settings),
        port=spec.port,
        probes=_probes(model.startup_seconds),
        drain=LLAMACPP.drain(settings.drain_seconds),
        volumes=(scratch(CACHE_VOLUME, "20Gi"),),
        image_pull_secrets=tuple(secret.name for secret in spec.image_pull_secrets or () if secret.name),
        service_account=spec.service_account_name or "",
        own_account=True,
        device_groups=settings.device_groups,
        security=restricted(settings.user(settings.run_as_user)),
    )


def _container(launch: Launch, spec: ModelSpec, settings: Settings) -> Container:
    env, env_from = tuple(spec.env or ()), tuple(spec.env_from or ())
    own_env = (*variables({**settings.home(), **LLAMACPP.env(launch)}), *renamed_token(env, env_from))
    args, resources, chosen = LLAMACPP.args(launch), spec.resources or {}, image(spec, settings)
    own_env += LLAMACPP.cleared(env, env_from, chosen)
    own_env += LLAMACPP.named_devices({"image": chosen, "args": args, "env": env, "resources": resources})
    return Container(
        name=LLAMACPP.container,
        image=chosen,
        image_pull_policy=spec.image_pull_policy,
        args=args,
        env=(*env, *without(own_env, env)),
        env_from=env_from,
        resources=resources,
        mounts=(Mount(CACHE_VOLUME, LLAMACPP.cache_path),),
        security=UNPRIVILEGED,
    )


def _refuse(field: str, conflicts: Sequence[str]) -> None:
    """Raise InvalidSpecError if there are any conflicts: flags or environment variables in ``spec.<field>`` that
    Slipway itself sets, or that prevent requests from reaching the model."""
    if not conflicts:
        return
    text = f"spec.{field} sets {', '.join(conflicts)}. Remove it, because requests would not reach the model"
    own = [flag for flag in conflicts if flag not in LLAMACPP.unreachable_by]
    if field == "args" and own:
        verb, them = ("are", "them") if len(own) > 1 else ("is", "it")
        text = f"spec.args: {', '.join(own)} {verb} set by Slipway. Remove {them}."
    raise InvalidSpecError("InvalidSpec", text)


def _probes(startup_seconds: int) -> Probes:
    path = LLAMACPP.probes.readiness.path
    return Probes(
        startup=Probe(path=path, period=1, timeout=1, failures=startup_seconds),
        readiness=Probe(path=path, period=5, timeout=3, failures=3),
        liveness=LLAMACPP.liveness(Probe(path=path, period=20, timeout=5, failures=6)),
    )
