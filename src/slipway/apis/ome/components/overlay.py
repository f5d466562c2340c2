"""Overlay: the merge of a service over its runtime, component by component. Pure.

A component exists if the service declares it. The service's fields override the runtime's, using the merge keys of
Kubernetes' own lists. The runner is the container that receives requests. The runner is merged into the container of
the same name, and becomes the first container.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any, Literal

import msgspec

from slipway.apis.ome.components import predictor
from slipway.apis.ome.types.component import ComponentExtensionSpec
from slipway.kube.objects import Object, as_object
from slipway.kube.schemas.core import definition
from slipway.kube.schemas.merge import merged
from slipway.serving.contract.api import InvalidSpecError

Name = Literal["engine", "decoder", "router"]
NAMES: tuple[Name, ...] = ("engine", "decoder", "router")
MOST_REPLICAS: Mapping[Name, int] = {"engine": 3, "decoder": 3, "router": 2}
"""Component -> default maximum number of replicas."""
POD_FIELDS = frozenset(definition("PodSpec")["properties"])
EXTENSION = frozenset(field.encode_name for field in msgspec.structs.fields(ComponentExtensionSpec))
WHOLE = {
    "deploymentStrategy": ("deploymentStrategy",),
    "minAvailable": ("minAvailable", "maxUnavailable"),
    "maxUnavailable": ("minAvailable", "maxUnavailable"),
}
"""Field of a component -> fields that replace the runtime's value entirely if the service sets any of them. Merging
these values field by field could combine settings that contradict each other."""
GROUP = ("leader", "worker")


class Component(msgspec.Struct, frozen=True, kw_only=True):
    """One component of a service, merged with the runtime's fields."""

    name: Name
    extension: ComponentExtensionSpec
    """Replicas, rollout and metadata of the component, with the default limits for replicas filled in."""
    pod: Object
    """Spec of the component's pods, with the runner as the first container. For groups, the leader's spec if only the
    groups have containers."""
    leader: Object | None = None
    """Spec of the leader pod of a group of pods, or None if a replica is a single pod."""
    worker: Object | None = None
    """Spec of the group's worker pods, or None if a group has no workers."""
    worker_size: int = 0
    """Number of workers in a group."""
    config: Mapping[str, str] = {}
    """Additional environment variables of the runner."""


def components(service: Object, runtime: Object | None) -> tuple[Component, ...]:
    """Return the components that a service declares. ``service`` is the result of
    :func:`slipway.apis.ome.components.predictor.migrated`. ``runtime`` is None if the service needs no runtime.

    Raise InvalidSpecError if a merged component is invalid, for example has no container or no image.
    """
    spec, base = as_object(service.get("spec")), as_object((runtime or {}).get("spec"))
    return tuple(
        _component(name, base, _of_runtime(base, name), as_object(spec[name]))
        for name in NAMES
        if spec.get(name) is not None
    )


def bare(service: Object, runtime: Object) -> Object:
    """Return the service without its changes to the runtime: it sets no fields of its components, and declares only the
    components that the runtime can run alone."""
    spec = as_object(service.get("spec"))
    chosen = {field: spec[field] for field in ("model", "runtime") if spec.get(field) is not None}
    stated = [name for name in NAMES if spec.get(name) is not None and _is_defined_by_runtime(name, runtime)]
    return {**service, "spec": chosen | {name: Object() for name in stated}}


def _is_defined_by_runtime(name: Name, runtime: Object) -> bool:
    """Whether a runtime defines what runs in a component without any fields from a service."""
    try:
        return bool(components({"spec": {name: {}}}, runtime))
    except InvalidSpecError:
        return False


def runner(pod: Object) -> Object:
    """Return the container of a component's pod that receives requests."""
    container: Object = pod["containers"][0]
    return container


def _of_runtime(spec: Object, name: Name) -> Object:
    """Return a runtime's fields for a component. Runtimes of earlier versions define only the engine, with the fields
    of a pod."""
    config = spec.get(f"{name}Config")
    if config is not None or name != "engine":
        return as_object(config)
    pod = {field: value for field, value in spec.items() if field in POD_FIELDS or field in ("labels", "annotations")}
    return pod | ({"worker": spec["workers"]} if spec.get("workers") else {})


