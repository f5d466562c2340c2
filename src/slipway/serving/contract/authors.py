"""Authors: which permissions an author of specs can obtain through Slipway. Pure.

The controller may create any pod, so without rules a spec would give access to everything that a pod can reach. The
rules check the planned objects, whichever API planned them, so an oversight of an API grants nothing. Fields that
require trust are refused, unless a setting allows them, they come from the operator's own configuration, or the plan
itself creates the objects that they name.
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
"""Reason of a resource that requests something that only the operator can allow."""
DEFAULT_ACCOUNT = "default"
ANY = "*"
SYSTEM_CLASSES = "system-"
USER = re.compile("//[^/]*@")
"""User and password in a URL."""


def build_allowed_plan(api: Api[View], world: World, view: View, reserved: Labels) -> Plan:
    """Returns the API's plan for a resource if its author is allowed to have it. ``view``: the API's view of the world;
    ``reserved``: labels that authors must not set on pods.

    Raises InvalidSpecError, with the reason ``NOT_ALLOWED`` if the author is not allowed.
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
    """Whether the operator trusts a model of a namespace like one of the cluster. Without a name: all models there."""
    return not {ANY, f"{namespace}/{ANY}", f"{namespace}/{name}"}.isdisjoint(settings.authors.privileged_models)


def _refuse_system(namespace: str, settings: Settings) -> None:
    """Raises InvalidSpecError if a resource would serve in Slipway's own namespace."""
    if namespace and namespace == settings.system_namespace and not settings.authors.system_namespace:
        text = f"Nothing is served in {namespace}, the namespace of Slipway. Create the resource in another namespace."
        raise InvalidSpecError(
            NOT_ALLOWED, f"{text} The operator can allow it with the setting authors.systemNamespace."
        )


def _refused(plan: Plan, world: World, reserved: Labels) -> frozenset[Freedom]:
    """Returns the freedoms that no setting allows any author."""
    children = [child for child in (*plan.children, *plan.pending) if not _stays(child, world.children)]
    return frozenset(one for one in freedoms(children, reserved) if not _allowed(one, world.settings, plan))


def _stays(workload: Object, observed: Mapping[tuple[Kind, Key], Object]) -> bool:
    """Whether a workload is kept unchanged and thus does not depend on the current spec."""
    expected, name = templates(workload), (workload["apiVersion"], workload["kind"], key(workload))
    there = (child for (kind, place), child in observed.items() if (kind.api_version, kind.kind, place) == name)
    return bool(expected) and any(templates(child) == expected for child in there)


def _allowed(freedom: Freedom, settings: Settings, plan: Plan) -> bool:
    return ALLOW[freedom.setting](freedom.value, settings) or _makes(plan, NAMES.get(freedom.setting), freedom.value)


def _makes(plan: Plan, kind: Kind | None, name: str) -> bool:
    """Whether a plan creates an object of this kind and name."""
    if kind is None:
        return False
    identity = kind.api_version, kind.kind, name
    objects = (*plan.children, *plan.shared)
    named = any((one["apiVersion"], one["kind"], one["metadata"]["name"]) == identity for one in objects)
    return named and not (kind == SERVICE_ACCOUNT and _has_rights(plan, name))


def _has_rights(plan: Plan, account: str) -> bool:
    """Whether a plan binds an account to a Role, so that its pods have more permissions than their author."""
    bindings = (one for one in plan.children if one["kind"] == ROLE_BINDING.kind)
    return any(subject["name"] == account for one in bindings for subject in one["subjects"])


def _class(name: str, settings: Settings) -> bool:
    """Whether a priority class is allowed. System classes must be listed individually: they take precedence over all
    other pods, on any node."""
    allowed = settings.authors.priority_classes
    return name in allowed or (ANY in allowed and not name.startswith(SYSTEM_CLASSES))


def _image(reference: str, settings: Settings) -> bool:
    prefixes = settings.authors.image_prefixes
    return not prefixes or any(_begins(reference, prefix) for prefix in prefixes)


def _begins(reference: str, prefix: str) -> bool:
    """Whether an image belongs to a registry or repository: ``ghcr.io/acme`` does not cover ``ghcr.io/acme-corp``."""
    rest = reference.removeprefix(prefix)
    return reference.startswith(prefix) and (not rest or prefix[-1:] in "/:@" or rest[0] in "/:@")


def _path(path: str, settings: Settings) -> bool:
    """Whether a node path is one of the allowed directories, or below one."""
    place = PurePosixPath(path)
    roots = [PurePosixPath(root) for root in settings.sources.allowed_host_path_roots]
    return ".." not in place.parts and any(root in (place, *place.parents) for root in roots)


def _account(name: str, settings: Settings) -> bool:
    allowed = settings.authors.service_accounts
    return name == DEFAULT_ACCOUNT or name in allowed or ANY in allowed


def _server(address: str, settings: Settings) -> bool:
    """Whether a Prometheus address is allowed. Compares the text, because KEDA may parse an unusual address
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
"""Kinds of the objects that freedoms name. A plan may name its own objects, unless they carry permissions."""
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
"""Names in the settings file."""


def _describe_refused(refused: Iterable[Freedom]) -> str:
    by_place = sorted(refused, key=lambda one: (one.child, one.field))
    return f"Not allowed without the operator's permission: {'; '.join(_each(one) for one in by_place)}."


def _each(freedom: Freedom) -> str:
    value = f" ({USER.sub('//***@', freedom.value)})" if freedom.value else ""
    how = f"setting {SETTINGS[freedom.setting]}" if freedom.setting else "no setting allows it"
    return f"{freedom.field}{value} of the {freedom.child}: {how}"
