"""What the role preflight makes of what it sees: its rules are data in its variables, read here without a cluster."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROLE = Path(__file__).parents[3] / "roles/preflight"
Object = dict[str, Any]


@cache
def variables_of_role() -> Object:
    role_vars: Object = {"preflight_force": False, "preflight_namespace": "slipway-system", "role_path": str(ROLE)}
    for file in sorted((ROLE / "vars/main").glob("*.yml")):
        role_vars |= DataLoader().load_from_file(str(file), trusted_as_template=True)
    return role_vars


def evaluate(name: str, **variables: Any) -> Any:
    """The value of one of the role's variables, as Ansible sees it. ``variables`` take the place of others."""
    templar = Templar(loader=DataLoader(), variables=variables_of_role() | variables)
    return templar.template(trust_as_template(f"{{{{ {name} }}}}"))


def wrong(name: str, **variables: Any) -> list[Object]:
    return [check for check in evaluate(name, **variables) if check["wrong"]]


def deployment(name: str, image: str, version: str = "") -> Object:
    labels = {"slipway.inference/version": version} if version else {}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"template": {"spec": {"containers": [{"image": image}]}}},
    }


@pytest.mark.parametrize(
    ("installed", "requested", "problems"),
    [
        ([("slipway/slipway:0.4.0", "")], "0.4.0", []),
        ([("registry:5000/slipway:v0.3.2-1", "")], "0.3.2", []),
        ([("slipway/slipway@sha256:0a", "0.3.0"), ("slipway/slipway:0.4.0", "0.4.0")], "0.4.1", []),
        ([("slipway/slipway:mine", "1.9.3")], "2.0.0", []),
        ([], "0.4.0", ["There is nothing to upgrade"]),
        ([("slipway/slipway:mine", "")], "0.4.0", ["The installed version is unknown"]),
        ([("slipway/slipway:0.4.0", "0.4.0")], "0.3.9", ["This would be a downgrade"]),
        ([("slipway/slipway:0.2.1", "")], "0.4.0", ["This would skip releases"]),
        ([("slipway/slipway:0.9.0", "0.9.0")], "2.0.0", ["This would skip releases"]),
    ],
)
def test_an_upgrade_takes_the_step_to_the_next_release_only(
    installed: list[tuple[str, str]], requested: str, problems: list[str]
) -> None:
    parts = [deployment(f"slipway-{number}", *part) for number, part in enumerate(installed)]
    checks = wrong(
        "__preflight_version_checks",
        __preflight_parts={"resources": parts},
        __preflight_target_version=requested,
        __preflight_stored={},
    )
    assert [check["what"] for check in checks] == problems


def test_a_forced_downgrade_never_loses_stored_objects() -> None:
    [problem] = wrong(
        "__preflight_version_checks",
        __preflight_parts={"resources": [deployment("slipway-gateway", "x:9.0.0")]},
        __preflight_target_version="0.4.0",
        __preflight_stored={"models.krypton.ai": ["v1"]},
        preflight_force=True,
    )
    assert problem["why"] == "models.krypton.ai: v1"


@pytest.mark.parametrize(
    ("requested", "variables", "problems"),
    [
        ("", {}, []),
        ("gateway-keys", {"gateway_api_keys_secret": "gateway-keys"}, []),
        ("slipway-gateway", {"gateway_api_keys": {"alice": "sk-1"}}, []),
        ("gateway-keys", {"gateway_api_keys_secret": ""}, ["The gateway would accept requests without a key"]),
    ],
    ids=["without", "same-secret", "same-keys", "forgotten"],
)
def test_an_upgrade_does_not_open_a_gateway_that_asks_for_keys(
    requested: str, variables: Object, problems: list[str]
) -> None:
    checks = wrong(
        "__preflight_version_checks",
        __preflight_parts={"resources": [deployment("slipway-gateway", "slipway/slipway:0.4.0")]},
        __preflight_target_version="0.4.0",
        __preflight_stored={},
        __preflight_gateway={"resources": [{"data": {"gateway.yaml": f"apiKeysSecret: '{requested}'\nthreads: 2\n"}}]},
        **variables,
    )
    assert [check["what"] for check in checks] == problems


@pytest.mark.parametrize(
    ("image", "whole"),
    [
        ("haproxy:3.4.6", "docker.io/library/haproxy:3.4.6"),
        ("slipway/slipway", "docker.io/slipway/slipway:latest"),
        ("localhost/slipway:1", "localhost/slipway:1"),
        ("registry:5000/slipway", "registry:5000/slipway:latest"),
        ("ghcr.io/a/b:1@sha256:0a", "ghcr.io/a/b@sha256:0a"),
    ],
)
def test_an_image_is_looked_for_by_its_whole_name(image: str, whole: str) -> None:
    images = evaluate(
        "__preflight_needed_images", __preflight_named=[{"image": image, "policy": "Never", "secrets": ["s"]}]
    )
    assert images == {image: {"whole": whole, "policy": "Never", "secrets": ["s"]}}


