"""The description of an API: data that installers and clients need in addition to its types.

``slipway apis`` writes the descriptions to the Ansible collection, so that no plugin or role names an API.
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
"""Verbs on children, which the controller creates, changes and deletes."""
SHARE = (*GET, "create", "patch")
"""Verbs on objects that several resources share. The controller creates and annotates these objects, but never deletes
them."""
BY_NAME = ("get", "create", "patch", "delete")
"""Verbs on children of a kind that the controller never lists, because other users keep private objects of that
kind."""


class Need(msgspec.Struct, frozen=True):
    """An object in the same namespace that a resource requires."""

    kind: str
    """A kind of the same API."""
    path: str
    """Path of the resource's field that contains the object's name, such as ``spec.modelRef``."""


class Fact(msgspec.Struct, frozen=True):
    """An additional field in the summary of a resource that the Ansible modules return."""

    name: str
    path: str
    """Path of the status field with the value."""
    otherwise: str | int | tuple[()]
    """Value in the summary if the field is missing."""


class Resource(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A kind that users write, and the meaning of its status."""

    kind: Kind
    module: Literal["", "model", "inference_service", "benchmark_job"] = ""
    """The Ansible module that handles the kind; empty: none. If a module handles two kinds, one of them is
    cluster-scoped, for tasks without a namespace."""
    readiness: Readiness
    needs: tuple[Need, ...] = ()
    seen: str = ""
    """Path of the status field that lists observed objects, each with name, uid, generation and ready; empty: there is
    none."""
    phase: str = "status.phase"
    url: str = "status.url"
    """Paths of the status fields with the phase and the URL; empty: there is none."""
    facts: tuple[Fact, ...] = ()
    pods: tuple[str, ...] = ()
    """Label selectors of the pods that may show why a resource failed, the most likely first. ``{name}`` is the
    resource's name."""
    authored: bool = True
    """Whether authors of models may write the kind. Only the operator may write a cluster-scoped kind, whatever this
    value is."""
    wakes: bool = False
    """Whether resources of the kind are scaled: by the gateway from zero to one replica, and by the autoscaler to any
    number."""
    scaled: tuple[Kind, ...] = ()
    """Kinds of children that are scaled instead of the resource. The plan contains a Role that lets the gateway scale
    only the resource's child."""


class Grant(msgspec.Struct, frozen=True):
    """A permission of the controller."""

    kind: Kind
    verbs: tuple[str, ...]

    def rule(self) -> Object:
        """Return the permission as an RBAC rule."""
        return rule(self.kind.group, [self.kind.plural], self.verbs)


class Grants(msgspec.Struct, frozen=True, kw_only=True):
    """Permissions of the controller beyond those on the API's own kinds and those that every API needs."""

    work: tuple[Grant, ...] = ()
    """Permissions in the namespaces that contain resources of the API."""
    cluster: tuple[Grant, ...] = ()
    """Permissions on cluster-scoped kinds."""
    own: tuple[Grant, ...] = ()
    """Permissions in the controller's namespace."""


class Scrape(msgspec.Struct, frozen=True, omit_defaults=True):
    """The engines whose metrics Prometheus scrapes, on one port of their pods."""

    labels: Mapping[str, Mapping[str, str]]
    """Label of each target -> ``{from: pod label, prefix: text before its value}`` or ``{value: constant text}``."""
    match: Mapping[str, str] = {}
    """Labels that the pods must have."""
    expressions: tuple[Mapping[str, Any], ...] = ()
    """Additional requirements for the pods' labels, in the format of ``matchExpressions``."""
    ports: tuple[str, ...] = ("http",)
    """Possible names of the pods' metrics port."""


class Sample(NamedTuple):
    """A value of a metric of the controller. All samples of a metric have the same help text, and the same labels in
    the same order."""

    name: str
    help: str
    labels: Mapping[str, str]
    value: float


Samples = Callable[[Mapping[Kind, Sequence[Object]], Settings], Iterable[Sample]]
"""A function that measures an API's resources. Its arguments are the resources by kind, and the settings."""


class NoSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings type of an API that has no settings."""


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """The description of one API, which the controller and ``slipway apis`` read."""

    name: str
    resources: tuple[Resource, ...]
    grants: Grants = Grants()
    scrape: Scrape | None = None
    """The API's engines; None: it runs none."""
    pod_labels: tuple[str, ...] = ()
    """Names of the labels that identify the API's pods, if ``app.kubernetes.io/managed-by`` does not identify them as
    Slipway's."""
    pod_manager: str = ""
    """Value of ``app.kubernetes.io/managed-by`` on the API's pods, if it is not ``slipway``."""
    adapter_label: str = ""
    """Prefix of the pod labels that list the adapters of a pod; empty: there are none."""
    secrets: Mapping[str, str] = {}
    """Source of weights -> default name of the Secret with its credentials, in the namespace of a resource."""
    original: str = ""
    """``app.kubernetes.io/name`` of the original project's controller; empty: no label identifies it."""
    settings: type[msgspec.Struct] = NoSettings
    """Type of the settings that only this API has in the controller's settings file."""
    documents: Mapping[str, Object] = {}
    """Name of a schema -> JSON Schema with which the collection validates a variable. ``slipway apis`` writes each to a
    file with its name."""
    samples: Samples | None = None
    """Function that measures the API's resources, in addition to the metrics of their conditions; None: there is
    nothing to measure."""


def rule(group: str, resources: list[str], verbs: tuple[str, ...]) -> Object:
    """Return an RBAC rule for resources of one API group."""
    return {"apiGroups": [group], "resources": resources, "verbs": [*verbs]}
