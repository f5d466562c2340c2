"""Every golden child has only fields that Kubernetes knows, with values of the right shape.

The client's models tell: the API server would refuse, or drop, what they do not have.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from kubernetes.client import models

from tests import goldens
from tests.tables import each

PLAIN = {"str": str, "bool": bool, "int": int, "object": object}
OTHERS = {"LeaderWorkerSet": ("leaderTemplate", "workerTemplate"), "ScaledObject": ()}
"""Kinds that are not Kubernetes' own -> which of their parts are templates of pods."""
EXAMPLES = goldens.examples(*(Path(__file__).parent / "golden").iterdir())


def faults(value: Any, kind: str, place: str) -> list[str]:
    """What is wrong with ``value`` as a ``kind``, in the words of the client: ``V1Pod``, ``List[str]`` ..."""
    several = re.fullmatch(r"(List|Dict)\[(?:str, )?(.+)\]", kind)
    if several and several[1] == "List":
        if not isinstance(value, list):
            return [f"{place} is no list"]
        return [fault for index, item in enumerate(value) for fault in faults(item, several[2], f"{place}[{index}]")]
    if several:
        return [fault for name, item in value.items() for fault in faults(item, several[2], f"{place}.{name}")]
    if kind in PLAIN:
        return [] if isinstance(value, PLAIN[kind]) else [f"{place} is no {kind}"]
    model = getattr(models, kind)
    attributes = {field: attribute for attribute, field in model.attribute_map.items()}
    unknown = [f"{place}.{field} is not known" for field in value.keys() - attributes.keys()]
    inner = [(field, attributes[field]) for field in value.keys() & attributes.keys()]
    return unknown + [
        fault
        for field, attribute in inner
        for fault in faults(value[field], model.openapi_types[attribute], f"{place}.{field}")
    ]


@each(EXAMPLES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_children_have_only_fields_that_kubernetes_knows(path: Path) -> None:
    for child in goldens.expected(path)["children"]:
        if child["kind"] in OTHERS:
            for part in OTHERS[child["kind"]]:
                template = child["spec"]["leaderWorkerTemplate"][part]
                assert faults(template, "V1PodTemplateSpec", f"{child['kind']}.{part}") == []
            continue
        version = child["apiVersion"].rpartition("/")[2].capitalize()
        assert faults(child, f"{version}{child['kind']}", child["kind"]) == []


def test_fields_that_kubernetes_would_not_accept_are_reported() -> None:
    pod = {"spec": {"containers": [{"name": 1, "port": 1, "command": "sh"}]}}
    assert sorted(faults(pod, "V1Pod", "Pod")) == [
        "Pod.spec.containers[0].command is no list",
        "Pod.spec.containers[0].name is no str",
        "Pod.spec.containers[0].port is not known",
    ]