def _component(name: Name, runtime: Object, base: Object, patch: Object) -> Component:
    extension = _extension(name, base, patch)
    config = merged(*_both("config", base, patch))
    whole = MergedPod.over(base, patch)
    computes = runtime if name != "router" else {}
    component = Component(
        name=name,
        extension=extension,
        pod={},
        config={str(key): str(value) for key, value in config.items()},
    )
    if not any(layer.get(field) is not None for layer in (base, patch) for field in GROUP):
        return msgspec.structs.replace(component, pod=_pod(whole, name, computes, base, patch))
    first = MergedPod.over(*_both("leader", base, patch)).within(whole)
    leader = _pod(first, f"{name}.leader", computes, base, patch, "leader")
    component = msgspec.structs.replace(component, pod=whole.pod_spec(name) if whole.runs else leader, leader=leader)
    if base.get("worker") is None and patch.get("worker") is None:
        return component
    worker_layers = _both("worker", base, patch)
    others = MergedPod.over(*worker_layers).within(whole)
    worker = _pod(others, f"{name}.worker", computes, base, patch, "worker")
    return msgspec.structs.replace(
        component, worker=worker, worker_size=_size(name, merged(*worker_layers).get("size", 1))
    )


def _pod(merged_pod: MergedPod, place: str, runtime: Object, base: Object, patch: Object, role: str = "") -> Object:
    """Return the spec of a merged pod, with the runtime's node selector and, unless the service's runner sets
    resources, the runtime's resources. ``place`` is the field of the spec for messages. ``role`` is ``leader`` or
    ``worker``, or empty if the component has no groups."""
    spec, roles = merged_pod.pod_spec(place), (role,) if role else ()
    layers = [(one, *(as_object(one.get(role)) for role in roles)) for one in (base, patch)]
    # As in OME, the runtime's own selector takes precedence over those of its components, and the service's over
    # both.
    selectors = (as_object(one.get("nodeSelector")) for one in (*layers[0], runtime, *layers[1]))
    selector = reduce(merged, selectors, Object())
    if not any(as_object(as_object(one.get("runner")).get("resources")) for one in layers[1]):
        spec["containers"] = [_with_resources(spec["containers"][0], runtime), *spec["containers"][1:]]
    return spec | ({"nodeSelector": selector} if selector else {})


def _with_resources(container: Object, runtime: Object) -> Object:
    """Return the container with the limits and requests of the runtime's container of the same name, if any. Those that
    the container itself sets take precedence."""
    own = (one for one in _objects(runtime.get("containers")) if one.get("name") == container.get("name"))
    base, own_resources = (as_object(one.get("resources")) for one in (next(own, {}), container))
    base = {field: base[field] for field in ("limits", "requests") if field in base}
    return container | ({"resources": merged(base, own_resources)} if base else {})


