"""Trust: the authors of the files that a service reads, and advice for authors whose files keep a runtime from granting
its rights. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from slipway.apis.ome import names
from slipway.apis.ome.components.grants import Files
from slipway.apis.ome.components.pods import volume_name
from slipway.apis.ome.models.storage import Mount
from slipway.apis.ome.services.service import Service
from slipway.kube.objects import Object, key
from slipway.serving.containers.freedoms import Freedom, freedoms
from slipway.serving.contract.authors import trusts
from slipway.serving.contract.settings import Settings
from slipway.serving.contract.table import TAKE_OUT

ROUTER = (
    "The account of a router can read all pods of the namespace. Use the router of a ClusterServingRuntime without "
    "changes, or set serviceAccountName: default for a router that does not list pods."
)


def files_of(service: Service, settings: Settings) -> Files:
    """Return the origin of a service's files. Cluster-scoped models belong to the operator. A BaseModel belongs to its
    author, unless the operator trusts that author or model."""
    return Files(
        models=frozenset(volume_name(mount) for mount in service.mounts),
        authors=frozenset(volume_name(mount) for mount in _untrusted(service, settings)),
        namespace_trusted=trusts(settings, service.namespace),
        account=names.component_name(service.name, "router"),
    )


def remedy(service: Service, settings: Settings, refused: frozenset[Freedom], alone: Iterable[Object]) -> str:
    """Return advice for an author whose service needs rights that it does not get. ``refused``: the missing rights;
    ``alone``: the objects that the operator's runtime would create without the author's changes."""
    if any(one.setting == "service_accounts" and one.value == files_of(service, settings).account for one in refused):
        return ROUTER
    if service.runtime is None or not refused & freedoms(alone):
        return TAKE_OUT
    runtime = f"The ClusterServingRuntime {key(service.runtime).name} has this right"
    for mount in _untrusted(service, settings):
        named = f"the {mount.kind.kind} {mount.namespace}/{mount.name}"
        do = "Use a ClusterBaseModel or another runtime, or ask the operator to allow the model"
        return f"{runtime} only for cluster models, not for {named}. {do}: setting authors.privilegedModels."
    condition = (
        "only for pods that read no ConfigMap, Secret or claim of the namespace and that the service does not change"
    )
    return f"{runtime} {condition}. Remove your changes, or use another runtime."


def _untrusted(service: Service, settings: Settings) -> tuple[Mount, ...]:
    return tuple(one for one in service.mounts if one.namespace and not trusts(settings, one.namespace, one.name))
