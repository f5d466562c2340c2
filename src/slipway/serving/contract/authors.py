"""Rules for the permissions that an author of specs can obtain through Slipway. Pure.

The controller may create any pod, so without rules a spec would give access to everything that a pod can reach. The
rules check the planned objects, regardless of the API that planned them, so a mistake in an API grants nothing. A field
that requires trust is refused unless a setting allows it, the operator's own configuration contains it, or the plan
itself creates the object that it names. A workload whose pod templates stay unchanged is not checked again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePosixPath

import msgspec

from slipway.kube.objects import PRIORITY_CLASS, ROLE_BINDING, SERVICE_ACCOUNT, Key, Kind, Object, key
from slipway.serving.containers.freedoms import Freedom, Labels, Setting, freedoms, templates
from slipway.serving.contract.api import Api, InvalidSpecError, Plan, View, World
from slipway.serving.contract.settings import PROMETHEUS_SERVER, Settings

NOT_ALLOWED = "NotAllowed"
"""Reason in the status of a resource that requests something that only the operator can allow."""
DEFAULT_ACCOUNT = "default"
ANY = "*"
SYSTEM_CLASSES = "system-"
USER = re.compile("//[^/]*@")
"""Pattern of the user and password in a URL."""


def build_allowed_plan(api: Api[View], world: World, view: View, reserved: Labels) -> Plan:
    """Return the API's plan for a resource, after checking that the resource's author may have every object in it.

    ``view`` is the API's view of the world. ``reserved`` contains the labels that authors must not set on pods. Raise
    InvalidSpecError if the spec is invalid, or with the reason ``NOT_ALLOWED`` if the author lacks a permission.
    """
    _refuse_system(key(world.resource).namespace, world.settings)
    plan = api.plan(view)
    if not api.resource.kind.namespaced and not plan.in_system_namespace:
        for child in (*plan.children, *plan.pending):
            _refuse_system(key(child).namespace, world.settings)
    refused = _refused(plan, world, msgspec.structs.replace(reserved, but=api.pod_labels))
    # The operator's own freedoms are computed only if something is refused, which is rare.
    refused = refused - api.granted(view, plan) if refused else refused
    if refused:
        raise InvalidSpecError(NOT_ALLOWED, f"{_describe_refused(refused)} {api.remedy(view, refused)}")
    return plan


def trusts(settings: Settings, namespace: str, name: str = ANY) -> bool:
    """Whether the operator trusts a model of a namespace as much as a cluster-scoped model. Without a name, whether the
    operator trusts all models of the namespace."""
    return not {ANY, f"{namespace}/{ANY}", f"{namespace}/{name}"}.isdisjoint(settings.authors.privileged_models)


def _refuse_system(namespace: str, settings: Settings) -> None:
    """Raise InvalidSpecError if ``namespace`` is Slipway's own namespace and the settings do not allow resources
    there."""
    if namespace and namespace == settings.system_namespace and not settings.authors.system_namespace:
        text = f"Nothing is served in {namespace}, the namespace of Slipway. Create the resource in another namespace."
        raise InvalidSpecError(
            NOT_ALLOWED, f"{text} The operator can allow it with the setting authors.systemNamespace."
        )


def _refused(plan: Plan, world: World, reserved: Labels) -> frozenset[Freedom]:
    """Return the freedoms in the plan's children that no setting allows, except in workloads that stay unchanged."""
    children = [child for child in (*plan.children, *plan.pending) if not _stays(child, world.children)]
    return frozenset(one for one in freedoms(children, reserved) if not _allowed(one, world.settings, plan))


def _stays(workload: Object, observed: Mapping[tuple[Kind, Key], Object]) -> bool:
    """Whether the cluster already has this workload with the same pod templates, so that the current spec grants
    nothing new."""
    expected, name = templates(workload), (workload["apiVersion"], workload["kind"], key(workload))
    there = (child for (kind, place), child in observed.items() if (kind.api_version, kind.kind, place) == name)
    return bool(expected) and any(templates(child) == expected for child in there)


def _allowed(freedom: Freedom, settings: Settings, plan: Plan) -> bool:
    return ALLOW[freedom.setting](freedom.value, settings) or _makes(plan, NAMES.get(freedom.setting), freedom.value)


