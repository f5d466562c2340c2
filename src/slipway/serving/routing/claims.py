"""Rules for which model IDs a Service may have, and which of several Services gets an ID. Pure.

Three rules decide which IDs a Service may have, even if the rightful owner does not exist at the moment:

- ``namespace/...`` belongs to that namespace. A first part that could be a namespace's name counts as one even if the
  namespace does not exist, because it may be created later. The operator must list organizations of hubs with such
  names (``meta-llama``); names with capitals or dots (``Qwen``) cannot be namespaces.
- An ID that the operator assigned to a namespace belongs to that namespace.
- Services in namespaces that the operator did not select get no ID.

An ID goes to the oldest Service that may have it as a name. If there is none, it goes to the oldest Service that may
have it as an alias. The controller and the gateway use the same rules, so a model's status matches the gateway's
behavior.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

import msgspec

from slipway.kube.objects import Object
from slipway.serving.routing.route import MODEL_ID, Refused, RoutedService
from slipway.serving.routing.selector import InvalidSelectorError, parse

NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
NOT_ROUTED = "is not served, because the gateway does not serve its namespace (routedNamespaces)"


class Rules(NamedTuple):
    """The operator's rules for model IDs."""

    owners: Mapping[str, str] = {}
    """Map of a model ID to the only namespace whose Services may have it."""
    organizations: frozenset[str] = frozenset()
    """First parts of IDs that name an organization of a hub, although a namespace could have the same name."""
    namespaces: frozenset[str] | None = None
    """Namespaces whose Services the gateway serves. None means all namespaces."""

    def serves(self, namespace: str) -> bool:
        """Whether the gateway serves the Services of this namespace."""
        return self.namespaces is None or namespace in self.namespaces

    def refusal(self, namespace: str, model: str) -> str:
        """Return why no Service of the namespace may have this model ID, as the end of a sentence that begins with the
        ID. The result is empty if a Service may have it."""
        if not self.serves(namespace):
            return NOT_ROUTED
        owner = self.owners.get(model)
        if owner is not None:
            return "" if owner == namespace else f"belongs to namespace {owner} (idOwners)"
        first, slash, _unused = model.partition("/")
        if not slash or first == namespace or first in self.organizations or not NAMESPACE.fullmatch(first):
            return ""
        return f"belongs to namespace {first}, unless hubOrganizations names {first}"

    def apply(self, service: RoutedService) -> RoutedService:
        """Return the Service with its forbidden IDs added to ``refused``, and its forbidden aliases moved from the
        route to ``denied``."""
        refused_models = {model for model, _unused in service.refused}
        qualified = (service.qualified,) if service.qualified else ()
        ids = [model for model in dict.fromkeys((*service.route.models, *qualified)) if model not in refused_models]
        refused = [Refused(model, why) for model in ids if (why := self.refusal(service.namespace, model))]
        service = service._replace(refused=(*service.refused, *refused)) if refused else service
        refusals = [Refused(model, self.refusal(service.namespace, model)) for model in service.route.aliases]
        denied = tuple(one for one in refusals if one.why)
        if not denied:
            return service
        aliases = tuple(one.model for one in refusals if not one.why)
        return service._replace(route=msgspec.structs.replace(service.route, aliases=aliases), denied=denied)


DEFAULT = Rules()
"""The rules that apply without settings of the operator. ``namespace/...`` still belongs to that namespace."""


def _first(name: str) -> bool:
    return "/" not in name and MODEL_ID.fullmatch(name) is not None


def faults(owners: Mapping[str, str], organizations: Iterable[str], selector: str) -> list[str]:
    """Return messages about invalid values of the operator's settings ``idOwners``, ``hubOrganizations`` and
    ``routedNamespaces``, each with the setting's name. The result is empty if all are valid."""
    messages = [f"idOwners: {model!r} is not a model ID" for model in owners if not MODEL_ID.fullmatch(model)]
    messages += [f"idOwners: {name!r} is not a namespace" for name in owners.values() if not NAMESPACE.fullmatch(name)]
    messages += [
        f"hubOrganizations: {name!r} is not a first part of an ID" for name in organizations if not _first(name)
    ]
    try:
        parse(selector)
    except InvalidSelectorError as error:
        messages.append(f"routedNamespaces: {selector!r} is not a label selector: {error}")
    return messages


def only_name(namespace: Object) -> Object:
    """Return a namespace reduced to its name, UID and resource version, for the cache."""
    metadata = namespace["metadata"]
    return {"metadata": {field: metadata[field] for field in ("name", "uid", "resourceVersion") if field in metadata}}


def age(service: RoutedService) -> tuple[int, str]:
    """Return the key that sorts Services by creation, oldest first, and then by ``namespace/name``."""
    return service.since, service.key


def by_age(services: Iterable[RoutedService]) -> list[RoutedService]:
    """Return the Services in the order in which they get IDs, oldest first."""
    return sorted(services, key=age)


def winners(services: Iterable[RoutedService]) -> dict[str, RoutedService]:
    """Return the Service that serves each public model ID, by ID.

    The controller and the gateway both call this function and ``owners``, so a model's status matches the gateway's
    behavior.
    """
    decided: dict[str, RoutedService] = {}
    for service in by_age(services):
        for model in service.ids:
            decided.setdefault(model, service)
    return decided


def owners(services: Iterable[RoutedService]) -> dict[str, RoutedService]:
    """Return the Service that serves each qualified ID ``namespace/name``, by ID. If Services of two APIs have the same
    qualified ID, the older one gets it."""
    decided: dict[str, RoutedService] = {}
    for service in by_age(services):
        if service.qualified and not service.why_not(service.qualified):
            decided.setdefault(service.qualified, service)
    return decided


def alias_holders(services: Iterable[RoutedService], names: Container[str]) -> dict[str, RoutedService]:
    """Return the Service that serves each alias, by alias. Aliases in ``names``, which are IDs of Services, are
    skipped."""
    decided: dict[str, RoutedService] = {}
    for service in by_age(services):
        for alias in service.route.aliases:
            if alias not in names:
                decided.setdefault(alias, service)
    return decided
