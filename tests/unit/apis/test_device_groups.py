"""Pods whose GPUs only a group may open are members of it; llama.cpp ends where it cannot open them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from slipway.engines.definition.gpus import named
from slipway.engines.programs.llamacpp import LLAMACPP
from slipway.serving.containers.devices import with_groups
from slipway.serving.contract.api import World
from tests import worlds

from . import test_krypton as krypton
from .kubeai import test_kubeai as kubeai
from .llmkube import services as llmkube
from .ome import services as ome

GROUPS = (992, 44)
PROFILE = 'resourceProfiles: {amd: {limits: {amd.com/gpu: "1"}}, cpu: {requests: {cpu: "1"}}}'
ROCM = "ghcr.io/ggml-org/llama.cpp:server-rocm-v0.4.1"
AMD_MODEL = {**llmkube.GGUF, "hardware": {"accelerator": "rocm", "gpu": {"enabled": True, "count": 2}}}
VULKAN_MODEL = {
    **llmkube.GGUF,
    "hardware": {"accelerator": "vulkan", "gpu": {"enabled": True, "count": 1, "vendor": "amd"}},
}


def of_ome(limits: dict[str, str]) -> World:
    runner = ome.runner(resources={"limits": limits})
    return ome.world(None, ome.model(), ome.runtime(engineConfig={"runner": runner}))


WITH_GPUS = {
    "krypton-amd": krypton.world(image=ROCM, resources={"limits": {"amd.com/gpu": 1}}),
    "krypton-intel": krypton.world(resources={"limits": {"gpu.intel.com/xe": 1}}),
    "kubeai": kubeai.world(config=PROFILE, resourceProfile="amd:1"),
    "llmkube-rocm": llmkube.world(model=AMD_MODEL),
    "llmkube-vulkan": llmkube.world(model=VULKAN_MODEL),
    "ome": of_ome({"amd.com/gpu": "8"}),
}
WITHOUT = {
    "krypton-nvidia": krypton.world(resources={"limits": {"nvidia.com/gpu": 1}}),
    "kubeai": kubeai.world(config=PROFILE),
    "llmkube": llmkube.world(),
    "ome": of_ome({"nvidia.com/gpu": "8"}),
}


def pod(world: World, groups: tuple[int, ...] = GROUPS) -> Any:
    had: Any = world.listers
    settings = msgspec.structs.replace(world.settings, device_groups=groups)
    planned = worlds.plan(had.api, msgspec.structs.replace(world, settings=settings))
    (deployment,) = (one for one in planned.children if one["kind"] == "Deployment")
    return deployment["spec"]["template"]["spec"]


@pytest.mark.parametrize("name", WITH_GPUS)
def test_pods_with_such_gpus_are_members_of_the_groups(name: str) -> None:
    assert pod(WITH_GPUS[name])["securityContext"]["supplementalGroups"] == [992, 44]
    assert "supplementalGroups" not in pod(WITH_GPUS[name], ()).get("securityContext", {})


@pytest.mark.parametrize("name", WITHOUT)
def test_other_pods_are_not(name: str) -> None:
    assert "supplementalGroups" not in pod(WITHOUT[name]).get("securityContext", {})


def test_groups_of_the_author_stay() -> None:
    given = {"securityContext": {"supplementalGroups": [7, 44]}, "containers": [], "resourceClaims": [{"name": "gpu"}]}
    assert with_groups(given, GROUPS)["securityContext"] == {"supplementalGroups": [7, 992, 44]}
    assert with_groups({"containers": []}, GROUPS) == {"containers": []}


@pytest.mark.parametrize(
    ("image", "limits", "extra", "value"),
    [
        (ROCM, {"amd.com/gpu": 1}, {}, "ROCm0"),
        (ROCM, {"amd.com/gpu": "2"}, {}, "ROCm0,ROCm1"),
        ("ghcr.io/ggml-org/llama.cpp:server-vulkan-v0.5.0", {"amd.com/gpu": 1}, {}, "Vulkan0"),
        ("registry:5000/a/llama.cpp:server-intel-b1@sha256:0", {"gpu.intel.com/i915": "1"}, {}, "SYCL0"),
        ("acme/mine:rocm", {"amd.com/gpu": 1}, {}, "ROCm0"),
        ("ghcr.io/ggml-org/llama.cpp:server-v0.5.0", {"amd.com/gpu": 1}, {}, ""),
        (ROCM, {"nvidia.com/gpu": 1}, {}, ""),
        (ROCM, {"devic.es/dri-render": 1}, {}, ""),
        (ROCM, {"amd.com/gpu": "many"}, {}, ""),
        (ROCM, {"amd.com/gpu": 999}, {}, ""),
        (ROCM, {}, {}, ""),
        (ROCM, {"amd.com/gpu": 1}, {"args": ["--device", "ROCm1"]}, ""),
        (ROCM, {"amd.com/gpu": 1}, {"args": ["-dev", "none"]}, ""),
        (ROCM, {"amd.com/gpu": 1}, {"env": [{"name": "LLAMA_ARG_DEVICE", "value": "none"}]}, ""),
    ],
)
def test_llamacpp_gets_its_gpus(image: str, limits: dict[str, Any], extra: dict[str, Any], value: str) -> None:
    container = {"image": image, "resources": {"limits": limits}, **extra}
    actual = named(container, LLAMACPP.devices)
    assert actual == (({"name": "LLAMA_ARG_DEVICE", "value": value},) if value else ())


@pytest.mark.parametrize("name", ["krypton-amd", "llmkube-rocm"])
def test_every_api_sets_the_device_variable(name: str) -> None:
    assert "LLAMA_ARG_DEVICE" in [one["name"] for one in pod(WITH_GPUS[name])["containers"][0]["env"]]


def test_it_ends_with_a_reason_that_is_known() -> None:
    failure = LLAMACPP.explain('error while handling environment variable "LLAMA_ARG_DEVICE": invalid device: ROCm0')
    assert failure is not None
    assert failure.reason == "NoGpu"