def _makes(plan: Plan, kind: Kind | None, name: str) -> bool:
    """Whether a plan creates an object of this kind and name. The result is False if ``kind`` is None, because the
    freedom names no object. A ServiceAccount with permissions does not count."""
    if kind is None:
        return False
    identity = kind.api_version, kind.kind, name
    objects = (*plan.children, *plan.shared)
    named = any((one["apiVersion"], one["kind"], one["metadata"]["name"]) == identity for one in objects)
    return named and not (kind == SERVICE_ACCOUNT and _has_rights(plan, name))


def _has_rights(plan: Plan, account: str) -> bool:
    """Whether a plan binds an account to a Role, which gives its pods more permissions than their author has."""
    bindings = (one for one in plan.children if one["kind"] == ROLE_BINDING.kind)
    return any(subject["name"] == account for one in bindings for subject in one["subjects"])


def _class(name: str, settings: Settings) -> bool:
    """Whether a priority class is allowed. System classes must be listed by name, because their pods preempt all other
    pods on any node."""
    allowed = settings.authors.priority_classes
    return name in allowed or (ANY in allowed and not name.startswith(SYSTEM_CLASSES))


def _image(reference: str, settings: Settings) -> bool:
    prefixes = settings.authors.image_prefixes
    return not prefixes or any(_begins(reference, prefix) for prefix in prefixes)


def _begins(reference: str, prefix: str) -> bool:
    """Whether an image belongs to a registry or repository. ``ghcr.io/acme`` does not cover ``ghcr.io/acme-corp``."""
    rest = reference.removeprefix(prefix)
    return reference.startswith(prefix) and (not rest or prefix[-1:] in "/:@" or rest[0] in "/:@")


def _path(path: str, settings: Settings) -> bool:
    """Whether a node path is an allowed directory or is below one."""
    place = PurePosixPath(path)
    roots = [PurePosixPath(root) for root in settings.sources.allowed_host_path_roots]
    return ".." not in place.parts and any(root in (place, *place.parents) for root in roots)


def _account(name: str, settings: Settings) -> bool:
    allowed = settings.authors.service_accounts
    return name == DEFAULT_ACCOUNT or name in allowed or ANY in allowed


def _server(address: str, settings: Settings) -> bool:
    """Whether a Prometheus address is allowed. The texts are compared, because KEDA may parse an unusual address
    differently."""
    servers = (PROMETHEUS_SERVER, *settings.authors.prometheus_servers)
    return ANY in servers or address.rstrip("/") in [one.rstrip("/") for one in servers]


def _credentials(name: str, settings: Settings) -> bool:
    allowed = settings.authors.trigger_authentications
    return name in allowed or ANY in allowed


ALLOW: dict[Setting, Callable[[str, Settings], bool]] = {
    "service_accounts": _account,
    "priority_classes": _class,
    "prometheus_servers": _server,
    "trigger_authentications": _credentials,
    "image_prefixes": _image,
    "host_path": _path,
    "privileged": lambda _value, settings: settings.authors.privileged,
    "any_volume": lambda _value, settings: settings.authors.any_volume,
    "node_ports": lambda _value, settings: settings.authors.node_ports,
    "": lambda _value, _settings: False,
}
NAMES: dict[Setting, Kind] = {"service_accounts": SERVICE_ACCOUNT, "priority_classes": PRIORITY_CLASS}
"""Kinds of the objects that a freedom names, by setting. A plan may name an object that it creates, unless the object
carries permissions."""
SETTINGS: dict[Setting, str] = {
    "service_accounts": "authors.serviceAccounts",
    "priority_classes": "authors.priorityClasses",
    "prometheus_servers": "authors.prometheusServers",
    "trigger_authentications": "authors.triggerAuthentications",
    "image_prefixes": "authors.imagePrefixes",
    "host_path": "sources.allowedHostPathRoots",
    "privileged": "authors.privileged",
    "any_volume": "authors.anyVolume",
    "node_ports": "authors.nodePorts",
}
"""Names of the settings as in the settings file."""


def _describe_refused(refused: Iterable[Freedom]) -> str:
    by_place = sorted(refused, key=lambda one: (one.child, one.field))
    return f"Not allowed without the operator's permission: {'; '.join(_each(one) for one in by_place)}."


def _each(freedom: Freedom) -> str:
    value = f" ({USER.sub('//***@', freedom.value)})" if freedom.value else ""
    how = f"setting {SETTINGS[freedom.setting]}" if freedom.setting else "no setting allows it"
    return f"{freedom.field}{value} of the {freedom.child}: {how}"
