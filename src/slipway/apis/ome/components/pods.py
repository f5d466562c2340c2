"""Pods: the finished pod templates of a component. Pure.

Fields that the manifests set are kept. This module adds the model's files and paths, names, environment variables, a
probe, time to drain, and security settings with as few privileges as possible.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from slipway.apis.labels import RESERVED
from slipway.apis.ome import names
from slipway.apis.ome.components import adapters, manifests
from slipway.apis.ome.components.adapters import Adapter
from slipway.apis.ome.components.overlay import Component
from slipway.apis.ome.models import volumes as model_volumes
from slipway.apis.ome.models.storage import Mount, use_of
from slipway.engines.recognition import Recognised, recognise, values_of_flags
from slipway.kube.objects import Object, as_object
from slipway.kube.values.names import NAME_LENGTH, ending
from slipway.kube.values.quantity import amount
from slipway.serving.containers import env, volumes
from slipway.serving.containers.devices import with_groups
from slipway.serving.containers.diagnosis import TEMPLATE
from slipway.serving.containers.drain import Drain
from slipway.serving.contract.api import USES, InvalidSpecError
from slipway.serving.pods.server import variables
from slipway.serving.pods.workload import digest

Role = Literal["pod", "leader", "worker"]
OWN_LABELS = frozenset(
    (
        *("app", names.SERVICE_LABEL, names.COMPONENT_LABEL, names.RUNTIME_LABEL, names.FINE_TUNED_LABEL),
        *(names.MODEL_NAME_LABEL, names.MODEL_SIZE_LABEL, names.MODEL_TYPE_LABEL, names.MODEL_VENDOR_LABEL),
        *(names.STRATEGY_LABEL, names.MERGED_LABEL, names.ENGINE_LABEL),
    )
)
"""Labels that the controller sets on pods. If it has a value for a label, that value replaces the service's."""
OURS = "slipway.inference/"
NOT_OF_PODS = (
    OURS,
    "kubectl.kubernetes.io/last-applied-configuration",
    "autoscaling.knative.dev/min-scale",
    "autoscaling.knative.dev/max-scale",
    "internal.serving.",
)
"""Prefixes of annotations that a service does not pass on to its pods."""
SCRAPED = "prometheus.io/"
"""Prefix of the annotations by which Prometheus finds its targets. Workers of a group do not get these annotations,
because they have no metrics."""
MODEL_PATH, PARALLELISM, SERVED_NAME = "MODEL_PATH", "PARALLELISM_SIZE", "SERVED_MODEL_NAME"
PLACEHOLDER = re.compile(r"\{\{\s*\.(?:(Name|Namespace)|(Labels|Annotations)\.(\w+))\s*\}\}")
MOST_RENDERED = 1 << 20
"""Maximum number of characters of all rendered placeholders in a pod. Their values come from the service's author."""
VARIABLE = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")


class PodContext(msgspec.Struct, frozen=True, kw_only=True):
    """Properties that all pods of a service share."""

    service: Object
    runtime: str = ""
    """Name of the runtime. Empty if the service has no runtime."""
    model: Mount | None = None
    adapters: tuple[Adapter, ...] = ()
    drain_seconds: int
    device_groups: tuple[int, ...] = ()

    @property
    def served(self) -> Mount | None:
        """The mount of the files that the engine serves: the weights that replace the model, or else the model. None if
        the service has neither."""
        return next((adapter.mount for adapter in self.adapters if adapter.merged), self.model)


def template(component: Component, role: Role, context: PodContext) -> Object:
    """Return a finished pod template: ``{"metadata": ..., "spec": ...}``. ``role``: whether to build the only pod of a
    replica, or the leader or a worker of a group. Raise InvalidSpecError if the manifests cannot be served."""
    pod = {"pod": component.pod, "leader": component.leader, "worker": component.worker}[role]
    spec = _rendered(pod or component.pod, context.service)
    own = _variables(component, role, spec["containers"][0], context)
    mounts = _mounts(component, spec["containers"][0], context)
    main = _with_models(_with_variables(spec["containers"][0], own), mounts)
    recognised = recognise(main)
    if component.name != "router":
        main = adapters.with_adapters(main, recognised, context.service["metadata"]["name"], context.adapters)
    main = _unsealed(main, recognised)
    if role != "worker":
        _check_port(main, recognised)
        main = manifests.answering(main, recognised.port, on_node=bool(spec.get("hostNetwork")))
    spec = {**_account(component, spec, context), **spec, "containers": [main, *spec["containers"][1:]]}
    spec = manifests.finished(_with_folders(spec, mounts, context), recognised.port, _drain(recognised, role, context))
    spec = with_groups(spec, context.device_groups)
    annotations = _annotations(component, role, context, mounts)
    # Files from another source are different files, even if they have the same path.
    annotations[TEMPLATE] = digest([spec, *(mount.identity for mount in mounts)])
    labels = _labels(component, context)
    if recognised.engine and role != "worker":
        labels[names.ENGINE_LABEL] = recognised.engine.name
    return {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec}


