"""Which Service answers for which public model name."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from slipway.serving.routing.route import (
    MOST_BYTES,
    ROUTE,
    InvalidRouteError,
    PrefixHash,
    Route,
    RoutedService,
    Routes,
    ScaleTarget,
    Target,
    TargetConditions,
    route_metadata,
    routed_service,
)


def service(annotation: str | None = None, **metadata: Any) -> dict[str, Any]:
    annotations = {} if annotation is None else {ROUTE: annotation}
    defaults = {
        "name": "tiny",
        "namespace": "models",
        "creationTimestamp": "2026-11-21T09:00:00Z",
        "annotations": annotations,
    }
    return {
        "metadata": defaults | metadata,
        "spec": {"ports": [{"name": "metrics", "port": 9}, {"name": "http", "port": 8080}]},
    }


def test_a_service_by_hand_needs_the_label_alone() -> None:
    assert routed_service(service()) == RoutedService(
        "models", "tiny", Route(("tiny",), "metrics", 1795251600, name="tiny"), 1795251600
    )


def test_the_controllers_writes_can_be_read_back() -> None:
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
        aliases=("org/c", "d"),
        targets=(
            Target(weight=9),
            Target("tiny-new", order=1, when=TargetConditions({"x": ("y",)}, ("m",)), only=True),
        ),
    )
    labels, annotations = route_metadata(route)
    assert labels == {ROUTE: "true"}
    assert routed_service(service(annotations[ROUTE])).route == route


def test_fields_of_a_newer_controller_are_passed_over() -> None:
    assert routed_service(service('{"models": ["a"], "newer": {"name": "New"}}')).route.models == ("a",)


@pytest.mark.parametrize("annotation", ["[]", "{", '{"models": "a"}', '{"port": "grpc"}', '{"created": "now"}'])
def test_an_annotation_that_is_no_route_is_refused_by_name(annotation: str) -> None:
    with pytest.raises(InvalidRouteError, match=ROUTE):
        routed_service(service(annotation))


@pytest.mark.parametrize("text", ["a b", "a;show info", "a\nb", "a\n", "a/b", "../b", "..", "é", "a" * 254, "-a"])
def test_a_name_that_could_be_read_as_more_is_refused(text: str) -> None:
    target = {"group": "kubeai.org", "version": "v1", "plural": "models", "name": "a"}
    assert routed_service(service(json.dumps({"name": "Model_A.b-1", "scale": target}))).route.name == "Model_A.b-1"
    for route in ({"name": text}, *({"scale": target | {field: text}} for field in target)):
        with pytest.raises(InvalidRouteError, match=ROUTE):
            routed_service(service(json.dumps(route)))


@pytest.mark.parametrize("field", ["group", "version", "plural", "name"])
def test_a_scale_target_is_whole(field: str) -> None:
    target = {"group": "kubeai.org", "version": "v1", "plural": "models", "name": "a", field: ""}
    with pytest.raises(InvalidRouteError, match=ROUTE):
        routed_service(service(json.dumps({"scale": target})))


def test_labels_are_bounded_in_number() -> None:
    with pytest.raises(InvalidRouteError, match="labels"):
        routed_service(service(json.dumps({"labels": {str(number): "" for number in range(101)}})))


@pytest.mark.parametrize(
    "annotation",
    [
        json.dumps({"models": [f"m{number}" for number in range(65)]}),
        json.dumps({"aliases": [f"m{number}" for number in range(65)]}),
        json.dumps({"targets": [{"service": "new", "weight": 1000001}]}),
        json.dumps({"targets": [{"service": "new", "weight": -1}]}),
        json.dumps({"targets": [{"service": "new", "weight": 0.5}]}),
        json.dumps({"targets": [{"service": "bank:new"}]}),
        json.dumps({"targets": [{"service": "new 1"}]}),
        json.dumps({"targets": [{"service": "new\n"}]}),
        json.dumps({"internal": "yes"}),
        json.dumps({"features": [f"F{number}" for number in range(65)]}),
        json.dumps({"features": ["F" * 64]}),
        json.dumps({"features": ["a\nb"]}),
        json.dumps({"source": "s" * 513}),
        json.dumps({"source": "a\x00b"}),
        json.dumps({"ownedBy": "o" * 254}),
        json.dumps({"ownedBy": "a\x1b[2Jb"}),
        json.dumps({"port": "p" * 64}),
        json.dumps({"labels": {"k" * 318: ""}}),
        json.dumps({"labels": {"k": "v" * 64}}),
        json.dumps({"created": -1}),
        json.dumps({"models": ["a"], "x": "y" * MOST_BYTES}),
        json.dumps({"models": ["a"], "x": "\u00e9" * (MOST_BYTES // 2)}, ensure_ascii=False),
        '{"x":' + "[" * 8000 + "]" * 8000 + "}",
        '{"models":["\\ud800"]}',
    ],
    ids=itertools.count(),
)
def test_the_content_of_a_route_is_limited(annotation: str) -> None:
    with pytest.raises(InvalidRouteError) as refused:
        routed_service(service(annotation))
    assert len(str(refused.value)) < 400
    assert str(refused.value).isprintable()


def test_long_descriptive_fields_never_make_a_route_unreadable() -> None:
    labels = {f"{'k' * 60}{number}": "v" * 18 for number in range(100)}
    models = tuple(f"{number}-" + "m" * 200 for number in range(3))
    written = Route(models, source="\u00e9\n" * 4000, owned_by="o" * 400, labels=labels)
    _unused, annotations = route_metadata(written)
    read = routed_service(service(annotations[ROUTE])).route
    assert (read.models, read.labels) == (models, labels)
    assert (len(read.source), len(read.owned_by)) == (512, 253)


def test_aliases_of_a_spec_never_make_a_route_that_cannot_be_read_and_the_first_stay() -> None:
    aliases = tuple(f"org/{number}" for number in range(100))
    for names, kept in ((("a b", "m", *aliases), aliases[:64]), (("x" * 200,) * 2 + ("y" * 253,) * 60, None)):
        _unused, annotations = route_metadata(Route(("m",), aliases=names))
        read = routed_service(service(annotations[ROUTE])).route
        assert read.aliases == (kept or ("x" * 200, "y" * 253))
    many = tuple(f"{number:02}{'z' * 250}" for number in range(64))
    _unused, annotations = route_metadata(Route(("m",), aliases=many))
    assert routed_service(service(annotations[ROUTE])).route.aliases == many[:16]


def test_an_internal_service_has_no_id() -> None:
    read = routed_service(service('{"internal": true, "models": ["a", "b c"], "aliases": ["d"]}'))
    assert (read.ids, read.route.aliases, read.qualified, read.complaint) == ((), (), "", "")


def test_an_id_that_is_asked_for_twice_counts_once() -> None:
    assert routed_service(service('{"models": ["a", "b", "a"]}')).route.models == ("a", "b")


@pytest.mark.parametrize("model", ["m1\x00zzz", "a b", "a;b", "-a", "", "é", "m" * 254])
def test_an_id_that_no_table_can_hold_is_refused_alone(model: str) -> None:
    read = routed_service(service(json.dumps({"models": [model, "good"]})))
    assert (read.route.models, read.ids) == (("good",), ("good",))
    assert [refused.model for refused in read.refused] == [model]
    assert read.complaint.isprintable()
    assert read.complaint.isascii()


def test_a_route_is_read_once_for_each_version_of_its_service() -> None:
    routes = Routes()
    one = service('{"models": ["a"]}', uid="1", resourceVersion="1")
    first = routes.read(one)
    assert routes.read(one) is first
    other = service('{"models": ["b"]}', uid="1", resourceVersion="2")
    assert routes.read(other).route.models == ("b",)
    routes.forget_others([])
    assert routes.read(one) is not first


def test_an_unreadable_route_is_remembered_too_and_heals() -> None:
    routes = Routes()
    for _unused in range(2):
        with pytest.raises(InvalidRouteError, match=ROUTE):
            routes.read(service("{", uid="1", resourceVersion="1"))
    assert routes.read(service("{}", uid="1", resourceVersion="2")).route.models == ("tiny",)
