# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.

"""The serving APIs: where each kind lives, when it is ready, when it has failed for good. Nothing here acts.

What is known of each API stands in ``_apis_data.py``. The modules, the wait engine and the messages read it from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.slipway.inference.plugins.module_utils._apis_data import APIS
from ansible_collections.slipway.inference.plugins.module_utils._rules import Condition, Rule, read


@dataclass(frozen=True)
class Need:
    """An object of the same namespace that another cannot do without; ``path``: of the field that has its name."""

    kind: Kind
    path: str


@dataclass(frozen=True)
class Fact:
    """What else a summary shows: its name there, the path of the field, and what it is where there is none."""

    name: str
    path: str
    otherwise: Any


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind of resource, and what its status means."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    # None: it is ready as soon as it is there, and never fails.
    ready: Rule | None = None
    failed: Rule | None = None
    # It is as it was asked to be, but nothing answers, and nothing is to be waited for.
    settled: Rule | None = None
    needs: tuple[Need, ...] = ()
    # List of what its status has seen of those: name, uid, generation, ready.
    seen: str = ""
    # Its controller finds the spec wrong, and does not wait for what it needs to say so.
    refused: Rule | None = None
    # Conditions that tell why it is not ready, the most telling first, each with what it is while nothing is wrong.
    telling: tuple[Condition, ...] = ()
    # Paths of what a summary shows; empty where its status has no such field.
    phase: str = "status.phase"
    url: str = "status.url"
    facts: tuple[Fact, ...] = ()
    # Label selectors, with {name} of the object, of pods that may know the cause of a failure, the likeliest first.
    pods: tuple[str, ...] = ()
    # Further kinds of the API that the same modules handle, where a manifest or a task names them.
    others: tuple[Kind, ...] = ()

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """Name in RBAC and in messages, such as models.example.com."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def all(self) -> tuple[Kind, ...]:
        """The kinds that its modules handle, itself first."""
        return (self, *self.others)

    def meant(self, name: str | None, namespace: str | None) -> Kind:
        """That of these which has this name. Without a name the one of the whole cluster, where no namespace is given
        and there is one; else itself."""
        fit = [kind for kind in self.all if (kind.kind == name if name else not (kind.namespaced or namespace))]
        return next(iter(fit), self)

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Path on the API server of an object, or of all in a namespace or in the cluster."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        scope = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return root + scope + "".join(f"/{part}" for part in (self.plural, name, subresource) if part)


EVENT = Kind("", "v1", "Event", "events")
POD = Kind("", "v1", "Pod", "pods")


def kinds(resources: list[Mapping[str, Any]]) -> dict[str, Kind]:
    """Module that handles it -> kind, of one API's resources as the data has them. Of several that one module handles
    the first with a namespace has the others."""
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
"""In place of an API's name: that of each object's apiVersion, else of its kind, else the first."""


def of_api(by_api: Mapping[str, Kind], api: str) -> tuple[Kind, ...]:
    """The kinds that objects may be of where a task names this API, or ``AUTO``."""
    return tuple(by_api.values()) if api == AUTO else (by_api[api],)


_KINDS = {api: kinds(about["resources"]) for api, about in APIS.items()}
# Kinds that the modules `model` and `model_info` handle, by the name of their API. The first is their default.
MODELS: Mapping[str, Kind] = {api: by_module["model"] for api, by_module in _KINDS.items()}
# And those of `inference_service` and `inference_service_info`.
SERVICES: Mapping[str, Kind] = {
    api: by_module["inference_service"] for api, by_module in _KINDS.items() if "inference_service" in by_module
}
# And those of `benchmark_job`.
BENCHMARKS: Mapping[str, Kind] = {
    api: by_module["benchmark_job"] for api, by_module in _KINDS.items() if "benchmark_job" in by_module
}
