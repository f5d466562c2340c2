"""Every pod of every API runs with the container runtime's seccomp profile, unless its author sets another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import yaml

from slipway.apis.krypton import KRYPTON
from tests import worlds
from tests.tables import each

from . import test_krypton as krypton
from .kubeai import test_kubeai as kubeai
from .llmkube import services as llmkube
from .test_golden import EXAMPLES, api_of, planned, world_of

USUAL, OWN = {"type": "RuntimeDefault"}, {"type": "Localhost", "localhostProfile": "models.json"}
KEPT = ("cache-added", "model-not-ready")
"""Examples whose pods exist already and stay unchanged."""


def profiles(children: Any) -> list[Any]:
    workloads = [one["spec"]["template"]["spec"] for one in children if one["kind"] in ("Deployment", "Job")]
    return [spec.get("securityContext", {}).get("seccompProfile") for spec in workloads]


@each(EXAMPLES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_pods_have_the_runtimes_profile(path: Path) -> None:
    plan, _refusal = planned(api_of(path), world_of(path))
    if plan and path.stem not in KEPT:
        assert all(profile == USUAL for profile in profiles(plan.children))


def test_engines_and_loaders_of_every_api_are_looked_at() -> None:
    assert profiles(worlds.plan(KRYPTON, krypton.world()).children) == [USUAL]
    assert profiles(kubeai.plan(kubeai.world()).children) == [USUAL]
    assert profiles(kubeai.plan(kubeai.world(cacheProfile="shared")).children) == [USUAL]
    assert profiles(llmkube.plan(llmkube.world()).children) == [USUAL]


def test_the_operator_and_the_spec_take_precedence() -> None:
    own = {"podSecurityContext": {"seccompProfile": OWN, "fsGroup": 1}}
    config = yaml.safe_dump({"modelServerPods": own})
    assert profiles(kubeai.plan(kubeai.world(config=config)).children) == [OWN]
    assert profiles(llmkube.plan(llmkube.world(**own)).children) == [OWN]


def test_a_context_that_says_nothing_of_it_keeps_the_usual_one() -> None:
    own = {"podSecurityContext": {"fsGroup": 1}}
    config = yaml.safe_dump({"modelServerPods": own})
    assert profiles(kubeai.plan(kubeai.world(config=config)).children) == [USUAL]
    world = kubeai.world(config=config)
    assigned = msgspec.structs.replace(world, settings=msgspec.structs.replace(world.settings, assigned_ids=True))
    assert profiles(kubeai.plan(assigned).children) == [USUAL]
    assert profiles(llmkube.plan(llmkube.world(**own)).children) == [USUAL]
