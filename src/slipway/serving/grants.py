"""Grants: what of a workload's freedoms is the operator's, where a pod is made of two manifests. Pure.

The operator's manifest is for services of authors, who say their part of the same pod. What it brings it brings for the
process that it runs: an author who changes what runs in the pod, or what that sees, has none of it.
"""

from __future__ import annotations

from collections.abc import Collection

from slipway.kube.objects import Object
from slipway.serving.freedoms import Freedom, freedoms, templates

WHERE = frozenset(
    (
        *("affinity", "nodeSelector", "priorityClassName", "schedulerName", "tolerations"),
        *("imagePullSecrets", "runtimeClassName", "terminationGracePeriodSeconds", "topologySpreadConstraints"),
    )
)
"""Fields of a pod that say where it runs and for how long, and nothing of what runs in it."""
ANYBODYS = frozenset(("image_prefixes", "priority_classes"))
"""What is not given to a process: who may have it may have it whatever else the pod is."""


def granted(made: Object, alone: Object | None, folders: Collection[str] = ()) -> frozenset[Freedom]:
    """The freedoms of a workload that its author need not be allowed.

    ``alone``: the same workload as the operator's manifest would have it if the author had said nothing; None: there is
    no such manifest. ``folders``: of the nodes, which the API itself lets pods read.
    """
    found = freedoms([made])
    read = {one for one in found if one.setting == "host_path" and one.value in folders}
    if alone is None:
        return frozenset(read)
    own = dict(templates(alone))
    kept = tuple(place for place, pod in templates(made) if _runs(pod) == _runs(own.get(place, {})))
    operators = found & freedoms([alone])
    return frozenset(read) | {one for one in operators if one.setting in ANYBODYS or one.field.startswith(kept)}


def _runs(template: Object) -> Object:
    """What runs in a pod and what it sees."""
    spec = template.get("spec") or {}
    found = {field: value for field, value in spec.items() if field not in WHERE}
    for part in ("initContainers", "containers"):
        found[part] = [
            {field: value for field, value in one.items() if field != "resources"} for one in spec.get(part) or ()
        ]
    return found
