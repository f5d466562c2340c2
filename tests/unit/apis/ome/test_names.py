"""Names of OME's objects, and the labels by which nodes tell which models they have."""

from __future__ import annotations

import re

import pytest

from slipway.apis.ome.names import (
    BASE_MODEL,
    CLUSTER_BASE_MODEL,
    FINE_TUNED_WEIGHT,
    component_name,
    node_label,
    text_value,
)
from slipway.kube.objects import Kind

LABEL = re.compile(r"[a-z0-9A-Z]([-_.a-z0-9A-Z]{0,61}[a-z0-9A-Z])?")


@pytest.mark.parametrize(
    ("kind", "namespace", "name", "label"),
    [
        (CLUSTER_BASE_MODEL, "", "llama-3-1b", "clusterbasemodel.llama-3-1b"),
        (CLUSTER_BASE_MODEL, "", "a" * 32, f"clusterbasemodel.{'a' * 32}"),
        (CLUSTER_BASE_MODEL, "", "b" + "a" * 32, f"clusterbasemodel.f4501528-{'a' * 23}"),
        (FINE_TUNED_WEIGHT, "", "tiny-lora", "finetunedweight.tiny-lora"),
        (BASE_MODEL, "default", "tiny", "default.basemodel.tiny"),
        (BASE_MODEL, "n" * 8, "m" * 30, f"{'n' * 8}.basemodel.{'m' * 30}"),
        (BASE_MODEL, "n" * 9, "m" * 30, f"f943f1d1.basemodel.{'m' * 30}"),
    ],
)
def test_a_node_has_a_label_for_each_model(kind: Kind, namespace: str, name: str, label: str) -> None:
    assert node_label(kind, namespace, name) == f"models.ome.io/{label}"


@pytest.mark.parametrize("name", ["m", "m" * 63, "a" * 40 + "." + "b" * 23, "x" * 253])
@pytest.mark.parametrize("namespace", ["n", "n" * 63])
def test_a_node_label_is_valid_for_every_model_name(namespace: str, name: str) -> None:
    for kind in (BASE_MODEL, CLUSTER_BASE_MODEL, FINE_TUNED_WEIGHT):
        assert LABEL.fullmatch(node_label(kind, namespace, name).removeprefix("models.ome.io/"))


def test_long_names_stay_apart() -> None:
    first, second = (node_label(CLUSTER_BASE_MODEL, "", f"{letter}{'x' * 60}") for letter in "ab")
    assert first != second


@pytest.mark.parametrize("service", ["s", "s" * 56, "s" * 57, "s" * 63, "a" * 46 + "-" * 16 + "b"])
def test_every_part_of_a_service_has_a_name_that_a_service_takes(service: str) -> None:
    component_names = [
        component_name(service, component) for component in ("engine", "decoder", "router", "engine-canary")
    ]
    assert len(set(component_names)) == len(component_names)
    assert all(re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", name) for name in component_names)


def test_parts_of_services_with_long_names_stay_apart() -> None:
    assert component_name("s" * 62 + "a", "engine") != component_name("s" * 62 + "b", "engine")
    assert component_name("tiny", "engine") == "tiny-engine"


@pytest.mark.parametrize(
    ("text", "value"),
    [("meta", "meta"), ("Meta AI", "Meta-AI"), ("größe", "gr--e"), ("-x-", "x"), ("", ""), ("日本", "")],
)
def test_a_text_becomes_the_value_of_a_label(text: str, value: str) -> None:
    assert text_value(text) == value


def test_a_long_text_keeps_its_end() -> None:
    assert text_value("x" * 63) == "x" * 63
    assert LABEL.fullmatch(text_value("x" * 64))
    assert text_value("x" * 70).endswith("x" * 54)
