"""Which Service answers for which public model name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slipway.serving.route import (
    ROUTE,
    InvalidRoute,
    PrefixHash,
    Route,
    RoutedService,
    ScaleTarget,
    route_metadata,
    routed_service,
    winners,
)


def service(annotation: str | None = None, **metadata: Any) -> dict[str, Any]:
    annotations = {} if annotation is None else {ROUTE: annotation}
    made = {
        "name": "tiny",
        "namespace": "models",
        "creationTimestamp": "2026-11-21T09:00:00Z",
        "annotations": annotations,
    }
    return {
        "metadata": made | metadata,
        "spec": {"ports": [{"name": "metrics", "port": 9}, {"name": "http", "port": 8080}]},
    }


def test_a_service_by_hand_needs_the_label_alone() -> None:
    assert routed_service(service()) == RoutedService(
        "models", "tiny", Route(("tiny",), "metrics", 1795251600, name="tiny"), 1795251600
    )


def test_what_the_controller_writes_is_read_back() -> None:
    route = Route(
        models=("a", "b"),
        port="http",
        created=7,
        owned_by="krypton",
        source="hf:x/y/z.gguf",
        name="a",
        strategy="PrefixHash",
        prefix_hash=PrefixHash(150, 200),
        features=("TextGeneration",),
        labels={"team": "search"},
        scale=ScaleTarget("kubeai.org", "v1", "models", "a"),
        drop_model_field=True,
    )
    labels, annotations = route_metadata(route)
    assert labels == {ROUTE: "true"}
    assert routed_service(service(annotations[ROUTE])).route == route


def test_fields_of_a_newer_controller_are_passed_over() -> None:
    assert routed_service(service('{"models": ["a"], "newer": {"name": "New"}}')).route.models == ("a",)


@pytest.mark.parametrize("annotation", ["[]", "{", '{"models": "a"}', '{"port": "grpc"}', '{"created": "now"}'])
def test_an_annotation_that_is_no_route_is_refused_by_name(annotation: str) -> None:
    with pytest.raises(InvalidRoute, match=ROUTE):
        routed_service(service(annotation))


@pytest.mark.parametrize("text", ["a b", "a;show info", "a\nb", "a\n", "a/b", "../b", "..", "é", "a" * 254, "-a"])
def test_a_name_that_could_be_read_as_more_is_refused(text: str) -> None:
    target = {"group": "kubeai.org", "version": "v1", "plural": "models", "name": "a"}
    assert routed_service(service(json.dumps({"name": "Model_A.b-1", "scale": target}))).route.name == "Model_A.b-1"
    for route in ({"name": text}, *({"scale": target | {field: text}} for field in target)):
        with pytest.raises(InvalidRoute, match=ROUTE):
            routed_service(service(json.dumps(route)))


@pytest.mark.parametrize("field", ["group", "version", "plural", "name"])
def test_a_scale_target_is_whole(field: str) -> None:
    target = {"group": "kubeai.org", "version": "v1", "plural": "models", "name": "a", field: ""}
    with pytest.raises(InvalidRoute, match=ROUTE):
        routed_service(service(json.dumps({"scale": target})))


def test_labels_are_bounded_in_number() -> None:
    with pytest.raises(InvalidRoute, match="labels"):
        routed_service(service(json.dumps({"labels": {str(number): "" for number in range(101)}})))


def test_the_oldest_service_wins_a_name_whatever_age_it_claims_and_equals_are_decided_by_namespace_and_name() -> None:
    young = RoutedService("a", "x", Route(models=("m", "only-young"), created=1), since=2)
    old = RoutedService("z", "x", Route(models=("m",), created=9), since=1)
    twin = RoutedService("y", "x", Route(models=("m",), created=9), since=1)
    assert winners([young, old, twin]) == {"m": twin, "only-young": young}
