"""When a new spec is tried, when it is rolled out, and who gets the requests meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from slipway.apis.ome.services.canary import Revision, Split, decide, revision
from slipway.serving.containers.diagnosis import TEMPLATE
from slipway.serving.routing.route import Target

OLD, NEW = Revision("old", complete=True), Revision("new", complete=True)
ROLLING = Revision("new", complete=False)
TRIED = Split("running", "old", "new", 10)
PROMOTED = Split("promoting", "new", "new", 100)
ALONE = Split("none", "new")


@pytest.mark.parametrize(
    ("percent", "stable", "canary", "requested"),
    [
        pytest.param(None, None, None, ALONE, id="the first spec"),
        pytest.param(10, None, None, ALONE, id="the first spec asks for a canary"),
        pytest.param(None, OLD, None, ALONE, id="a new spec without a canary"),
        pytest.param(100, OLD, None, ALONE, id="a new spec that is to have all requests"),
        pytest.param(10, OLD, None, Split("running", "old", "new", 10, 0), id="the canary does not exist yet"),
        pytest.param(10, OLD, ROLLING, TRIED, id="the canary starts"),
        pytest.param(10, OLD, NEW, TRIED, id="the canary answers"),
        pytest.param(10, OLD, Revision("other", complete=True), TRIED, id="another spec was tried before"),
        pytest.param(0, OLD, NEW, Split("running", "old", "new", 0), id="made, without requests"),
        pytest.param(10, NEW, None, ALONE, id="the spec is what is rolled out"),
        pytest.param(10, NEW, OLD, ALONE, id="the spec is again what is rolled out"),
        pytest.param(10, ROLLING, OLD, ALONE, id="the spec is again what was being rolled out"),
        pytest.param(100, OLD, NEW, PROMOTED, id="promoted"),
        pytest.param(None, OLD, NEW, PROMOTED, id="promoted by taking the field away"),
        pytest.param(None, ROLLING, NEW, PROMOTED, id="the promoted spec is being rolled out"),
        pytest.param(10, ROLLING, NEW, PROMOTED, id="a share for what is being rolled out already"),
        pytest.param(None, NEW, NEW, ALONE, id="the promoted spec is rolled out"),
        pytest.param(None, None, NEW, PROMOTED, id="the stable one was deleted"),
        pytest.param(None, OLD, Revision("other", complete=True), ALONE, id="rolled out without having been tried"),
    ],
)
def test_the_phase_follows_the_observed_state(
    percent: int | None, stable: Revision | None, canary: Revision | None, requested: Split
) -> None:
    assert decide("new", percent, stable, canary) == requested


@pytest.mark.parametrize(
    ("percent", "replicas", "ready", "share"),
    [
        (10, 1, 1, 10),
        (10, 1, 0, 0),
        (50, 10, 1, 10),
        (50, 10, 4, 40),
        (50, 10, 5, 50),
        (None, 10, 5, 50),
        (10, 0, 0, 10),
    ],
)
def test_a_share_grows_with_the_replicas_that_can_bear_it(
    percent: int | None, replicas: int, ready: int, share: int
) -> None:
    stable = Revision("old", complete=True, replicas=replicas, ready=replicas)
    canary = Revision("new", complete=False, replicas=replicas, ready=ready)
    split = decide("new", percent, stable, canary)
    assert (split.percent, split.share) == (percent or 100, share)


def test_a_life_from_the_first_share_to_the_last() -> None:
    """Each step finds what the step before asked for."""
    stable, canary, lived = OLD, None, []
    for percent in (0, 10, 50, 100, 100):
        for _look in range(2):
            split = decide("new", percent, stable, canary)
            stable = stable if split.keeps_stable else Revision(split.stable, complete=stable.digest == split.stable)
            canary = Revision(split.canary, complete=True) if split.canary else None
            lived.append((split.phase, split.share))
    assert lived == [
        *(("running", percent) for percent in (0, 0, 10, 10, 50, 50)),
        *(("promoting", 100), ("promoting", 100)),
        *(("none", 0), ("none", 0)),
    ]
    assert (stable, canary) == (NEW, None)


def test_the_stable_one_is_kept_only_while_another_is_tried() -> None:
    assert [split.keeps_stable for split in (TRIED, PROMOTED, ALONE)] == [True, False, False]


def test_shares_add_up_to_all_and_name_only_who_gets_requests() -> None:
    assert TRIED.shares == (("old", 90), ("new", 10))
    assert [split.shares for split in (PROMOTED, ALONE)] == [(("new", 100),)] * 2


def test_a_route_names_the_canary_while_it_gets_requests() -> None:
    assert TRIED.targets("m-canary") == (Target(weight=90), Target("m-canary", 10))
    assert ALONE.targets("m-canary") == ()


def deployment(digest: str, **status: int) -> dict[str, Any]:
    template = {"metadata": {"annotations": {TEMPLATE: digest}}}
    return {"metadata": {"generation": 2}, "spec": {"replicas": 1, "template": template}, "status": status}


def test_a_revision_is_complete_when_all_replicas_of_the_newest_template_answer() -> None:
    counts = {"replicas": 1, "updatedReplicas": 1, "readyReplicas": 1}
    assert revision(deployment("d", observedGeneration=2, **counts)) == Revision("d", complete=True)
    assert revision(deployment("d", observedGeneration=1, **counts)) == Revision("d", complete=False)
    assert revision(deployment("d", observedGeneration=2, **counts | {"replicas": 2})) == Revision("d", complete=False)
    assert revision(deployment("d")) == Revision("d", complete=False, replicas=1, ready=0)
    assert revision(None) is None


def test_a_deployment_without_our_mark_has_no_revision_of_ours() -> None:
    assert revision({"metadata": {}, "spec": {"template": {}}}) == Revision("", complete=False, ready=0)