def _unsealed(container: Object, recognised: Recognised) -> Object:
    """Return the container with the engine's API key set to an empty value if the key might come from a Secret or a
    ConfigMap."""
    env, env_from = container.get("env") or (), container.get("envFrom") or ()
    empty = recognised.engine.cleared(env, env_from, str(container.get("image", ""))) if recognised.engine else ()
    return {**container, "env": [*env, *empty]} if empty else container


def _drain(recognised: Recognised, role: Role, context: PodContext) -> Drain:
    """Return the drain settings of a pod. Only a single pod with a known engine waits until it is idle. Other pods wait
    for a fixed time: an unknown engine does not show whether it is idle, and the pods of a group would otherwise end at
    different times."""
    if recognised.engine and role == "pod":
        return recognised.engine.drain(context.drain_seconds, "".join(values_of_flags(recognised.args, "--host")[:1]))
    return Drain(seconds=context.drain_seconds, shell=False)


def _rendered(pod: Object, service: Object) -> Object:
    """Return the pod with OME's placeholders, such as ``{{.Name}}``, replaced. Other braces, such as those of chat
    templates, stay unchanged. Raise InvalidSpecError if the rendered text is too long."""
    text = msgspec.json.encode(pod).decode()
    if "{{" not in text:
        return pod
    values = [_value(match, service["metadata"]) for match in PLACEHOLDER.finditer(text)]
    if sum(map(len, values)) > MOST_RENDERED:
        message = f"its rendered text has more than {MOST_RENDERED} characters: shorten the annotations"
        raise InvalidSpecError("InvalidSpec", message)
    rest = iter(values)
    rendered: Object = msgspec.json.decode(PLACEHOLDER.sub(lambda _found: json.dumps(next(rest))[1:-1], text))
    return rendered


def _value(match: re.Match[str], metadata: Object) -> str:
    """Return a placeholder's value, or an empty string for a missing label or annotation."""
    if match[1]:
        return str(metadata.get(match[1].lower(), ""))
    return str((metadata.get(match[2].lower()) or {}).get(match[3], ""))


def _mounts(component: Component, main: Object, context: PodContext) -> tuple[Mount, ...]:
    """Return the mounts of a component. A router only gets the mount of the served files, and only if its command line
    contains the path or MODEL_PATH, for example for a tokenizer. Models without a path are left out."""
    served = context.served
    if component.name == "router":
        line = " ".join(map(str, (*(main.get("command") or ()), *(main.get("args") or ()))))
        reads = served and served.path and (MODEL_PATH in line or served.path in line)
        return (served,) if served and reads else ()
    mounts = [*([served] if served else []), *(adapter.mount for adapter in context.adapters if not adapter.merged)]
    return tuple({mount.path: mount for mount in mounts if mount.path}.values())


def _variables(component: Component, role: Role, main: Object, context: PodContext) -> tuple[Object, ...]:
    """Return the environment variables to insert before those of the manifest, so that the manifest's variables can
    refer to them. Raise InvalidSpecError for an invalid variable name in the router's config."""
    environment: dict[str, str] = {}
    if context.served and context.served.path:
        environment[MODEL_PATH] = context.served.path
    if component.name != "router":
        gpus = _gpus(main) * (1 if role == "pod" else 1 + component.worker_size)
        environment |= {PARALLELISM: str(gpus)} if gpus else {}
        environment[SERVED_NAME] = context.service["metadata"]["name"]
    if wrong := [name for name in component.config if not VARIABLE.fullmatch(name)]:
        text = f"spec.router.config: {wrong[0][:64]!r} is not a variable name: use only letters, digits and -._"
        raise InvalidSpecError("InvalidSpec", text)
    return variables({**environment, **component.config})


def _with_variables(main: Object, own: Sequence[Object]) -> Object:
    declared = main.get("env") or ()
    combined = [*env.without(own, declared), *declared]
    return {**main, "env": combined} if combined else main


def _check_port(main: Object, recognised: Recognised) -> None:
    """Raise InvalidSpecError if the container declares ports, but not the port that its arguments set for the
    engine."""
    declared = [port.get("containerPort") for port in main.get("ports") or ()]
    if declared and recognised.argument_port and recognised.argument_port not in declared:
        ports = ", ".join(map(str, declared))
        text = f"the arguments of {main['name']} set port {recognised.argument_port}, but its ports are {ports}"
        raise InvalidSpecError("InvalidSpec", f"{text}. Make them match")


def router_account(pod: Object, service: str) -> str:
    """Return the name of the service account of a service's router: the account in ``pod``, the spec of the router's
    pods, or else an account with the component's name. The router needs an account to list the pods of its engines."""
    return str(pod.get("serviceAccountName") or names.component_name(service, "router"))


def _account(component: Component, spec: Object, context: PodContext) -> Object:
    if component.name == "router":
        return {"serviceAccountName": router_account(spec, context.service["metadata"]["name"])}
    return {} if spec.get("serviceAccountName") else {"automountServiceAccountToken": False}


