"""Service: an InferenceService that can be served, with its model, runtime and components. Pure."""

from __future__ import annotations

from itertools import accumulate

import msgspec

from slipway.apis.ome import names
from slipway.apis.ome.components.adapters import Adapter
from slipway.apis.ome.components.overlay import Component
from slipway.apis.ome.components.pods import PodContext
from slipway.apis.ome.components.scaling import Scaler
from slipway.apis.ome.models.storage import Mount
from slipway.apis.ome.types.service import InferenceServiceSpec
from slipway.engines.recognition import Recognised
from slipway.kube.objects import DEPLOYMENT, Kind, Object, annotations_of, key, labels
from slipway.kube.values.names import ending
from slipway.serving.contract.settings import Settings
from slipway.serving.pods.groups import LEADER_WORKER_SET, LONGEST_NAME
from slipway.serving.routing.route import MOST_LABEL_CHARACTERS, MOST_LABELS


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One component of a service, with its main container, the recognized engine and its scaler."""

    component: Component
    name: str
    """Name of the component's Service, and of its workload except for groups."""
    runner: Object
    """The container that receives requests, as merged from the service and the runtime."""
    recognised: Recognised
    scaler: Scaler

    @property
    def group(self) -> bool:
        """Whether a replica is a group of pods."""
        return self.component.leader is not None

    @property
    def kind(self) -> Kind:
        """Kind of the component's workload."""
        return LEADER_WORKER_SET if self.group else DEPLOYMENT

    @property
    def workload_name(self) -> str:
        return group_name(self.name) if self.group else self.name

    @property
    def port(self) -> int:
        """Port on which the runner receives requests."""
        return self.recognised.port


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """An InferenceService that can be served, even if its model is not on any node yet."""

    resource: Object
    spec: InferenceServiceSpec
    model: Object | None = None
    mount: Mount | None = None
    weights: tuple[Object, ...] = ()
    """FineTunedWeights that are added to the model, or replace the model."""
    adapters: tuple[Adapter, ...] = ()
    """The FineTunedWeights in ``weights``, in the form that pods use."""
    runtime: Object | None = None
    parts: tuple[Part, ...] = ()
    """Components of the service, in the order engine, decoder, router. Empty for a virtual service, which has no
    pods."""

    @property
    def name(self) -> str:
        name: str = self.resource["metadata"]["name"]
        return name

    @property
    def namespace(self) -> str:
        namespace: str = self.resource["metadata"]["namespace"]
        return namespace

    def part(self, name: str) -> Part | None:
        return next((part for part in self.parts if part.component.name == name), None)

    @property
    def routed(self) -> Part | None:
        """The component that receives the requests: the router, or else the engine. None if the service has neither."""
        return self.part("router") or self.part("engine")

    @property
    def mounts(self) -> tuple[Mount, ...]:
        """Mounts of the model and of its FineTunedWeights."""
        return (*((self.mount,) if self.mount else ()), *(one.mount for one in self.adapters))

    def annotations(self, part: Part) -> dict[str, str]:
        """Return the service's annotations, overridden by the annotations of a component."""
        return {**annotations_of(self.resource), **part.component.extension.annotations}

    @property
    def model_ids(self) -> tuple[str, ...]:
        """Model IDs at the gateway: the service's own name, and the names of adapters that are added to the model."""
        return tuple(dict.fromkeys((self.name, *(one.mount.name for one in self.adapters if not one.merged))))

    def context(self, settings: Settings) -> PodContext:
        """Return the properties that all pods of the service share."""
        return PodContext(
            service=self.resource,
            runtime=key(self.runtime).name if self.runtime else "",
            model=self.mount,
            adapters=self.adapters,
            drain_seconds=settings.drain_seconds,
            device_groups=settings.device_groups,
        )

    @property
    def route_labels(self) -> dict[str, str]:
        """The service's labels, sorted by name and limited to the number and length that a route accepts."""
        pairs = sorted(labels(self.resource).items())[:MOST_LABELS]
        upto = accumulate(len(name) + len(value) for name, value in pairs)
        return dict(item for item, length in zip(pairs, upto, strict=True) if length <= MOST_LABEL_CHARACTERS)

    @property
    def by_requests(self) -> Part | None:
        """The first component that is scaled on the number of requests at the gateway, or None."""
        return next((part for part in self.parts if part.scaler.by == "requests"), None)


def group_name(part: str) -> str:
    """Return the name of the LeaderWorkerSet of the component with the name ``part``, shortened if necessary."""
    return f"lws-{ending(part, LONGEST_NAME - 4)}"


def workload_names(service: str, component: str) -> tuple[tuple[Kind, str], ...]:
    """Return the kind and name of each workload that a component may have."""
    part = names.component_name(service, component)
    return ((DEPLOYMENT, part), (LEADER_WORKER_SET, group_name(part)))
