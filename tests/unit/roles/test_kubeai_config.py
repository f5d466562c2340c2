"""What the rollout takes for KubeAI's system configuration is what the controller takes."""

from __future__ import annotations

import typing
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from ansible.errors import AnsibleFilterError
from ansible_collections.slipway.inference.plugins.filter import kubeai_config as rollout

from slipway.apis.kubeai import settings as controller
from slipway.apis.kubeai.system_yaml import parse
from slipway.apis.kubeai.types import Engine
from tests import documents

ROOT = Path(__file__).parents[3]
SYSTEMS = sorted((ROOT.parent / "shared/reference/samples/kubeai/config").glob("system-*.yaml"))
SECTIONS: dict[str, type[msgspec.Struct]] = {
    "secretNames": controller.SecretNames,
    "modelLoading": controller.ModelLoading,
    "modelServerPods": controller.ModelServerPods,
    "modelRollouts": controller.ModelRollouts,
    "modelAutoscaling": controller.ModelAutoscaling,
}


def fields(struct: type[msgspec.Struct]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(struct)}


def test_both_know_the_same_keys() -> None:
    keys = rollout.CONFIG.keys
    assert set(keys) == set(controller.SECTIONS)
    assert set(rollout.WITHOUT_MEANING) == set(controller.UNUSED)
    assert set(keys["modelServers"].keys) == set(typing.get_args(Engine))
    assert {section: set(keys[section].keys) for section in SECTIONS} == {
        section: fields(struct) for section, struct in SECTIONS.items()
    }
    assert set(keys["modelServers"].keys["VLLM"].keys) == fields(controller.ModelServer)
    assert set(keys["resourceProfiles"].of.keys) == fields(controller.ResourceProfile)
    assert set(keys["cacheProfiles"].of.keys) == fields(controller.CacheProfile)
    assert set(keys["cacheProfiles"].of.keys["sharedFilesystem"].keys) == fields(controller.SharedFilesystem)
    assert set(keys["modelServerPods"].keys["jsonPatches"].of.keys) == fields(controller.Patch)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"modelRollouts": {"surge": "3"}, "modelAutoscaling": {"interval": "500ms", "timeWindow": "1h30m"}},
        {
            "resourceProfiles": {
                "a": {"requests": {"cpu": 0.5, "memory": "1.5Gi", "x/y": "1e3"}, "nodeSelector": {"n": 1}}
            }
        },
        {"cacheProfiles": {"fs": {"sharedFilesystem": {"persistentVolumeName": "pv", "storageSize": 5}}}},
        {
            "modelServerPods": {
                "jsonPatches": [{"op": "add", "path": "/a", "value": None}, {"op": "remove", "path": "/b"}]
            }
        },
        {"secretNames": {"aws": ""}, "modelLoading": {"image": ""}, "modelAutoscaling": {"stateConfigMapName": ""}},
        {"modelServers": {engine: {"images": {"default": "x"}} for engine in typing.get_args(Engine)}},
    ],
)
def test_the_controller_accepts_every_spec_that_the_rollout_check_accepts(config: dict[str, Any]) -> None:
    parse(yaml.safe_dump(rollout.kubeai_config(config)))


@pytest.mark.parametrize(
    "config",
    [
        {"resourceProfiles": {"a": {"requests": {"memory": "24GB"}}}},
        {"cacheProfiles": {"fs": {"sharedFilesystem": {}}}},
        {"modelRollouts": {"surge": -1}},
        {"modelAutoscaling": {"interval": "ten"}},
        {"modelAutoscaling": {"interval": "0s"}},
        {"modelServerPods": {"jsonPatches": [{"op": "add", "path": "spec", "value": 1}]}},
        {"modelServerPods": {"jsonPatches": [{"op": "add", "path": "/spec"}]}},
        {"modelServerPods": {"jsonPatches": [{"op": "copy", "path": "/spec"}]}},
        {"modelServerPods": {"imagePullSecrets": ["registry"]}},
    ],
)
def test_the_rollout_check_rejects_every_spec_that_the_controller_rejects(config: dict[str, Any]) -> None:
    with pytest.raises(controller.InvalidConfigError):
        parse(yaml.safe_dump(config))
    with pytest.raises(AnsibleFilterError):
        rollout.kubeai_config(config)


@pytest.mark.parametrize("config", [{"resourceProfile": {}}, {"resourceProfiles": {"a": {"limit": {}}}}])
def test_the_rollout_refuses_unknown_keys_that_the_controller_only_warns_of(config: dict[str, Any]) -> None:
    assert parse(yaml.safe_dump(config)).unknown_keys
    with pytest.raises(AnsibleFilterError):
        rollout.kubeai_config(config)


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda path: path.stem)
def test_a_system_yaml_of_the_original_is_taken(system: Path) -> None:
    parse(yaml.safe_dump(rollout.kubeai_config(documents.read(system))))
