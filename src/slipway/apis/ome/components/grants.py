"""Grants: which privileges of a workload come from the operator, if its pod combines two manifests. Pure.

Authors add their part to the pod of the operator's manifest. The manifest's privileges are for the process that it
runs. An author who changes what runs in the pod, or what it can see, gets none of them. Nor does an author whose
files the pods read: weights can contain code, and so can a volume from the namespace.
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
"""Pod fields that determine where it runs and for how long, but not what runs in it."""
UNRESTRICTED_SETTINGS = frozenset(("image_prefixes", "priority_classes"))
"""Freedoms that do not depend on what runs in the pod: anyone who has them has them for any pod."""


OF_THE_NAMESPACE = frozenset(("configMap", "persistentVolumeClaim", "secret"))
"""Volume sources whose contents authors control."""


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """The authors of the files that a service's pods read."""

    models: frozenset[str] = frozenset()
    """Names of the volumes with the models."""
    authors: frozenset[str] = frozenset()
    """Names of the volumes with files that an author chose. If a pod has one, the service gets none of the rights of
    the operator's manifest."""
    namespace_trusted: bool = False
    """Whether the operator trusts the volumes and variables that a pod takes from its namespace."""
    account: str = ""
    """Name of the account that the plan creates. A pod that reads nothing from an author may have it, whatever other
    pods read."""

    def clean(self, template: Object) -> bool:
        """Whether a pod reads nothing that an author chose."""
        spec = template.get("spec") or {}
        volumes = [one for one in spec.get("volumes") or () if one.get("name") not in self.models]
        named = {one.get("name") for one in spec.get("volumes") or ()}
        if named & self.authors:
            return False
        return self.namespace_trusted or not (any(map(_of_namespace, volumes)) or _takes_variables(spec))


TRUSTED = Files(namespace_trusted=True)
"""No file comes from an author."""


def granted_freedoms(workload: Object, alone: Object | None, files: Files = TRUSTED) -> frozenset[Freedom]:
    """Returns the freedoms of a workload that its author needs no permission for.

    ``alone``: the same workload as built from the operator's manifest alone; None: there is no such manifest.
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
    """Returns the granted freedoms of a ScaledObject. The server and the credentials must both be the operator's; the
    query may be the author's."""
    same = alone is not None and _targets(scaled_object) == _targets(alone)
    return freedoms([scaled_object]) if same else frozenset()


def _targets(scaled_object: Object) -> list[Object]:
    """Returns the servers that KEDA queries, with their credentials."""
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
    """Whether a container imports all variables of a ConfigMap or a Secret, whatever their names."""
    return any(one.get("envFrom") for part in ("initContainers", "containers") for one in spec.get(part) or ())


def _runs(template: Object) -> Object:
    """Returns the fields of a pod that define its processes and the data that they can read."""
    spec = template.get("spec") or {}
    fields = {field: value for field, value in spec.items() if field not in SCHEDULING_FIELDS}
    for part in ("initContainers", "containers"):
        fields[part] = [
            {field: value for field, value in one.items() if field != "resources"} for one in spec.get(part) or ()
        ]
    return fields
