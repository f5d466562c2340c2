# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.

"""The serving APIs: the path of each kind, and the rules for when an object is ready or has failed. All functions are
pure.

The data for each API is in ``_apis_data.py``. The modules, the wait engine and the messages use this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.slipway.inference.plugins.module_utils._apis_data import APIS
from ansible_collections.slipway.inference.plugins.module_utils._rules import Condition, Rule, read


@dataclass(frozen=True)
class Need:
    """A kind that another object in the same namespace requires. ``path`` is the field of that object with the required
    object's name."""

    kind: Kind
    path: str


@dataclass(frozen=True)
class Fact:
    """An additional field of a summary: its name, the path of the object's field, and the value to use if the field is
    missing."""

    name: str
    path: str
    otherwise: Any


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind of resource, and the rules that define what its status means."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    # With None, an object is ready as soon as it exists, and never fails.
    ready: Rule | None = None
    failed: Rule | None = None
    # Holds if the object matches its spec, but serves no requests. Waiting is then useless.
    settled: Rule | None = None
    needs: tuple[Need, ...] = ()
    # Path of the status list with the observed needs: name, uid, generation and ready.
    seen: str = ""
    # Holds if the spec is invalid, regardless of the state of the needs.
    refused: Rule | None = None
    # Conditions that explain why an object is not ready, the most relevant first, each with its normal status.
    telling: tuple[Condition, ...] = ()
    # Paths of the fields in a summary. Empty if the status has no such field.
    phase: str = "status.phase"
    url: str = "status.url"
    facts: tuple[Fact, ...] = ()
    # Label selectors, with {name} of the object, of pods that may show the cause of a failure, the likeliest first.
    pods: tuple[str, ...] = ()
    # Other kinds of the API that the same modules handle if a manifest or a task names them.
    others: tuple[Kind, ...] = ()

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """The kind's name in RBAC and in messages, such as ``models.example.com``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def all(self) -> tuple[Kind, ...]:
        """The kinds that the same Ansible modules handle, with this kind first."""
        return (self, *self.others)

    def meant(self, name: str | None, namespace: str | None) -> Kind:
        """Return the kind in ``all`` with this name. Without a name and a namespace, return the cluster-scoped kind if
        there is one. Otherwise, return this kind."""
        fit = [kind for kind in self.all if (kind.kind == name if name else not (kind.namespaced or namespace))]
        return next(iter(fit), self)

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the API server's path of an object. Without a name, return the path of all objects in a namespace or
        in the cluster."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        scope = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return root + scope + "".join(f"/{part}" for part in (self.plural, name, subresource) if part)


EVENT = Kind("", "v1", "Event", "events")
POD = Kind("", "v1", "Pod", "pods")


def kinds(resources: list[Mapping[str, Any]]) -> dict[str, Kind]:
    """Return the kind that each Ansible module handles, by module name. ``resources`` is the data of one API.

    If a module handles several kinds, the first namespaced one has the others in ``others``.
    """
    by_module: dict[str, Kind] = {}
    by_name: dict[str, Kind] = {}
    for module in dict.fromkeys(resource["module"] for resource in resources if resource.get("module")):
        mine = [resource for resource in resources if resource.get("module") == module]
        main = next((resource for resource in mine if resource.get("namespaced", True)), mine[0])
        others = tuple(_kind(resource, by_name) for resource in mine if resource is not main)
        by_module[module] = _kind(main, by_name, others)
        by_name |= {kind.kind: kind for kind in by_module[module].all}
    return by_module


def _kind(resource: Mapping[str, Any], by_name: Mapping[str, Kind], others: tuple[Kind, ...] = ()) -> Kind:
    fields = {name: value for name, value in resource.items() if name not in ("module", "wakes")}
    for rule in ("ready", "failed", "settled", "refused"):
        if rule in fields:
            fields[rule] = read(fields[rule])
    fields["telling"] = tuple(read(condition) for condition in fields.get("telling", ()))
    fields["needs"] = tuple(Need(by_name[need["kind"]], need["path"]) for need in fields.get("needs", ()))
    fields["facts"] = tuple(Fact(**fact) for fact in fields.get("facts", ()))
    fields["pods"] = tuple(fields.get("pods", ()))
    return Kind(**fields, others=others)


AUTO = "auto"
"""Value in place of an API's name. The API then follows from each object's apiVersion, or else from its kind, or else
it is the first API."""


def of_api(by_api: Mapping[str, Kind], api: str) -> tuple[Kind, ...]:
    """Return the kinds that objects may have if a task names this API or ``AUTO``."""
    return tuple(by_api.values()) if api == AUTO else (by_api[api],)


_KINDS = {api: kinds(about["resources"]) for api, about in APIS.items()}
# Kinds that the modules `model` and `model_info` handle, by the name of their API. The first is their default.
MODELS: Mapping[str, Kind] = {api: by_module["model"] for api, by_module in _KINDS.items()}
# Kinds that the modules `inference_service` and `inference_service_info` handle, by the name of their API.
SERVICES: Mapping[str, Kind] = {
    api: by_module["inference_service"] for api, by_module in _KINDS.items() if "inference_service" in by_module
}
# Kinds that the module `benchmark_job` handles, by the name of its API.
BENCHMARKS: Mapping[str, Kind] = {
    api: by_module["benchmark_job"] for api, by_module in _KINDS.items() if "benchmark_job" in by_module
}
