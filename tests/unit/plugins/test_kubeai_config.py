# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter kubeai_config: the allowed content of a system configuration, and the messages about invalid ones."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.slipway.inference.plugins.filter import kubeai_config as module
from ansible_collections.slipway.inference.plugins.filter.kubeai_config import kubeai_config

WHOLE: dict[str, Any] = {
    "secretNames": {"huggingface": "hub-token", "aws": ""},
    "modelServers": {"VLLM": {"images": {"default": "vllm:1", "cpu": "vllm:1-cpu"}}},
    "modelLoading": {"image": "loader:1"},
    "resourceProfiles": {
        "big": {
            "imageName": "cpu",
            "requests": {"cpu": "0.5", "memory": "24Gi", "nvidia.com/gpu": "1"},
            "limits": {"memory": "24Gi"},
            "nodeSelector": {"disk": "fast"},
            "affinity": {"nodeAffinity": {}},
            "tolerations": [{"key": "gpu", "operator": "Exists", "tolerationSeconds": 0}],
            "schedulerName": "own",
            "runtimeClassName": "nvidia",
        }
    },
    "cacheProfiles": {"efs": {"sharedFilesystem": {"storageClassName": "efs-sc", "storageSize": "1Ti"}}},
    "modelServerPods": {
        "serviceAccountName": "models",
        "podSecurityContext": {"fsGroup": 0},
        "securityContext": {"runAsNonRoot": False},
        "imagePullSecrets": [{"name": "registry"}],
        "jsonPatches": [{"op": "add", "path": "/spec/hostNetwork", "value": None}, {"op": "remove", "path": "/a"}],
    },
    "modelRollouts": {"surge": 0},
    "modelAutoscaling": {"interval": "10s", "timeWindow": "1m30s", "stateConfigMapName": ""},
}


def problems(**config: Any) -> list[str]:
    with pytest.raises(AnsibleFilterError) as caught:
        kubeai_config(config, "config")
    return str(caught.value.args[0]).splitlines()


def test_everything_that_it_may_hold_comes_back_as_it_was() -> None:
    assert kubeai_config(WHOLE) == WHOLE
    assert kubeai_config({}) == {}


def test_values_that_yaml_or_a_template_converted_get_their_proper_types() -> None:
    given = {
        "modelRollouts": {"surge": "2"},
        "resourceProfiles": {
            "cpu": {"requests": {"cpu": 1, "memory": "2Gi"}, "nodeSelector": {"n": 5}, "limits": None}
        },
        "cacheProfiles": None,
    }
    assert kubeai_config(given) == {
        "modelRollouts": {"surge": 2},
        "resourceProfiles": {"cpu": {"requests": {"cpu": "1", "memory": "2Gi"}, "nodeSelector": {"n": "5"}}},
    }


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (
            {"resourceProfile": {}},
            "config has no key resourceProfile. Did you mean resourceProfiles or cacheProfiles?",
        ),
        ({"modelServers": {"vLLM": {}}}, "config.modelServers has no key vLLM. Did you mean VLLM?"),
        ({"modelServers": {"VLLM": {"images": {"cpu": ""}}}}, "config.modelServers.VLLM.images.cpu must be an image"),
        (
            {"resourceProfiles": {"l4": {"limit": {"nvidia.com/gpu": 1}}}},
            "config.resourceProfiles.l4 has no key limit. Did you mean limits?",
        ),
        (
            {"resourceProfiles": {"l4": {"requests": {"memory": "24GB"}}}},
            "config.resourceProfiles.l4.requests.memory must be a quantity such as 2, 500m or 24Gi, not '24GB'.",
        ),
        ({"resourceProfiles": {"a:1": {}}}, "The name 'a:1' in config.resourceProfiles must be a name without ':'"),
        (
            {"resourceProfiles": {"l4": {"tolerations": {"key": "gpu"}}}},
            "config.resourceProfiles.l4.tolerations must be a list",
        ),
        (
            {"cacheProfiles": {"fs": {"sharedFilesystem": {"storageSize": "1Ti"}}}},
            "config.cacheProfiles.fs.sharedFilesystem needs storageClassName or persistentVolumeName.",
        ),
        ({"cacheProfiles": {"fs": {}}}, "config.cacheProfiles.fs needs sharedFilesystem."),
        ({"modelRollouts": {"surge": -1}}, "config.modelRollouts.surge must be a whole number, not -1."),
        ({"modelRollouts": {"surge": True}}, "config.modelRollouts.surge must be a whole number, not True."),
        (
            {"modelAutoscaling": {"interval": "ten"}},
            "config.modelAutoscaling.interval must be a duration such as 90s, 10m or 1h30m, not 'ten'.",
        ),
        ({"modelAutoscaling": {"timeWindow": "0s"}}, "config.modelAutoscaling.timeWindow must be a duration"),
        (
            {"modelServerPods": {"jsonPatches": [{"op": "add", "path": "spec"}]}},
            "config.modelServerPods.jsonPatches[0].path must be a path that begins with /",
        ),
        (
            {"modelServerPods": {"jsonPatches": [{"op": "move", "path": "/spec"}]}},
            "config.modelServerPods.jsonPatches[0] needs from.",
        ),
        ({"secretNames": "hub"}, "config.secretNames must be a mapping, not 'hub'."),
        ({"secretNames": {"huggingface": "My Token"}}, "config.secretNames.huggingface must be a name"),
    ],
)
def test_a_problem_names_its_key(config: dict[str, Any], problem: str) -> None:
    assert problems(**config)[0].startswith(problem)


def test_all_problems_are_reported_at_once() -> None:
    assert len(problems(modelRollouts={"surge": "many"}, modelLoading={"images": "a"}, secretNames=[])) == 3


def test_keys_without_a_meaning_here_are_left_out_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(module.Display, "warning", lambda _self, text: warnings.append(text))
    assert kubeai_config({"messaging": {"streams": []}, "modelRollouts": {"surge": 1}}) == {
        "modelRollouts": {"surge": 1}
    }
    assert warnings == ["controller_kubeai_config.messaging has no effect in Slipway and is ignored."]


@pytest.mark.parametrize(
    ("account", "warned"), [("kubeai-models", True), ("mine-kubeai-models", True), ("models", False), ("", False)]
)
def test_the_account_that_goes_with_the_originals_chart_is_warned_of(
    account: str, warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(module.Display, "warning", lambda _self, text: warnings.append(text))
    given = {"modelServerPods": {"serviceAccountName": account}}
    assert kubeai_config(given) == given
    assert [f"modelServerPods.serviceAccountName is {account}, " in text for text in warnings] == [True] * warned


def test_a_value_that_is_not_a_mapping_is_reported() -> None:
    with pytest.raises(AnsibleFilterError, match="controller_kubeai_config must be a mapping, not \\[\\]"):
        kubeai_config([])