class MergedPod(msgspec.Struct, frozen=True):
    """A pod of the service, merged over a pod of the runtime. The runner is kept separate from the pod's containers."""

    pod: Object
    runner: Object
    first: tuple[str, ...] = ()
    """Names of the containers in the runtime's pod."""

    @classmethod
    def over(cls, base: Object, patch: Object) -> MergedPod:
        below, above = (_with_account(one) for one in _both_of(POD_FIELDS, base, patch))
        for field in ("containers", "initContainers"):
            if above.get(field):
                above[field] = [_without_empty_fields(one) for one in _objects(above[field])]
        runners = _both("runner", base, patch)
        return cls(
            merged(below, above, "PodSpec"),
            merged(runners[0], _without_empty_fields(runners[1]), "Container"),
            tuple(str(one.get("name")) for one in _objects(below.get("containers"))),
        )

    @property
    def runs(self) -> bool:
        """Whether the pod has a runner or any container."""
        return bool(self.runner or self.pod.get("containers"))

    def within(self, whole: MergedPod) -> MergedPod:
        """Merge this pod of a group over the component's own pod ``whole``. The runner and the containers of ``whole``
        are used only if this pod has neither a runner nor containers."""
        if not self.runs:
            return MergedPod(merged(whole.pod, self.pod, "PodSpec"), whole.runner, whole.first)
        shared = {field: value for field, value in whole.pod.items() if field != "containers"}
        return msgspec.structs.replace(self, pod=merged(shared, self.pod, "PodSpec"))

    def pod_spec(self, place: str) -> Object:
        """Return the spec of the pod, with the runner as its first container. The runner's arguments are appended to
        those of the container of the same name. Without a runner, the first container is the one named RUNNER, or else
        the first of the runtime, or else the first one. Raise InvalidSpecError if the pod has no container or the first
        container has no image. ``place`` is the field of the spec for messages."""
        containers = _objects(self.pod.get("containers"))
        name = str(self.runner.get("name") or predictor.RUNNER)
        candidates = (
            (name,) if self.runner else (predictor.RUNNER, *self.first, *(one.get("name") for one in containers))
        )
        container = next((one for name in candidates for one in containers if one.get("name") == name), {})
        main = merged(container, {**self.runner, "name": name}, "Container") if self.runner else container
        if self.runner.get("args") and container.get("args"):
            main["args"] = [*container["args"], *self.runner["args"]]
        if not main:
            text = f"spec.{place}: neither the service nor its runtime has a container: it needs a runner with an image"
            raise InvalidSpecError("NoRunner", text)
        if not main.get("image"):
            text = (
                f"spec.{place}: the container {main.get('name')} has no image, neither in the service nor its runtime"
            )
            raise InvalidSpecError("NoImage", text)
        return {**self.pod, "containers": [main, *(one for one in containers if one is not container)]}


def _with_account(pod: Object) -> Object:
    """Return the pod with its deprecated ``serviceAccount`` field renamed to ``serviceAccountName``, so that the
    service's account replaces the runtime's."""
    account = pod.pop("serviceAccount", None)
    return pod | ({"serviceAccountName": account} if account and not pod.get("serviceAccountName") else {})


def _without_empty_fields(container: Object) -> Object:
    """Return the container without its ``name`` and ``image`` fields if they are empty. Typed clients cannot omit these
    fields, so they write an empty string for a field that is not set."""
    return {field: value for field, value in container.items() if value or field not in ("image", "name")}


def _extension(name: Name, base: Object, patch: Object) -> ComponentExtensionSpec:
    bases, patches = _both_of(EXTENSION, base, patch)
    for field, rivals in WHOLE.items():
        if any(rival in patches for rival in rivals):
            bases.pop(field, None)
    try:
        mine, extension = (
            msgspec.convert(fields, ComponentExtensionSpec) for fields in (patches, merged(bases, patches))
        )
    except msgspec.ValidationError as error:
        raise InvalidSpecError("InvalidSpec", f"spec.{name}: {error}") from error
    least = 1 if extension.min_replicas is None else extension.min_replicas
    most = extension.max_replicas or max(MOST_REPLICAS[name], least)
    # If the service sets one limit and the runtime the other, the service's takes precedence. If one author set both,
    # the lower one does, as in OME.
    if mine.max_replicas and mine.min_replicas is None:
        least = min(least, most)
    return msgspec.structs.replace(extension, min_replicas=least, max_replicas=max(least, most))


def _size(name: Name, size: Any) -> int:
    if not isinstance(size, int) or size < 1:
        raise InvalidSpecError("InvalidSpec", f"spec.{name}.worker.size is {size}: a group needs at least one worker")
    return size


def _both_of(fields: frozenset[str], base: Object, patch: Object) -> tuple[Object, Object]:
    below, above = ({field: value for field, value in layer.items() if field in fields} for layer in (base, patch))
    return below, above


def _both(field: str, base: Object, patch: Object) -> tuple[Object, Object]:
    return as_object(base.get(field)), as_object(patch.get(field))


def _objects(value: Any) -> list[Object]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list | tuple) else []
