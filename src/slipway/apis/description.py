"""Description: what installers and clients need to know about an API in addition to its types, as data. Pure.

``slipway apis`` renders it for the Ansible collection. Plugins and roles do not name any API themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from slipway.kube.objects import Kind, Object
from slipway.serving.contract.readiness import Readiness
from slipway.serving.contract.settings import Settings

GET = ("get", "list", "watch")
MANAGE = (*GET, "create", "patch", "delete")
"""Verbs on children."""
SHARE = (*GET, "create", "patch")
"""Verbs on objects shared by several resources: they are created and annotated, never deleted."""
BY_NAME = ("get", "create", "patch", "delete")
"""Verbs on children of a kind that is never listed, because other users keep private objects of it."""


class Need(msgspec.Struct, frozen=True):
    """An object of the same namespace that a resource requires."""

    kind: str
    """A kind of the same API."""
    path: str
    """Path of the field with its name."""


class Fact(msgspec.Struct, frozen=True):
    """A further field in a summary of the resource."""

    name: str
    path: str
    otherwise: str | int | tuple[()]
    """Value in the summary if the field is missing."""


class Resource(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A kind that users write, and the meaning of its status."""

    kind: Kind
    module: Literal["", "model", "inference_service", "benchmark_job"] = ""
    """The Ansible module that handles it; empty: none. If a module handles two kinds, one is cluster-scoped, for tasks
    without a namespace."""
    readiness: Readiness
    needs: tuple[Need, ...] = ()
    seen: str = ""
    """Path of a list in its status of observed objects, each with name, uid, generation and ready."""
    phase: str = "status.phase"
    url: str = "status.url"
    """Paths of status fields; empty if there is none."""
    facts: tuple[Fact, ...] = ()
    pods: tuple[str, ...] = ()
    """Label selectors, with ``{name}``, of pods that may show why it failed, the most likely first."""
    authored: bool = True
    """Whether authors of models write it, if it has a namespace; otherwise only the operator does."""
    wakes: bool = False
    """Whether the gateway scales it from zero to one, and the autoscaler scales it at all."""
    scaled: tuple[Kind, ...] = ()
    """Kinds of children that are scaled in its place. The plan has a Role for the gateway, limited to the child."""


class Grant(msgspec.Struct, frozen=True):
    """A permission of the controller."""

    kind: Kind
    verbs: tuple[str, ...]

    def rule(self) -> Object:
        """Returns the permission as an RBAC rule."""
        return rule(self.kind.group, [self.kind.plural], self.verbs)


class Grants(msgspec.Struct, frozen=True, kw_only=True):
    """Permissions of the controller beyond those on the API's own kinds and those that every API needs."""

    work: tuple[Grant, ...] = ()
    """Permissions in namespaces with resources."""
    cluster: tuple[Grant, ...] = ()
    """Permissions on cluster-scoped kinds."""
    own: tuple[Grant, ...] = ()
    """Permissions in the controller's namespace."""


class Scrape(msgspec.Struct, frozen=True, omit_defaults=True):
    """The engines whose metrics Prometheus scrapes, on one port of their pods."""

    labels: Mapping[str, Mapping[str, str]]
    """Label of each target -> ``{from: label of the pod, prefix: text before it}`` or ``{value: text}``."""
    match: Mapping[str, str] = {}
    """Labels of the pods."""
    expressions: tuple[Mapping[str, Any], ...] = ()
    """Further requirements, in label selector format."""
    ports: tuple[str, ...] = ("http",)
    """Possible names of the port."""


class Sample(NamedTuple):
    """A value of a metric of the controller. All samples of a metric have the same help text, and the same labels in
    the same order."""

    name: str
    help: str
    labels: Mapping[str, str]
    value: float


Samples = Callable[[Mapping[Kind, Sequence[Object]], Settings], Iterable[Sample]]
"""Returns an API's measurements of its resources, by kind."""


class NoSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of an API without its own settings."""


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """One API."""

    name: str
    resources: tuple[Resource, ...]
    grants: Grants = Grants()
    scrape: Scrape | None = None
    """None: the API serves nothing."""
    pod_labels: tuple[str, ...] = ()
    """Labels of all its pods, if ``app.kubernetes.io/managed-by`` does not identify them as ours."""
    pod_manager: str = ""
    """Value of ``app.kubernetes.io/managed-by`` on its pods, if it is not ``slipway``."""
    adapter_label: str = ""
    """Prefix of the pod labels that show the adapters that they serve."""
    secrets: Mapping[str, str] = {}
    """Source of weights -> name of the Secret in a namespace with its credentials, unless the operator sets another."""
    original: str = ""
    """``app.kubernetes.io/name`` of the original's controller; empty: a label cannot identify it."""
    settings: type[msgspec.Struct] = NoSettings
    """The operator's settings of only this API, in the controller's settings file."""
    documents: Mapping[str, Object] = {}
    """Name -> JSON Schema with which the collection checks a variable."""
    samples: Samples | None = None
    """Metrics of its resources in addition to their conditions."""


def rule(group: str, resources: list[str], verbs: tuple[str, ...]) -> Object:
    """Returns an RBAC rule for resources of one API group."""
    return {"apiGroups": [group], "resources": resources, "verbs": [*verbs]}
