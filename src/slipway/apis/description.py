"""Description: what installers and clients need to know about an API in addition to its types, as data. Pure.

``slipway apis`` renders it for the Ansible collection. Plugins and roles name no API themselves.
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
"""Verbs on what several resources use: it is created and annotated, never deleted."""
BY_NAME = ("get", "create", "patch", "delete")
"""Verbs on children of a kind that is never listed, since others keep theirs there."""


class Need(msgspec.Struct, frozen=True):
    """An object of the same namespace that a resource cannot do without."""

    kind: str
    """Of the same API."""
    path: str
    """Of the field that has its name."""


class Fact(msgspec.Struct, frozen=True):
    """A further field that a summary of the resource shows."""

    name: str
    path: str
    otherwise: str | int | tuple[()]
    """What the summary says where the field is missing."""


class Resource(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A kind that users write, and what its status means."""

    kind: Kind
    module: Literal["", "model", "inference_service", "benchmark_job"] = ""
    """The Ansible module that handles it; empty: none. Of two kinds of a module one belongs to the cluster: it is meant
    where a task names no namespace."""
    readiness: Readiness
    needs: tuple[Need, ...] = ()
    seen: str = ""
    """Path of the list of those in its status, each with name, uid, generation and ready."""
    phase: str = "status.phase"
    url: str = "status.url"
    """Paths; empty where the status has no such field."""
    facts: tuple[Fact, ...] = ()
    pods: tuple[str, ...] = ()
    """Label selectors, with ``{name}``, of pods that may know why it failed, the likeliest first."""
    authored: bool = True
    """Whether authors of models write it, where it has a namespace; else only the operator does."""
    wakes: bool = False
    """Whether the gateway sets its scale subresource from zero to one, and the autoscaler sets it at all."""
    scaled: tuple[Kind, ...] = ()
    """Kinds of children that they scale in its place. The plan has a Role for the gateway that names the child."""


class Grant(msgspec.Struct, frozen=True):
    """A right of the controller."""

    kind: Kind
    verbs: tuple[str, ...]

    def rule(self) -> Object:
        """The same as a rule of RBAC."""
        return rule(self.kind.group, [self.kind.plural], self.verbs)


class Grants(msgspec.Struct, frozen=True, kw_only=True):
    """Rights of the controller beyond those on the API's own kinds and those that it has for every API."""

    work: tuple[Grant, ...] = ()
    """Wherever there are resources."""
    cluster: tuple[Grant, ...] = ()
    """On kinds that have no namespace."""
    own: tuple[Grant, ...] = ()
    """In the controller's namespace."""


class Scrape(msgspec.Struct, frozen=True, omit_defaults=True):
    """The engines that Prometheus asks for metrics, at one port of their pods."""

    labels: Mapping[str, Mapping[str, str]]
    """Label of each target -> ``{from: label of the pod, prefix: text before it}`` or ``{value: text}``."""
    match: Mapping[str, str] = {}
    """Labels of the pods."""
    expressions: tuple[Mapping[str, Any], ...] = ()
    """Further requirements, as in a label selector."""
    ports: tuple[str, ...] = ("http",)
    """Names that the port may have."""


class Sample(NamedTuple):
    """A value of a metric of the controller. All of one metric have the same text, and the same labels in one order."""

    name: str
    help: str
    labels: Mapping[str, str]
    value: float


Samples = Callable[[Mapping[Kind, Sequence[Object]], Settings], Iterable[Sample]]
"""What an API measures of its resources, by kind."""


class NoSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of an API that has no settings of its own."""


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """One API."""

    name: str
    resources: tuple[Resource, ...]
    grants: Grants = Grants()
    scrape: Scrape | None = None
    """None: nothing of it is served."""
    pod_labels: tuple[str, ...] = ()
    """Labels that all its pods have, where ``app.kubernetes.io/managed-by`` does not tell that they are ours."""
    pod_manager: str = ""
    """What ``app.kubernetes.io/managed-by`` of its pods says, where it is not ``slipway``."""
    adapter_label: str = ""
    """Prefix of the labels of pods that say which adapters they serve."""
    secrets: Mapping[str, str] = {}
    """Source of weights -> the Secret of a namespace that opens it, unless the operator names another."""
    original: str = ""
    """``app.kubernetes.io/name`` of the original's controller; empty: it cannot be told by a label."""
    settings: type[msgspec.Struct] = NoSettings
    """The operator's choices for this API alone, in the controller's settings file."""
    documents: Mapping[str, Object] = {}
    """Name -> a JSON Schema that the collection checks a variable against."""
    samples: Samples | None = None
    """Metrics of its resources beside their conditions."""


def rule(group: str, resources: list[str], verbs: tuple[str, ...]) -> Object:
    """A rule of RBAC."""
    return {"apiGroups": [group], "resources": resources, "verbs": [*verbs]}
