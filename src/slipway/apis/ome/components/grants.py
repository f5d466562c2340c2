"""Grants: the privileges that a workload gets from the operator's manifest if an author adds to its pod. Pure.

The operator grants privileges to the processes of the manifest. An author who changes what runs in the pod, or what the
pod can read, gets none of these privileges, except those in UNRESTRICTED_SETTINGS. The same holds for an author whose
files the pod reads: weights can contain code, and so can a volume from the namespace.
"""

from __future__ import annotations

import msgspec

from slipway.kube.objects import Object
from slipway.serving.containers.freedoms import Freedom, freedoms, templates

SCHEDULING_FIELDS = frozenset(
    (
        *("affinity", "nodeSelector", "priorityClassName", "schedulerName", "tolerations"),
        *("imagePullSecrets", "runtimeClassName", "terminationGracePeriodSeconds", "topologySpreadConstraints"),
    )
)
"""Pod fields that determine where a pod runs, how its images are pulled and how it ends, but not what runs in the pod
or what it can read."""
UNRESTRICTED_SETTINGS = frozenset(("image_prefixes", "priority_classes"))
"""Settings of freedoms that do not depend on what runs in the pod. If the operator's workload has such a freedom, the
author may keep that field and value whatever else the author changes in the pod."""


OF_THE_NAMESPACE = frozenset(("configMap", "persistentVolumeClaim", "secret"))
"""Kinds of volume sources with contents that authors control."""


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of the files that a service's pods read: from the operator or from authors."""

    models: frozenset[str] = frozenset()
    """Names of the volumes that contain the service's models."""
    authors: frozenset[str] = frozenset()
    """Names of the volumes that contain files chosen by an author. If there are any, the service's pods get no
    privileges from the operator's manifest, except those in UNRESTRICTED_SETTINGS and ``account``."""
    namespace_trusted: bool = False
    """Whether the operator trusts the volumes and environment variables that a pod takes from its namespace."""
    account: str = ""
    """Name of the service account that the plan creates for a router. A pod that reads no author's files may use the
    account, even if other pods of the service read such files."""

    def clean(self, template: Object) -> bool:
        """Whether a pod template reads neither files chosen by an author, nor all environment variables of a ConfigMap
        or a Secret. If the namespace is trusted, only the volumes in ``authors`` count."""
        spec = template.get("spec") or {}
        volumes = [one for one in spec.get("volumes") or () if one.get("name") not in self.models]
        named = {one.get("name") for one in spec.get("volumes") or ()}
        if named & self.authors:
            return False
        return self.namespace_trusted or not (any(map(_of_namespace, volumes)) or _takes_variables(spec))


TRUSTED = Files(namespace_trusted=True)
"""Files that all come from the operator or from a trusted namespace."""


def granted_freedoms(workload: Object, alone: Object | None, files: Files = TRUSTED) -> frozenset[Freedom]:
    """Return the freedoms of a workload that its author may use without permission.

    ``alone`` is the same workload, built from the operator's manifest alone. If it is None, there is no such manifest,
    and the author gets no freedoms. Otherwise these are freedoms that ``alone`` also has: those in
    UNRESTRICTED_SETTINGS, and those in pods that the author has not changed and that are clean according to ``files``.
    If ``files`` has volumes of authors, only the freedom to use ``files.account`` remains of the latter.
    """
    if alone is None:
        return frozenset()
    required = freedoms([workload])
    own = dict(templates(alone))
    own_pods = [(place, pod) for place, pod in templates(workload) if _runs(pod) == _runs(own.get(place, {}))]
    clean = tuple(place for place, pod in own_pods if files.clean(pod))
    operators = required & freedoms([alone])
    free = {one for one in operators if one.setting in UNRESTRICTED_SETTINGS}
    from_files = {one for one in operators if one.field.startswith(clean)}
    if files.authors:
        from_files = {one for one in from_files if one.setting == "service_accounts" and one.value == files.account}
    return frozenset(free | from_files)


def granted_query(scaled_object: Object, alone: Object | None) -> frozenset[Freedom]:
    """Return the freedoms of a ScaledObject that its author may use without permission. The Prometheus servers and
    credentials must be those of ``alone``, the operator's ScaledObject; the query may differ. Return an empty set if
    ``alone`` is None or differs in its servers or credentials."""
    same = alone is not None and _targets(scaled_object) == _targets(alone)
    return freedoms([scaled_object]) if same else frozenset()


def _targets(scaled_object: Object) -> list[Object]:
    """Return the servers that KEDA queries, with their credentials, one object per trigger."""
    return [
        {
            "type": one["type"],
            "credentials": one.get("authenticationRef"),
            **{field: one["metadata"].get(field) for field in ("serverAddress", "authModes")},
        }
        for one in scaled_object["spec"]["triggers"]
    ]


def _of_namespace(volume: Object) -> bool:
    projected = (volume.get("projected") or {}).get("sources") or ()
    return any(source.keys() & OF_THE_NAMESPACE for source in (volume, *projected))


def _takes_variables(spec: Object) -> bool:
    """Whether any container imports all entries of a ConfigMap or a Secret as environment variables, with
    ``envFrom``."""
    return any(one.get("envFrom") for part in ("initContainers", "containers") for one in spec.get(part) or ())


def _runs(template: Object) -> Object:
    """Return the fields of a pod template that define the pod's processes and the data that they can read."""
    spec = template.get("spec") or {}
    fields = {field: value for field, value in spec.items() if field not in SCHEDULING_FIELDS}
    for part in ("initContainers", "containers"):
        fields[part] = [
            {field: value for field, value in one.items() if field != "resources"} for one in spec.get(part) or ()
        ]
    return fields
