"""What is known of the Jobs that run the loader."""

from __future__ import annotations

from typing import Any

import pytest

from slipway.kube.objects import JOB, Key
from slipway.serving.contract.api import World
from slipway.serving.contract.settings import Settings
from slipway.weights.jobs.loads import Run, observe_run

NAME = Key("models", "tiny-load")
WORDS = ("loader", "stage", "hf://acme/tiny")


def job(*words: str, **metadata: Any) -> dict[str, Any]:
    pod = {"containers": [{"name": "loader", "args": [*words]}]}
    full = {"name": NAME.name, "namespace": NAME.namespace, "uid": "j", **metadata}
    return {"kind": "Job", "metadata": full, "spec": {"template": {"spec": pod}}}


def world(*manifests: dict[str, Any]) -> World:
    children = dict.fromkeys([(JOB, NAME)], manifests[0]) if manifests else {}
    return World(
        resource={},
        children=children,
        pods=(),
        routed=(),
        settings=Settings(),
        now=0.0,
        listers=None,  # type: ignore[arg-type]
    )


def test_a_job_that_does_what_is_wanted_is_looked_at() -> None:
    manifest = job(*WORDS)
    assert observe_run(world(manifest), NAME, WORDS).job == manifest


@pytest.mark.parametrize(
    "created",
    [(), (job("loader", "stage", "hf://acme/other"),), (job(*WORDS, deletionTimestamp="2026-11-23T00:00:00Z"),)],
    ids=["none", "of an earlier spec", "on its way out"],
)
def test_a_missing_outdated_or_terminating_job_reports_nothing(created: tuple[dict[str, Any], ...]) -> None:
    assert observe_run(world(*created), NAME, WORDS) == Run(name=NAME.name)
