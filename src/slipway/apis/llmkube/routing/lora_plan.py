"""The view and plan of a LoRAAdapter: a Service for the pods that have loaded the adapter. Pure.

The plan of the InferenceService makes the pods load the adapter.
"""

from __future__ import annotations

import msgspec

from slipway.apis.llmkube import names
from slipway.apis.llmkube.rules import loras
from slipway.apis.llmkube.services import pods
from slipway.apis.llmkube.types.lora import LoRAAdapterSpec
from slipway.apis.llmkube.types.service import KIND as INFERENCE_SERVICE
from slipway.apis.llmkube.types.service import Endpoint
from slipway.kube.objects import Object, created_unix, key
from slipway.kube.values.names import label_value
from slipway.serving.contract.api import InvalidSpecError, Plan, Reference, World
from slipway.serving.pods.server import ServiceSpec
from slipway.serving.pods.workload import service_of
from slipway.serving.routing.route import TEXT_GENERATION, Route


class AdapterView(msgspec.Struct, frozen=True, kw_only=True):
    """A LoRAAdapter, valid or not, and the service that it names; None: the service does not exist."""

    world: World
    spec: LoRAAdapterSpec | InvalidSpecError
    service: Object | None

    def valid(self) -> LoRAAdapterSpec:
        """Return the adapter's spec. Raise InvalidSpecError, with the reason, if no service loads the adapter."""
        if isinstance(self.spec, InvalidSpecError):
            raise self.spec
        return self.spec


def resolve(world: World) -> AdapterView:
    resource = world.resource
    named = resource["spec"]["inferenceServiceRef"]["name"]
    service = world.get(Reference(INFERENCE_SERVICE, key(resource).namespace, named))
    spec: LoRAAdapterSpec | InvalidSpecError
    try:
        spec = loras.check(world, resource, service)
    except InvalidSpecError as error:
        spec = error
    return AdapterView(world=world, spec=spec, service=service)


def plan(view: AdapterView) -> Plan:
    """Plan the Service that routes requests for the adapter to the pods that have loaded it. Raise InvalidSpecError if
    no service loads the adapter."""
    spec, resource = view.valid(), view.world.resource
    namespace, name = key(resource)
    service = spec.inference_service_ref.name
    public = loras.public_name(service, spec.name)
    route = Route(
        models=(public,),
        created=created_unix(resource),
        owned_by="llmkube",
        source=spec.path,
        name=f"{service}_{spec.name}",
        features=(TEXT_GENERATION,),
    )
    address = ServiceSpec(
        names.lora_service(name), {**pods.selector(service), **loras.selector(spec.name)}, route, port=_port(view)
    )
    labels = {names.SERVICE_LABEL: label_value(service)}
    return Plan(children=(service_of(namespace, labels, address),))


def _port(view: AdapterView) -> int:
    """Return the port of the InferenceService's own Service."""
    port: int = ((view.service or {}).get("spec", {}).get("endpoint") or {}).get("port", Endpoint().port)
    return port
