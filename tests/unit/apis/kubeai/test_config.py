"""The system configuration: KubeAI's keys over our defaults, and errors that say where and what."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import yaml

from slipway.apis.kubeai import system_yaml
from slipway.apis.kubeai.settings import InvalidConfigError, ResourceProfile, SharedFilesystem, SystemConfig
from slipway.apis.kubeai.system_yaml import parse
from slipway.decoding import decode_yaml
from slipway.serving.contract.api import InvalidSpecError
from tests import documents

SAMPLES = Path(__file__).parents[5] / "shared" / "reference" / "samples" / "kubeai" / "config"
NVIDIA = {"key": "nvidia.com/gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"}


def config(**sections: object) -> SystemConfig:
    return parse(yaml.safe_dump(sections))


def refused(text: str) -> str:
    with pytest.raises(InvalidConfigError) as caught:
        parse(text)
    assert caught.value.reason == "InvalidConfig"
    return caught.value.message.removeprefix("system configuration: ")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("modelRollouts: []", "modelRollouts must be a mapping"),
        ("a: [", "it is not YAML"),
        ("modelRollouts: {surge: 2}", None),
    ],
)
def test_a_text_is_read_once_be_it_valid_or_not(text: str, fault: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    text, read = f"# read once\n{text}", []
    monkeypatch.setattr(
        system_yaml, "decode_yaml", lambda given, *, most: read.append(given) or decode_yaml(given, most=most)
    )
    outcomes = {refused(text) if fault else str(parse(text)) for _unused in range(5)}
    assert read.count(text) == 1
    assert len(outcomes) == 1
    assert (fault or "") in outcomes.pop()


@pytest.mark.parametrize("text", ["", "{}", "# nothing\n", "resourceProfiles:\n"])
def test_a_file_that_says_nothing_gives_the_defaults(text: str) -> None:
    default = parse(text)
    assert default.model_autoscaling.interval == 10
    assert default.model_autoscaling.time_window == 600
    assert default.model_rollouts.surge == 1
    assert default.secret_names.huggingface == "kubeai-huggingface"
    assert default.cache_profiles == {}
    assert default.model_loading.image == ""
    assert default.model_server_pods.security_context["allowPrivilegeEscalation"] is False


def test_the_profiles_of_the_chart_are_there() -> None:
    default = parse("")
    nvidia = ("t4", "l4", "l40s", "h100", "gh200", "a100-80gb", "a100-40gb", "a16", "rtx4070-8gb")
    assert set(default.resource_profiles) == {"cpu", "amd-gpu-mi300x", *(f"nvidia-gpu-{name}" for name in nvidia)}
    assert default.resource_profiles["nvidia-gpu-l4"].tolerations == (NVIDIA,)
    assert default.resource_profiles["nvidia-gpu-t4"].tolerations == ()
    assert default.resource_profiles["amd-gpu-mi300x"].limits == {"amd.com/gpu": "1"}


def test_a_profile_is_multiplied_by_its_count() -> None:
    profile = parse("").resource_profile("nvidia-gpu-l4:2")
    assert profile.requests == {"nvidia.com/gpu": "2", "cpu": "12", "memory": "48Gi"}
    assert profile.limits == {"nvidia.com/gpu": "2"}
    assert parse("").resource_profile("cpu:3").requests == {"cpu": "3", "memory": "6Gi"}


def test_numbers_of_yaml_are_quantities_too() -> None:
    profile = config(
        resourceProfiles={"half": {"requests": {"cpu": 0.5, "memory": 1073741824}, "limits": {"cpu": "3"}}}
    )
    assert profile.resource_profile("half:3").requests == {"cpu": "1500m", "memory": "3221225472"}


@pytest.mark.parametrize(
    "requested", ["", "cpu", ":1", "cpu:", "cpu:0", "cpu:-1", "cpu:1.5", "cpu:one", "cpu:1:1", "cpu: 1"]
)
def test_a_resource_profile_is_a_name_and_a_count(requested: str) -> None:
    with pytest.raises(InvalidSpecError, match="is not of the form name:count, such as cpu:1") as caught:
        parse("").resource_profile(requested)
    assert caught.value.reason == "InvalidSpec"


def test_models_on_several_nodes_are_refused_by_name() -> None:
    with pytest.raises(InvalidSpecError, match="several nodes is not supported"):
        parse("").resource_profile("cpu:1:2")


def test_a_profile_that_is_not_there_is_reported_with_those_that_are() -> None:
    with pytest.raises(InvalidSpecError, match=r"no profile 'gpu'. It has amd-gpu-mi300x, cpu, ") as caught:
        parse("").resource_profile("gpu:1")
    assert caught.value.reason == "UnknownProfile"
    with pytest.raises(InvalidSpecError, match=r"no cache profile 'efs': the system configuration has none") as caught:
        parse("").cache_profile("efs")
    assert caught.value.reason == "UnknownCacheProfile"


def test_a_profile_that_is_misspelled_is_reported_with_a_suggestion() -> None:
    with pytest.raises(InvalidSpecError, match=r"Did you mean cpu\? It has "):
        parse("").resource_profile("cpuu:1")
    config = parse("cacheProfiles: {efs: {sharedFilesystem: {storageClassName: efs}}}")
    with pytest.raises(InvalidSpecError, match=r"no cache profile 'efss': .* has efs; did you mean efs\?$"):
        config.cache_profile("efss")


@pytest.mark.parametrize(
    ("engine", "profile", "image"),
    [
        ("VLLM", "cpu", "public.ecr.aws/q9t5s3a7/vllm-cpu-release-repo:v0.33.0"),
        ("VLLM", "nvidia-gpu-l4", "vllm/vllm-openai:v0.33.0"),
        ("OLlama", "cpu", "ollama/ollama:0.17.4"),
        ("OLlama", "amd-gpu-mi300x", "ollama/ollama:0.17.4-rocm"),
        ("FasterWhisper", "nvidia-gpu-gh200", "fedirz/faster-whisper-server:0.6.0-rc.3-cpu"),
        ("LlamaCpp", "nvidia-gpu-t4", "ghcr.io/ggml-org/llama.cpp:server-cuda-v0.5.0"),
    ],
)
def test_the_image_is_the_profiles_or_the_engines_default(engine: str, profile: str, image: str) -> None:
    assert parse("").image(engine, parse("").resource_profile(f"{profile}:1")) == image


def test_an_engine_without_any_image_is_reported_with_the_key_to_set() -> None:
    bare = config(modelServers={"VLLM": {"images": {"default": "", "cpu": "mine"}}})
    assert bare.image("VLLM", bare.resource_profiles["cpu"]) == "mine"
    with pytest.raises(InvalidSpecError, match=r"Set modelServers\.VLLM\.images\.default") as caught:
        bare.image("VLLM", bare.resource_profiles["nvidia-gpu-l4"])
    assert caught.value.reason == "NoImage"


class TestLayers:
    """A complete entry replaces the default of its name, an incomplete one adds to it."""

    def test_a_profile_with_resources_is_taken_as_it_is(self) -> None:
        profile = config(resourceProfiles={"nvidia-gpu-l4": {"limits": {"nvidia.com/gpu": "1"}}})
        small = profile.resource_profiles["nvidia-gpu-l4"]
        assert (small.requests, small.limits) == ({}, {"nvidia.com/gpu": "1"})
        assert (small.image_name, small.tolerations) == ("", ())

    def test_a_profile_of_node_selectors_alone_adds_them(self) -> None:
        profile = config(resourceProfiles={"nvidia-gpu-l4": {"nodeSelector": {"gpu": "l4"}, "limits": None}})
        placed = profile.resource_profiles["nvidia-gpu-l4"]
        assert placed.node_selector == {"gpu": "l4"}
        assert msgspec.structs.replace(placed, node_selector={}) == parse("").resource_profiles["nvidia-gpu-l4"]

    def test_images_with_a_default_are_taken_as_they_are(self) -> None:
        mine = config(modelServers={"VLLM": {"images": {"default": "mine"}}})
        assert mine.image("VLLM", mine.resource_profile("nvidia-gpu-l4:1")) == "mine"
        assert mine.model_servers["OLlama"] == parse("").model_servers["OLlama"]

    def test_images_without_a_default_add(self) -> None:
        mine = config(modelServers={"VLLM": {"images": {"cpu": "mine"}}})
        assert mine.image("VLLM", mine.resource_profile("cpu:1")) == "mine"
        assert mine.image("VLLM", mine.resource_profile("nvidia-gpu-l4:1")) == "vllm/vllm-openai:v0.33.0"

    def test_new_profiles_and_engines_join_the_others(self) -> None:
        mine = config(
            resourceProfiles={"tpu": {"limits": {"google.com/tpu": 1}}},
            modelServers={"New": {"images": {"default": "n"}}},
        )
        assert mine.resource_profile("tpu:4").limits == {"google.com/tpu": "4"}
        assert mine.image("New", mine.resource_profile("cpu:1")) == "n"
        assert "nvidia-gpu-l4" in mine.resource_profiles

    def test_single_keys_keep_their_neighbours(self) -> None:
        mine = config(modelAutoscaling={"interval": "1s"}, secretNames={"aws": "mine"})
        assert (mine.model_autoscaling.interval, mine.model_autoscaling.time_window) == (1, 600)
        assert (mine.secret_names.aws, mine.secret_names.gcp) == ("mine", "kubeai-gcp")


def test_null_is_the_same_as_absent() -> None:
    assert config(modelRollouts={"surge": None}, modelServerPods={"serviceAccountName": None}) == parse("")
    bare = config(resourceProfiles={"x": {"requests": None, "limits": {"cpu": None}, "nodeSelector": {"a": None}}})
    assert bare.resource_profiles["x"] == ResourceProfile()


@pytest.mark.parametrize(("written", "seconds"), [("10s", 10), ("1m30s", 90), ("500ms", 0.5), (2_000_000_000, 2)])
def test_durations_are_those_of_go(written: str | int, seconds: float) -> None:
    assert config(modelAutoscaling={"interval": written}).model_autoscaling.interval == seconds


def test_a_cache_profile_names_a_class_or_a_volume() -> None:
    caches = config(
        cacheProfiles={
            "dynamic": {"sharedFilesystem": {"storageClassName": "efs", "storageSize": "1Ti"}},
            "static": {"sharedFilesystem": {"persistentVolumeName": "pv"}},
        }
    )
    assert caches.cache_profile("dynamic") == SharedFilesystem(storage_class_name="efs", storage_size="1Ti")
    assert caches.cache_profile("static") == SharedFilesystem(persistent_volume_name="pv", storage_size="10Gi")


def test_patches_are_given_on_as_they_were_written() -> None:
    written = [
        {"op": "add", "path": "/spec/priorityClassName", "value": "high"},
        {"op": "add", "path": "/spec/hostNetwork", "value": None},
        {"op": "move", "from": "/spec/a", "path": "/spec/b"},
        {"op": "remove", "path": "/spec/c"},
    ]
    pods = config(modelServerPods={"jsonPatches": written}).model_server_pods
    assert msgspec.to_builtins(list(pods.json_patches)) == written


@pytest.mark.parametrize(
    "image",
    ["kubeai-model-loader:latest", "registry.invalid/team/kubeai-model-loader", "a/kubeai-model-loader@sha256:0"],
)
def test_the_loader_of_the_original_means_ours(image: str) -> None:
    assert config(modelLoading={"image": image}).model_loading.image == ""


def test_any_other_loader_is_kept() -> None:
    image = "registry.invalid/kubeai-model-loader-of-mine:1"
    assert config(modelLoading={"image": image}).model_loading.image == image


def test_keys_that_mean_nothing_here_are_taken() -> None:
    unused = {
        "messaging": {"errorMaxBackoff": "30s", "streams": []},
        "leaderElection": {"leaseDuration": "15s"},
        "metricsAddr": ":8080",
        "healthAddress": ":8081",
        "allowPodAddressOverride": True,
        "fixedSelfMetricAddrs": ["127.0.0.1:8080"],
        "proxy": {"mode": "internal"},
    }
    assert config(**unused) == parse("")


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("resourceProfile: {}", ["resourceProfile"]),
        ("secretNames: {hugging: a}", ["secretNames.hugging"]),
        ("resourceProfiles: {x: {request: {}, affinity: {any: thing}}}", ["resourceProfiles.x.request"]),
        ("modelServers: {VLLM: {image: a}, New: {pods: 1}}", ["modelServers.VLLM.image", "modelServers.New.pods"]),
        (
            "cacheProfiles: {x: {sharedFilesystem: {storageClassName: a, mode: b}}}",
            ["cacheProfiles.x.sharedFilesystem.mode"],
        ),
        ("modelServerPods: {jsonPatches: [{op: remove, path: /a, why: b}]}", ["modelServerPods.jsonPatches[0].why"]),
        ("modelAutoscaling: {interval: 1s, panic: 2}", ["modelAutoscaling.panic"]),
        ("unknownKeys: [a]", ["unknownKeys"]),
        ("proxy: {anything: 1}", []),
        ("", []),
    ],
)
def test_a_key_that_is_not_known_is_reported_and_the_others_count(text: str, unknown: list[str]) -> None:
    read = parse(text)
    assert list(read.unknown_keys) == unknown
    assert "cpu" in read.resource_profiles


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: b: c", "it is not YAML: "),
        ("[]", "it must be a mapping"),
        ("text", "it must be a mapping"),
        ("resourceProfiles: []", "resourceProfiles must be a mapping"),
        ("resourceProfiles: {1: {}}", "resourceProfiles must be a mapping"),
        ("resourceProfiles: {x: cpu}", "resourceProfiles.x must be a mapping"),
        ("resourceProfiles: {x: {dra: {}}}", "resourceProfiles.x.dra: expected resourceClaimTemplateName or"),
        (
            "resourceProfiles: {x: {dra: {resourceClaimName: a, resourceClaimTemplateName: b}}}",
            "resourceProfiles.x.dra: expected resourceClaimTemplateName or resourceClaimName, and not both",
        ),
        (
            "resourceProfiles: {x: {limits: {nvidia.com/gpu: 1}, dra: {resourceClaimName: a}}}",
            "resourceProfiles.x: dra allocates the GPUs. Remove nvidia.com/gpu from requests and limits",
        ),
        (
            "resourceProfiles: {x: {requests: {memory: lots}}}",
            "resourceProfiles.x.requests.memory: 'lots' is not a quant",
        ),
        ("resourceProfiles: {x: {limits: {cpu: true}}}", "resourceProfiles.x.limits.cpu: expected a quantity"),
        ("resourceProfiles: {x: {limits: {cpu: .inf}}}", "resourceProfiles.x.limits.cpu: 'inf' is not a quantity"),
        ("resourceProfiles: {x: {tolerations: {}}}", "resourceProfiles.x.tolerations: expected `array`"),
        (
            "resourceProfiles: {x: {nodeSelector: {a: 1}}}",
            "resourceProfiles.x.nodeSelector.a: expected a string; put 1",
        ),
        ("modelServers: {VLLM: {images: {cpu: 1}}}", "modelServers.VLLM.images.cpu: expected a string"),
        (
            "cacheProfiles: {x: {}}",
            "cacheProfiles.x.sharedFilesystem: expected storageClassName or persistentVolumeName",
        ),
        (
            "cacheProfiles: {x: {sharedFilesystem: {storageClassName: a, storageSize: big}}}",
            "cacheProfiles.x.sharedFilesystem.storageSize: 'big' is not a quantity",
        ),
        (
            "cacheProfiles: {My_Cache: {sharedFilesystem: {storageClassName: a}}}",
            "cacheProfiles.My_Cache: the name is used for a PVC",
        ),
        ("modelAutoscaling: {interval: soon}", "modelAutoscaling.interval: 'soon' is not a duration such as 90s"),
        ("modelAutoscaling: {interval: true}", "modelAutoscaling.interval: 'True' is not a duration"),
        (
            "modelAutoscaling: {timeWindow: 10}",
            "modelAutoscaling.timeWindow: 10 is shorter than 100ms; a number without",
        ),
        ("modelRollouts: {surge: -1}", "modelRollouts.surge: expected `int` >= 0"),
        ("modelServerPods: {imagePullSecrets: [a]}", "modelServerPods.imagePullSecrets[0]: expected `object`"),
        ("modelServerPods: {jsonPatches: [{op: put, path: /a}]}", "modelServerPods.jsonPatches[0].op: invalid enum"),
        ("modelServerPods: {jsonPatches: [{op: add, path: a}]}", "modelServerPods.jsonPatches[0]: path 'a' must begin"),
        ("modelServerPods: {jsonPatches: [{op: add, path: /a}]}", "modelServerPods.jsonPatches[0]: add needs a value"),
        ("modelServerPods: {jsonPatches: [{op: move, path: /a}]}", "modelServerPods.jsonPatches[0]: move needs from"),
    ],
)
def test_a_fault_is_reported_with_its_key_and_what_is_expected(text: str, expected: str) -> None:
    assert refused(text).startswith(expected)


@pytest.mark.skipif(not SAMPLES.exists(), reason="the original's files do not lie beside this checkout")
@pytest.mark.parametrize(
    "name", ["system-gke", "system-kind", "values-gke", "values-eks", "values-nvidia-k8s-device-plugin"]
)
def test_a_file_of_the_original_is_taken_as_it_is(name: str) -> None:
    given = documents.read(SAMPLES / f"{name}.yaml")
    read = parse((SAMPLES / f"{name}.yaml").read_text())
    for profile, entry in given["resourceProfiles"].items():
        assert read.resource_profiles[profile].node_selector == entry.get("nodeSelector", {})
    for engine, server in given.get("modelServers", {}).items():
        assert read.model_servers[engine].images == server["images"]
