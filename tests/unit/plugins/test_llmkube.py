# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the statuses of LLMKube's models and services mean: those that the controller's own examples end in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.slipway.inference.plugins.module_utils._apis import MODELS, SERVICES, Kind
from ansible_collections.slipway.inference.plugins.module_utils._manifest import Key
from ansible_collections.slipway.inference.plugins.module_utils._readiness import judge
from ansible_collections.slipway.inference.plugins.module_utils._wait import Board

from tests import goldens

APIS = Path(__file__).resolve().parents[1] / "apis"
LLMKUBE_MODEL, LLMKUBE_SERVICE = MODELS["llmkube"], SERVICES["llmkube"]
EXAMPLES = {LLMKUBE_MODEL: APIS / "llmkube/models", LLMKUBE_SERVICE: APIS / "golden/llmkube"}


def example(kind: Kind, name: str) -> dict[str, Any]:
    status = goldens.expected(EXAMPLES[kind] / f"{name}.yaml")["status"]
    generation = status["observedGeneration"]
    return {"metadata": {"name": name, "namespace": "models", "generation": generation}, "status": status}


@pytest.mark.parametrize(
    ("name", "state", "reason"),
    [
        ("web-ready", "ready", ""),
        ("repository", "ready", ""),
        ("metal", "ready", ""),
        ("drift-told", "ready", ""),
        ("web-new", "waiting", "LoadingCache"),
        ("web-downloading", "waiting", "LoadingCache"),
        ("host-copying", "waiting", "LoadingCache"),
        ("pvc-unbound", "waiting", "PVCNotBound"),
        ("pvc-missing", "failed", "PVCNotFound"),
        ("web-wrong-hash", "failed", "IntegrityCheckFailed"),
        ("web-failed", "failed", "DownloadFailed"),
        ("host-refused", "failed", "SourceNotAllowed"),
    ],
)
def test_the_status_of_a_model_is_judged(name: str, state: str, reason: str) -> None:
    verdict = judge(LLMKUBE_MODEL, example(LLMKUBE_MODEL, name))
    assert (verdict.state, verdict.reason) == (state, reason)


@pytest.mark.parametrize(
    ("name", "state", "reason"),
    [
        ("ready", "ready", ""),
        ("stopped", "settled", "ScaledToZero"),
        ("suspended", "settled", "ScaledToZero"),
        ("metal", "settled", "MetalOutOfReach"),
        ("partly", "waiting", "RollingOut"),
        ("llamacpp", "waiting", "WaitingForPods"),
        ("waiting", "waiting", "WaitingForGPU"),
        ("model-not-ready", "waiting", "ModelNotReady"),
        ("model-missing", "failed", "ModelNotFound"),
        ("crash-loop", "failed", "InvalidArgument"),
    ],
)
def test_the_status_of_a_service_is_judged(name: str, state: str, reason: str) -> None:
    verdict = judge(LLMKUBE_SERVICE, example(LLMKUBE_SERVICE, name))
    assert (verdict.state, verdict.reason) == (state, reason)


def kind_of(path: Path) -> str:
    """The kind of an example's resource; empty if it says none."""
    kind: str = yaml.safe_load(path.read_text())["resource"].get("kind", "")
    return kind


@pytest.mark.parametrize("kind", [LLMKUBE_MODEL, LLMKUBE_SERVICE], ids=lambda kind: kind.kind)
def test_every_example_says_why_it_is_not_ready(kind: Kind) -> None:
    names = [path.stem for path in goldens.examples(EXAMPLES[kind]) if kind_of(path) in ("", kind.kind)]
    verdicts = {name: judge(kind, example(kind, name)) for name in names}
    assert names
    assert [
        name
        for name, verdict in verdicts.items()
        if verdict.state != "ready" and not (verdict.reason and verdict.message)
    ] == []


def test_a_status_of_the_spec_before_does_not_count() -> None:
    for kind, name in ((LLMKUBE_MODEL, "web-ready"), (LLMKUBE_SERVICE, "ready")):
        resource = example(kind, name)
        resource["metadata"]["generation"] = 9
        assert judge(kind, resource).reason == "Outdated"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("leaving-in-use", "InUse: The Model will be deleted when"), ("leaving-marks", "Deleting: ")],
)
def test_workloads_that_need_a_deleted_model_are_reported(name: str, expected: str) -> None:
    resource = example(LLMKUBE_MODEL, name)
    resource["metadata"] |= {"uid": "1", "finalizers": ["inference.llmkube.dev/model-cache"]}
    key, board = Key(LLMKUBE_MODEL, "models", name), Board({}, gone=True)
    board.add(key, resource)
    assert board.items[key].verdict.text.startswith(expected)
