"""The choice of the LoRAAdapters that a service's engine loads, and the reasons why it does not load the others. Pure.

The plans of services and the status of adapters both use this module, so they always agree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from slipway.apis.llmkube.types.lora import KIND, LoRAAdapterSpec
from slipway.apis.llmkube.types.runtime import SglangConfig
from slipway.engines.definition.flags import flag_names
from slipway.kube.caches.store import Change
from slipway.kube.objects import Object, created_unix, deleting, key
from slipway.serving.contract.api import InvalidSpecError, Listers, World
from slipway.serving.wire import agent
from slipway.serving.wire.agent import IN_PLACE, Adapter, AdapterSet

OF_SERVICE, OF_NAME = "service", "name"
"""Indexes of LoRAAdapters: by the service that they name, and by this service together with their name in its
engine."""
RUNTIMES = ("sglang", "vllm")
"""Runtimes whose engines load adapters at runtime."""
ENABLED = "--enable-lora"
LONGEST_PATH = 1024
PLAIN_PATH = re.compile(r"(/[^/\x00-\x1f\x7f]+)+/?")
LABEL_END = re.compile(r"[A-Za-z0-9]\Z")


class Lora(msgspec.Struct, frozen=True):
    """An adapter that a service's engine loads."""

    name: str
    path: str


def by_service(resource: Object) -> Iterable[str]:
    """Return the values of an adapter in the index :data:`OF_SERVICE`. The result is empty if the adapter names a
    service of another namespace."""
    named, own = resource["spec"]["inferenceServiceRef"], key(resource).namespace
    return (_place(own, named["name"]),) if named.get("namespace", own) in ("", own) else ()


def by_name(resource: Object) -> Iterable[str]:
    """Return the values of an adapter in the index :data:`OF_NAME`."""
    return (f"{service}:{resource['spec']['name']}" for service in by_service(resource))


def of_service(world: World, service: Object) -> tuple[Lora, ...]:
    """Return the adapters that a service's engine should load, sorted by name."""
    oldest: dict[str, Object] = {}
    for one in sorted(world.list(KIND, OF_SERVICE, _place(*key(service))), key=_age):
        if not deleting(one):
            oldest.setdefault(one["spec"]["name"], one)
    specs = [parse_adapter(one) for one in oldest.values() if _fault(world, one, service) is None]
    return tuple(sorted((Lora(spec.name, spec.path) for spec in specs), key=lambda lora: lora.name))


def parse_adapter(resource: Object) -> LoRAAdapterSpec:
    """Parse the spec of a LoRAAdapter. Raise InvalidSpecError if the spec is invalid."""
    try:
        return msgspec.convert(resource["spec"], LoRAAdapterSpec)
    except msgspec.ValidationError as error:
        raise InvalidSpecError("InvalidSpec", str(error)) from error


def check(world: World, resource: Object, service: Object | None) -> LoRAAdapterSpec:
    """Return the spec of an adapter. Raise InvalidSpecError, with the reason, if its service does not load it.
    ``service`` is None if the service does not exist."""
    fault = _fault(world, resource, service)
    if fault:
        raise fault
    return parse_adapter(resource)


def _fault(world: World, resource: Object, service: Object | None) -> InvalidSpecError | None:
    try:
        spec = parse_adapter(resource)
    except InvalidSpecError as error:
        return error
    named, own = spec.inference_service_ref, key(resource)
    if named.namespace not in ("", own.namespace):
        text = "spec.inferenceServiceRef.namespace must be the adapter's namespace"
        return InvalidSpecError("NamespaceNotAllowed", text)
    if not LABEL_END.search(spec.name):
        return InvalidSpecError("InvalidSpec", "spec.name must end with a letter or digit")
    if not PLAIN_PATH.fullmatch(spec.path) or len(spec.path) > LONGEST_PATH or {"..", "."} & {*spec.path.split("/")}:
        text = f"spec.path must be an absolute path without . and .., of {LONGEST_PATH} characters at most"
        return InvalidSpecError("InvalidSpec", text)
    if service is None:
        text = f"There is no InferenceService {named.name} in the namespace {own.namespace}."
        return InvalidSpecError("ServiceNotFound", text)
    runtime = runtime_of(service)
    if runtime not in RUNTIMES:
        text = f"The runtime {runtime} of {named.name} cannot load adapters at runtime. Use {' or '.join(RUNTIMES)}"
        return InvalidSpecError("RuntimeMismatch", text)
    if agent.PORT in (service["spec"].get("containerPort"), (service["spec"].get("endpoint") or {}).get("port")):
        text = f"The engine of {named.name} has port {agent.PORT}, which the loader in its pod needs. Use another port"
        return InvalidSpecError("PortTaken", text)
    return _find_name_conflict(world, resource, service, spec)


