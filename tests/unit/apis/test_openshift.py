"""If the cluster assigns users to pods, OpenShift's restricted-v2 admits every pod that Slipway builds."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from slipway.serving.contract.api import InvalidSpecError, Plan
from tests import documents, worlds
from tests.standins.restricted_v2 import FIRST, admitted, reviewed
from tests.tables import each

from .test_golden import EXAMPLES, api_of, world_of

IDS = ("runAsUser", "runAsGroup", "fsGroup")
PRIVILEGED = (
    "podSecurityContext",
    "securityContext",
    "hostPath",
    "modelServerPods",
    "oci://",
    "path: /raid",
    "path: /mnt",
)
"""Fields in examples that set how pods run, or make them read what restricted-v2 forbids: files of the node, and image
volumes."""
OTHERS = ("cache-added",)
"""Its pods exist already, and stay unchanged."""


def planned(example: Path, *, assigned: bool) -> Plan | None:
    world = world_of(example)
    settings = msgspec.structs.replace(world.settings, assigned_ids=assigned)
    try:
        return worlds.plan(api_of(example), msgspec.structs.replace(world, settings=settings))
    except InvalidSpecError:
        return None


def pods(plan: Plan | None) -> Iterator[dict[str, Any]]:
    for child in plan.children if plan else ():
        if child["kind"] in ("Deployment", "Job"):
            yield child["spec"]["template"]["spec"]


def contexts(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield spec.get("securityContext") or {}
    for container in [*spec.get("initContainers", ()), *spec["containers"]]:
        yield container.get("securityContext") or {}


OURS = [
    path for path in EXAMPLES if path.stem not in OTHERS and not any(word in path.read_text() for word in PRIVILEGED)
]


def name(path: Path) -> str:
    return f"{path.parent.name}-{path.stem}"


@each(OURS, ids=name)
def test_every_pod_is_let_in(example: Path) -> None:
    for spec in pods(planned(example, assigned=True)):
        filled, faults = admitted(spec)
        assert faults == []
        assert filled["securityContext"]["runAsNonRoot"] is True
        assert {context.get("runAsUser", FIRST) for context in contexts(filled)} == {FIRST}


@each(OURS, ids=name)
def test_an_engine_s_user_has_a_home(example: Path) -> None:
    for spec in pods(planned(example, assigned=True)):
        engine = spec["containers"][0]
        if engine.get("args", ())[:1] != ["loader"]:
            assert [variable for variable in engine["env"] if variable["name"] == "HOME"]


def test_examples_of_every_api_are_looked_at() -> None:
    seen = {example.parent.name for example in OURS if list(pods(planned(example, assigned=True)))}
    assert seen == {example.parent.name for example in EXAMPLES}


def test_elsewhere_pods_have_the_ids_that_the_settings_name() -> None:
    specs = [spec for example in OURS for spec in pods(planned(example, assigned=False))]
    assert {field for spec in specs for context in contexts(spec) for field in IDS if field in context} == set(IDS)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"hostNetwork": True}, "hostNetwork is not allowed"),
        ({"securityContext": {"fsGroup": 102}}, "fsGroup 102 is not in the range of the namespace"),
        ({"securityContext": {"runAsUser": 0}}, "container c: runAsUser 0 is not in the range of the namespace"),
        ({"volumes": [{"name": "node", "hostPath": {"path": "/"}}]}, "volume node: hostPath is not allowed"),
    ],
)
def test_the_stand_in_refuses_what_openshift_refuses(change: dict[str, Any], fault: str) -> None:
    _filled, faults = admitted(documents.load("containers: [{name: c}]") | change)
    assert faults == [fault]


def test_the_stand_in_answers_a_review_of_a_pod() -> None:
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    pod = {"spec": {"containers": [{"name": "c"}]}}
    answer = reviewed({**review, "request": {"uid": "1", "object": pod}})
    assert (answer["kind"], answer["response"]["uid"], answer["response"]["allowed"]) == ("AdmissionReview", "1", True)
    (patch,) = json.loads(base64.b64decode(answer["response"]["patch"]))
    assert patch["value"]["containers"][0]["securityContext"]["runAsUser"] == FIRST

    pod = {"spec": {"containers": [{"name": "c"}], "hostPID": True}}
    refused = reviewed({**review, "request": {"uid": "2", "object": pod}})["response"]
    assert not refused["allowed"]
    assert refused["status"]["message"] == "restricted-v2 does not let it in: hostPID is not allowed"