def test_each_image_is_asked_of_a_node_without_it_that_takes_pods() -> None:
    def node(name: str, *images: str, **spec: Any) -> Object:
        status = {"conditions": [{"type": "Ready", "status": "True"}], "images": [{"names": list(images)}]}
        return {"metadata": {"name": name}, "spec": spec, "status": status}

    tainted = {"taints": [{"key": "a", "effect": "NoSchedule"}]}
    nodes = [node("tainted", **tainted), node("cordoned", unschedulable=True), node("one", "a", "b"), node("two", "b")]
    pulls = evaluate(
        "__preflight_pulls",
        __preflight_nodes={"resources": nodes},
        __preflight_needed_images={name: {"whole": name} for name in ("a", "b", "c")},
        __preflight_problems=[],
    )
    assert pulls == {"two": ["a"], "one": ["c"]}


@pytest.mark.parametrize(
    ("states", "decided", "problems"),
    [
        ([{"waiting": {"reason": "ContainerCreating"}}], False, 0),
        ([{"terminated": {"reason": "StartError"}}, {"waiting": {"reason": "CreateContainerError"}}], True, 0),
        ([{"terminated": {"reason": "StartError"}}, {"waiting": {"reason": "ErrImagePull", "message": "m"}}], True, 1),
        ([{"waiting": {"reason": "ErrImageNeverPull"}}, {"waiting": {}}], False, 1),
    ],
)
def test_a_pull_is_decided_when_the_image_is_there_or_the_kubelet_gives_up(
    states: list[Object], decided: bool, problems: int
) -> None:
    names = [f"image-{number}" for number, _state in enumerate(states)]
    pod = {
        "metadata": {"name": "slipway-preflight-1"},
        "spec": {"nodeName": "one", "containers": [{"name": name, "image": name} for name in names]},
        "status": {
            "phase": "Pending",
            "containerStatuses": [{"name": name, "state": state} for name, state in zip(names, states, strict=True)],
        },
    }
    variables = {"__preflight_pods_lookup": {"resources": [pod]}, "__preflight_pulls": {"one": names}}
    assert evaluate("__preflight_pods_decided", **variables) is decided
    assert len(evaluate("__preflight_image_problems", **variables)) == problems


def test_a_pod_without_a_status_from_a_kubelet_is_waited_for() -> None:
    pods = [{"metadata": {"name": "new"}}, {"metadata": {"name": "refused"}, "status": {"phase": "Failed"}}]
    variables = {"__preflight_pods_lookup": {"resources": pods}, "__preflight_pulls": {"one": ["a"], "two": ["b"]}}
    assert evaluate("__preflight_unheard", **variables) == ["new"]
    assert evaluate("__preflight_pods_decided", **variables) is False
    assert evaluate("__preflight_image_problems", **variables) == []


def test_a_host_that_is_not_reached_is_reported_once() -> None:
    away: Object = {"unreachable": True, "msg": "Connection timed out"}
    checks = wrong(
        "__preflight_host_checks",
        __preflight_host_facts=away,
        __preflight_host_user={},
        inventory_hostname="gpu-1",
    )
    assert [(check["what"], check["why"]) for check in checks] == [
        ("Host gpu-1 cannot be reached", "Connection timed out")
    ]


def test_a_host_with_another_system_and_without_root_is_reported_both() -> None:
    checks = wrong(
        "__preflight_host_checks",
        __preflight_host_facts={"ansible_facts": {"ansible_os_family": "Suse"}},
        __preflight_host_user={"stderr": "a password is required"},
        inventory_hostname="gpu-1",
    )
    assert [check["why"] for check in checks] == [
        "a password is required",
        "Its family is Suse. Debian, Ubuntu and the RHEL family are supported.",
    ]


def test_caches_need_a_default_storage_class_unless_their_claims_exist() -> None:
    variables = {
        "preflight_roles": ["models"],
        "__preflight_problems": [],
        "models_cached_namespaces": ["one", "two"],
        "models_claims": [{"claim": "one/weights", "of": "model a"}],
        "__preflight_classes": {"resources": [{"metadata": {"name": "slow"}}]},
    }
    claimed = [{"metadata": {"namespace": "two", "name": "llmkube-model-cache"}}]
    checks = wrong("__preflight_storage_checks", __preflight_volumes={"resources": claimed}, **variables)
    assert [check["why"] for check in checks] == [
        "LLMKube Models in one need a PVC with the default class, but the cluster has only: slow.",
        "The cluster has no PersistentVolumeClaim one/weights, which model a uses.",
    ]
    default = {"name": "fast", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    variables["__preflight_classes"] = {"resources": [{"metadata": default}]}
    there = [{"metadata": {"namespace": "one", "name": "weights"}}]
    assert wrong("__preflight_storage_checks", __preflight_volumes={"resources": there}, **variables) == []


def test_roles_whose_images_are_looked_at_have_an_entry_point_that_makes_their_names_known() -> None:
    roles = [*evaluate("__preflight_image_names")]

    assert evaluate("__preflight_checked_roles", preflight_roles=roles) == roles