def _find_name_conflict(
    world: World, resource: Object, service: Object, spec: LoRAAdapterSpec
) -> InvalidSpecError | None:
    """Return an error if an adapter's name is already in use, otherwise None. The oldest adapter gets a name, unless
    the engine starts with an adapter of that name."""
    if spec.name in started_with(service["spec"]):
        text = f"The engine of {key(service).name} already starts with an adapter {spec.name} (sglangConfig)."
        return InvalidSpecError("AdapterNameTaken", text)
    rivals = [one for place in by_name(resource) for one in world.list(KIND, OF_NAME, place) if not deleting(one)]
    first = min(rivals, key=_age, default=resource)
    if key(first) == key(resource):
        return None
    text = f"The LoRAAdapter {key(first).name}, which is older, already uses this name."
    return InvalidSpecError("AdapterNameTaken", text)


def _age(resource: Object) -> tuple[int, str]:
    return created_unix(resource), key(resource).name


def started_with(spec: Object) -> frozenset[str]:
    """Return the names of the adapters that SGLang loads at startup. ``spec`` is the raw spec of a service. The result
    is empty for other runtimes, and if ``sglangConfig`` is invalid."""
    if spec.get("runtime") != "sglang":
        return frozenset()
    try:
        config = msgspec.convert(spec.get("sglangConfig") or {}, SglangConfig)
    except msgspec.ValidationError:
        return frozenset()
    return frozenset((*(one.name for one in config.lora_adapters), *map(_module, config.lora_modules)))


def _module(text: str) -> str:
    return text.partition("=")[0]


def runtime_of(service: Object) -> str:
    runtime: str = service["spec"].get("runtime", "llamacpp")
    return runtime


def has_adapter_loader(runtime: str, loras: Iterable[Lora], arguments: Iterable[str]) -> bool:
    """Whether the pods of a service have a loader for adapters. They do if the runtime can load adapters, and the
    service has adapters or ``arguments`` enable adapters in its engine."""
    return runtime in RUNTIMES and (any(loras) or ENABLED in flag_names(tuple(arguments)))


def public_name(service: str, lora: str) -> str:
    """Return the model ID of an adapter, ``<service>:<lora>``. SGLang splits it at the colon."""
    return f"{service}:{lora}"


def adapters(service: str, runtime: str, loras: Iterable[Lora], container: str) -> AdapterSet:
    """Return the adapters that the loaders of a service load. In vLLM, an adapter's name is the whole model ID. In
    SGLang, it is the part after the colon."""
    prefix = public_name(service, "") if runtime == "vllm" else ""
    members = tuple(Adapter(f"{prefix}{one.name}", f"{IN_PLACE}{one.path}") for one in loras)
    return AdapterSet(adapters=members, prefix=prefix, container=container)


def selector(lora: str) -> dict[str, str]:
    """Return the labels of the pods that have loaded an adapter."""
    return {f"{agent.SERVING_LABEL}{lora}": agent.SERVING}


def rivals_of(change: Change, listers: Listers) -> Iterable[Object]:
    """Return the other adapters with the service and name that a changed adapter has or had."""
    places = {place for state in change[:2] if state for place in by_name(state)}
    return [one for place in places for one in listers.list(KIND, OF_NAME, place) if key(one) != change.key]


def _place(namespace: str, service: str) -> str:
    return f"{namespace}/{service}"