def _gpus(container: Object) -> int:
    """Return the number of GPUs of a container: its resources whose names end with ``/gpu``. Limits take precedence
    over requests. Raise InvalidSpecError for an invalid quantity."""
    resources = container.get("resources") or {}
    limits, requests = (as_object(resources.get(field)) for field in ("limits", "requests"))
    try:
        return sum(int(amount(str(size))) for name, size in {**requests, **limits}.items() if name.endswith("/gpu"))
    except ValueError as error:
        raise InvalidSpecError("InvalidSpec", f"resources of {container.get('name')}: {error}") from error


def _with_models(main: Object, mounts: Sequence[Mount]) -> Object:
    """Return the container with the models mounted read-only. They replace mounts of the manifest that have the same
    path or volume name."""
    if not mounts:
        return main
    paths, taken = {mount.path for mount in mounts}, {volume_name(mount) for mount in mounts}
    volumes_left = [
        one
        for one in main.get("volumeMounts") or ()
        if one.get("name") not in taken and str(one.get("mountPath", "")).rstrip("/") not in paths
    ]
    own = [
        {"name": volume_name(mount), "mountPath": mount.path, "readOnly": True}
        | ({"subPath": mount.sub_path} if mount.claim and mount.sub_path else {})
        for mount in mounts
    ]
    return {**main, "volumeMounts": [*volumes_left, *own]}


def _with_folders(spec: Object, mounts: Sequence[Mount], context: PodContext) -> Object:
    """Return the pod spec with the volumes of the models, and a node selector for the nodes that have the models. The
    volumes replace others of the same names. The spec's own node selector takes precedence."""
    if not mounts:
        return spec
    own = [_volume(mount, context) for mount in mounts]
    taken = {volume["name"] for volume in own}
    pod_spec = {**spec, "volumes": [*(one for one in spec.get("volumes") or () if one.get("name") not in taken), *own]}
    labels = {mount.node_label: names.READY for mount in mounts if mount.node_label}
    selected = {**labels, **(spec.get("nodeSelector") or {})}
    return pod_spec | ({"nodeSelector": selected} if selected else {})


def _volume(mount: Mount, context: PodContext) -> Object:
    """Return the pod volume of a mount. Raise InvalidSpecError for a claim in another namespace, which pods cannot
    use."""
    name = volume_name(mount)
    if not mount.claim:
        return volumes.claim(name, model_volumes.name_for(mount, context.service), read_only=True)
    namespace = context.service["metadata"]["namespace"]
    if mount.claim_namespace != namespace:
        text = f"The claim {mount.claim} of {mount.name} is in the namespace {mount.claim_namespace}"
        raise InvalidSpecError("ClaimOfOtherNamespace", f"{text}, and pods can only use claims in {namespace}")
    return volumes.claim(name, mount.claim, read_only=True)


def volume_name(mount: Mount) -> str:
    """Return the name of the volume with a model's files, which is identical in all pods that read the files."""
    plain = mount.name if mount.kind != names.FINE_TUNED_WEIGHT else f"weights-{mount.name}"
    return ending(plain.replace(".", "-"), NAME_LENGTH)


def _labels(component: Component, context: PodContext) -> Object:
    metadata, model, weights = context.service["metadata"], context.model, context.adapters
    own = {
        names.SERVICE_LABEL: metadata["name"],
        names.COMPONENT_LABEL: component.name,
        names.RUNTIME_LABEL: context.runtime,
        names.FINE_TUNED_LABEL: _flag(weights),
    }
    if model:
        own |= {
            names.MODEL_NAME_LABEL: model.name,
            names.MODEL_SIZE_LABEL: model.category,
            names.MODEL_TYPE_LABEL: "Serving",
            names.MODEL_VENDOR_LABEL: model.vendor,
        }
    if weights:
        merged = [one for one in weights if one.merged]
        own |= {names.STRATEGY_LABEL: weights[0].strategy, names.MERGED_LABEL: _flag(merged)}
    # The service's own labels are not written for pods, so reserved ones among them are dropped instead of rejected.
    labels = {name: text for name, text in as_object(metadata.get("labels")).items() if name not in RESERVED}
    ours = {name: names.text_value(text) for name, text in own.items() if text}
    return {**labels, **component.extension.labels, **ours}


def _flag(setting: Sequence[object]) -> str:
    return "true" if setting else "false"


def _annotations(component: Component, role: Role, context: PodContext, mounts: Iterable[Mount]) -> Object:
    inherited = {**as_object(context.service["metadata"].get("annotations")), **component.extension.annotations}
    dropped = (*NOT_OF_PODS, SCRAPED) if role == "worker" else NOT_OF_PODS
    annotations = {name: text for name, text in inherited.items() if not name.startswith(dropped)}
    model, weights = context.model, context.adapters
    own = {"ome.io/serving-runtime": context.runtime}
    if model:
        own |= {
            "ome.io/base-model-name": model.name,
            "ome.io/base-model-vendor": model.vendor,
            "ome.io/base-model-format": model.format_name,
            "ome.io/base-model-format-version": model.format_version,
        }
    if weights:
        own["ome.io/fine-tuned-weight-ft-strategy"] = weights[0].strategy
    own[USES] = " ".join(use_of(mount.path) for mount in mounts if not mount.claim)
    return {**annotations, **{name: text for name, text in own.items() if text}}
