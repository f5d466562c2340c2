"""What the role device_plugin makes of its settings and of a cluster: objects as golden files, nodes, rivals, problems.

`SLIPWAY_WRITE_GOLDEN=1` rewrites the golden files.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests import documents, goldens

from ..apis.test_fields import faults
from .rendering import ROLES, Rendered

GOLDENS = Path(__file__).parent / "golden"
GOLDEN = goldens.GoldenFile(GOLDENS / "device_plugin.txt")
OURS = "slipway.inference/accelerator"
NFD = "feature.node.kubernetes.io/pci-0302_10de.present"
MIGS = {"all-1g.10gb": [{"devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": 7}}]}
SHARED = {"nvidia.com/gpu": 4}
# Section of the golden file -> vendors, whether the cluster has node feature discovery, settings without their prefix.
CASES: dict[str, tuple[list[str], bool, dict[str, Any]]] = {
    "nvidia": (["nvidia"], False, {}),
    "nvidia_discovery": (["nvidia"], True, {}),
    "nvidia_time_slicing": (
        ["nvidia"],
        False,
        {"nvidia_sharing": "time_slicing", "nvidia_replicas": SHARED, "nvidia_rename_shared": True},
    ),
    "nvidia_mps": (["nvidia"], False, {"nvidia_sharing": "mps", "nvidia_replicas": SHARED}),
    "nvidia_mig": (["nvidia"], True, {"nvidia_mig_strategy": "mixed", "nvidia_mig_configs": MIGS}),
    "nvidia_profiles": (
        ["nvidia"],
        False,
        {
            "nvidia_profiles": {
                "shared": {"sharing": "time_slicing", "replicas": SHARED},
                "cut": {"mig_strategy": "single"},
            }
        },
    ),
    "nvidia_mirrored": (
        ["nvidia"],
        False,
        {
            "nvidia_device_list_strategy": ["envvar"],
            "nvidia_config": {"flags": {"plugin": {"deviceIDStrategy": "index"}}},
            "registry": "registry.example.com/mirror",
            "image_pull_secrets": ["mirror"],
            "tolerations": [{"key": "example.com/batch", "operator": "Exists"}],
            "node_selector": {"example.com/pool": "gpu"},
            "priority_class": "",
            "kubelet_folder": "/var/lib/k0s/kubelet",
        },
    ),
    "amd": (["amd"], True, {"amd_naming": "mixed"}),
    "intel": (["intel"], False, {"intel_shared": 2, "intel_allocation_policy": "balanced", "intel_monitoring": True}),
}


def rendered(*nodes: dict[str, Any], chosen: list[str] | None = None, **settings: Any) -> Rendered:
    given = {f"device_plugin_{name}": value for name, value in settings.items() if not name.startswith("_")}
    registered = {name: value for name, value in settings.items() if name.startswith("_")}
    nothing: dict[str, Any] = {"resources": [], "results": []}
    lookups = ("cluster", "ours", "sets", "slices", "classes", "operators", "namespace", "runtime_classes", "pods")
    return Rendered(
        "device_plugin",
        **{f"__device_plugin_{name}": nothing for name in lookups}
        | {"__device_plugin_cluster": {"resources": list(nodes)}, "__device_plugin_chosen": chosen or []}
        | {f"__device_plugin{name}": value for name, value in registered.items()}
        | given,
    )


def node(name: str, offers: dict[str, str] | None = None, managed: list[str] | None = None, **more: Any) -> Any:
    fields = {"f:metadata": {"f:labels": {f"f:{label}": {} for label in managed or []}}}
    metadata = {
        "name": name,
        "labels": {"kubernetes.io/os": "linux", **more.pop("labels", {})},
        "managedFields": [{"manager": "slipway.inference/device-plugin", "fieldsV1": fields}] if managed else [],
    }
    return {"metadata": metadata, "spec": more, "status": {"allocatable": {"cpu": "4", **(offers or {})}}}


def daemon_set(name: str, image: str, folder: str = "/var/lib/kubelet/device-plugins") -> dict[str, Any]:
    pod = {"containers": [{"name": "ctr", "image": image}], "volumes": [{"hostPath": {"path": folder}}]}
    return {"metadata": {"name": name, "namespace": "kube-system"}, "spec": {"template": {"spec": pod}}}


def objects(case: str) -> list[dict[str, Any]]:
    vendors, discovered, settings = CASES[case]
    nodes = [node("one", labels={NFD: "true"})] if discovered else []
    manifests: list[dict[str, Any]] = rendered(*nodes, chosen=vendors, **settings)["__device_plugin_manifests"]
    return manifests


@pytest.mark.parametrize("case", CASES)
def test_the_objects_are_those_of_the_golden_file(case: str) -> None:
    GOLDEN.check(case, "", {"children": objects(case)}, CASES)


def test_text_from_a_survey_has_the_same_effect() -> None:
    """Vendors above all: of none that it knows the role would remove what is installed."""
    shared = {"nvidia_sharing": "time_slicing", "nvidia_replicas": SHARED}
    texts = {
        "vendors": "nvidia, amd",
        "image_pull_secrets": "first,second",
        "nvidia_device_list_strategy": "envvar,volume-mounts",
        "nvidia_rename_shared": "true",
        "nvidia_fail_requests_greater_than_one": "false",
    }
    lists = {
        "vendors": ["nvidia", "amd"],
        "image_pull_secrets": ["first", "second"],
        "nvidia_device_list_strategy": ["envvar", "volume-mounts"],
        "nvidia_rename_shared": True,
        "nvidia_fail_requests_greater_than_one": False,
    }
    actual, meant = (rendered(chosen=["nvidia"], **shared, **values) for values in (texts, lists))

    for name in ("__device_plugin_candidates", "__device_plugin_manifests"):
        assert actual[name] == meant[name]
    assert actual["__device_plugin_candidates"] == ["amd", "nvidia"]


@pytest.mark.parametrize("case", CASES)
def test_objects_have_only_fields_that_kubernetes_knows(case: str) -> None:
    for manifest in GOLDEN.read(case)["children"]:
        if manifest["kind"] != "NodeFeatureRule":
            version = manifest["apiVersion"].rpartition("/")[2].capitalize()
            assert faults(manifest, f"{version}{manifest['kind']}", manifest["kind"]) == []


@pytest.mark.parametrize("case", CASES)
def test_only_what_shares_gpus_by_mps_or_cuts_them_is_privileged(case: str) -> None:
    privileged, capable = set(), set()
    for manifest in GOLDEN.read(case)["children"]:
        if manifest["kind"] != "DaemonSet":
            continue
        pod = manifest["spec"]["template"]["spec"]
        for container in pod["containers"] + pod.get("initContainers", []):
            security = container["securityContext"]
            if security.get("privileged"):
                privileged.add(manifest["metadata"]["name"])
            else:
                assert security["capabilities"]["drop"] == ["ALL"]
                capable |= {manifest["metadata"]["name"]} if security["capabilities"].get("add") else set()
        assert pod["automountServiceAccountToken"] is False

    assert privileged <= {"slipway-nvidia-mps", "slipway-nvidia-mig-manager"}
    assert all("discovery" in name or case in ("nvidia_mig", "nvidia_profiles") for name in capable)


def test_selinux_lets_plugins_connect_only_to_the_kubelet() -> None:
    typed = {
        manifest["metadata"]["name"].partition("-device-plugin")[0]
        for case in CASES
        for manifest in GOLDEN.read(case)["children"]
        if manifest["kind"] == "DaemonSet" and "container_device_plugin_t" in str(manifest["spec"]["template"]["spec"])
    }
    assert typed == {"slipway-nvidia", "slipway-amd", "slipway-intel-gpu-plugin"}

    bare = rendered(chosen=["nvidia", "amd", "intel"], selinux_type="")["__device_plugin_manifests"]
    assert "seLinuxOptions" not in str(bare)


def test_a_token_has_only_who_speaks_to_the_api_server() -> None:
    holders = {
        manifest["metadata"]["name"]
        for case in CASES
        for manifest in GOLDEN.read(case)["children"]
        if manifest["kind"] == "DaemonSet" and "token" in str(manifest["spec"]["template"]["spec"]["volumes"])
    }

    assert holders == {"slipway-nvidia-feature-discovery", "slipway-nvidia-mig-manager", "slipway-amd-labeller"}


def test_every_node_of_a_vendor_gets_one_plugin_regardless_of_its_profile() -> None:
    plugins = {
        manifest["metadata"]["name"]: manifest["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
        for manifest in objects("nvidia_profiles")
        if manifest["kind"] == "DaemonSet"
    }
    profiles = {
        name: {str(term["matchExpressions"][1:]).count("device-plugin.config") for term in terms}
        for name, affinity in plugins.items()
        for terms in [affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]]
    }

    assert set(profiles) == {f"slipway-nvidia-device-plugin{suffix}" for suffix in ("", "-shared", "-cut")}
    assert list(profiles.values()) == [{1}] * 3


def test_a_changed_configuration_replaces_the_pods() -> None:
    def revision(**settings: Any) -> str:
        manifests = rendered(chosen=["nvidia"], **settings)["__device_plugin_manifests"]
        [one] = [item for item in manifests if item["kind"] == "DaemonSet"]
        return str(one["spec"]["template"]["metadata"]["labels"]["slipway.inference/revision"])

    assert revision() == revision()
    assert revision() != revision(nvidia_mig_strategy="single")


def test_a_profile_that_goes_takes_its_objects_along_and_its_daemon_set_last() -> None:
    def ours(name: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "namespace": "slipway-devices", "labels": {OURS: "nvidia"}}}

    plugins = [ours("slipway-nvidia-device-plugin"), ours("slipway-nvidia-device-plugin-shared")]
    leftovers = rendered(chosen=["nvidia"], _ours={"resources": plugins})["__device_plugin_obsolete"]

    assert {one["metadata"]["name"] for one in leftovers} == {"slipway-nvidia-device-plugin-shared"}
    assert [one["kind"] for one in leftovers][-2:] == ["ConfigMap", "DaemonSet"]
    assert len(leftovers) == 7


# --- nodes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "expected", "vendor"),
    [
        ({}, {}, ""),
        ({NFD: "true"}, {}, "nvidia"),
        ({NFD: "false"}, {}, ""),
        ({"feature.node.kubernetes.io/amd-gpu": "true"}, {}, "amd"),
        ({"intel.feature.node.kubernetes.io/gpu": "true"}, {}, "intel"),
        ({OURS: "amd"}, {}, "amd"),
        ({OURS: "none"}, {}, ""),
        ({NFD: "true"}, {"one": "amd"}, "amd"),
        ({NFD: "true"}, {"one": "none"}, ""),
    ],
)
def test_the_vendor_of_a_nodes_gpus(labels: dict[str, str], expected: dict[str, str], vendor: str) -> None:
    node_state = rendered(node("one", labels=labels), nodes=expected)["__device_plugin_all"]["one"]

    assert node_state["vendor"] == vendor
    assert node_state["labels"].get(OURS, "") == (vendor or ("none" if expected else ""))


def test_a_node_is_left_alone_when_it_has_its_labels_and_no_other_of_ours() -> None:
    labels = {OURS: "nvidia", "nvidia.com/device-plugin.config": "shared"}
    nodes = [
        node("settled", labels=labels, managed=list(labels)),
        node("without", labels={NFD: "true"}),
        node("other", labels=labels | {"nvidia.com/device-plugin.config": "cut"}, managed=list(labels)),
        node("released", labels=labels, managed=list(labels)),
    ]
    profiles = dict.fromkeys(("settled", "other"), "shared")
    items = rendered(*nodes, chosen=["nvidia"], nvidia_node_profiles=profiles)["__device_plugin_labelled"]

    assert {item["key"]: item["value"]["labels"] for item in items} == {
        "without": {OURS: "nvidia"},
        "other": labels,
        "released": {OURS: "nvidia"},
    }


def test_hosts_of_the_inventory_are_known_by_what_was_found_or_said() -> None:
    hosts = {
        "one": {"gpu_node_found": {"vendor": "nvidia"}, "gpu_node_name": "node-one"},
        "two": {"gpu_node_vendor": "amd", "gpu_node_found": {"vendor": "nvidia"}},
        "three": {"gpu_node_vendor": "auto", "gpu_node_found": {"vendor": "none"}},
        "four": {},
    }
    vendors = Rendered("device_plugin", groups={"gpu_nodes": list(hosts)}, hostvars=hosts)["device_plugin_nodes"]

    assert vendors == {"node-one": "nvidia", "two": "amd"}


def test_waited_for_are_the_nodes_where_the_plugin_may_run() -> None:
    nodes = [
        node("one", labels={OURS: "nvidia"}),
        node("windows", labels={OURS: "nvidia", "kubernetes.io/os": "windows"}),
        node("kept-off", labels={OURS: "nvidia", "nvidia.com/gpu.deploy.device-plugin": "false"}),
        node("amd", labels={OURS: "amd"}),
        node("plain"),
    ]

    assert rendered(*nodes, chosen=["nvidia"])["__device_plugin_expected"] == ["one"]


# --- others -----------------------------------------------------------------------------------------------------------


OPERATED = {
    "item": {"key": "nvidia"},
    "resources": [{"kind": "ClusterPolicy", "metadata": {"name": "cluster-policy"}}],
}
NVIDIA_S = daemon_set("nvidia-device-plugin-daemonset", "nvcr.io/nvidia/k8s-device-plugin:v1")
AMD_S = daemon_set("amdgpu-device-plugin-daemonset", "rocm/k8s-device-plugin")
INTEL_S = daemon_set("plugin", "intel/intel-gpu-plugin:1", "/var/lib/kubelet/device-plugins/")
DRIVEN = [{"spec": {"driver": "gpu.nvidia.com"}}] * 2
CLASS = {"metadata": {"name": "big"}, "spec": {"extendedResourceName": "amd.com/gpu"}}


@pytest.mark.parametrize(
    ("registered", "vendor", "who"),
    [
        ({"_operators": {"results": [OPERATED]}}, "nvidia", "the operator of ClusterPolicy cluster-policy"),
        (
            {"_sets": {"resources": [NVIDIA_S]}},
            "nvidia",
            "DaemonSet nvidia-device-plugin-daemonset in namespace kube-system",
        ),
        (
            {"_sets": {"resources": [AMD_S]}},
            "amd",
            "DaemonSet amdgpu-device-plugin-daemonset in namespace kube-system",
        ),
        ({"_sets": {"resources": [INTEL_S]}}, "intel", "DaemonSet plugin in namespace kube-system"),
        ({"_slices": {"resources": DRIVEN}}, "nvidia", "the DRA driver gpu.nvidia.com"),
        ({"_classes": {"resources": [CLASS]}}, "amd", "the DRA class big (as amd.com/gpu)"),
    ],
)
def test_a_foreign_gpu_plugin_is_named_and_keeps_its_gpus(registered: dict[str, Any], vendor: str, who: str) -> None:
    role = rendered(node("one", labels={OURS: vendor}), **registered)

    assert role["__device_plugin_rivals"] == [{"vendor": vendor, "who": who}]
    assert role["__device_plugin_choice"] == []


@pytest.mark.parametrize(
    "other",
    [
        daemon_set("nvidia-dcgm-exporter", "nvcr.io/nvidia/k8s/dcgm-exporter:4", "/var/lib/kubelet/pod-resources"),
        daemon_set("rdma", "nvcr.io/nvidia/cloud-native/k8s-rdma-shared-dev-plugin:v1"),
        daemon_set("fuse", "example.com/fuse-device-plugin:1"),
    ],
)
def test_a_daemon_set_that_serves_no_gpus_is_no_rival(other: dict[str, Any]) -> None:
    role = rendered(node("one", labels={OURS: "nvidia"}), _sets={"resources": [other]})

    assert role["__device_plugin_rivals"] == []
    assert role["__device_plugin_choice"] == ["nvidia"]


def test_gpus_that_a_node_offers_without_our_plugin_are_foreign() -> None:
    offering = node("one", {"nvidia.com/gpu": "2"}, labels={OURS: "nvidia"})
    away = node("two", {"nvidia.com/gpu": "0"}, labels={OURS: "nvidia"})
    ours = {"resources": [{"metadata": {"labels": {OURS: "nvidia"}}}]}

    assert rendered(offering)["__device_plugin_rivals"] == [
        {"vendor": "nvidia", "who": "a plugin on node one, which registered nvidia.com/gpu"}
    ]
    assert rendered(away)["__device_plugin_rivals"] == []
    assert rendered(offering, _ours=ours)["__device_plugin_rivals"] == []


def test_an_installation_stays_while_its_nodes_are_unreachable() -> None:
    ours = {"resources": [{"metadata": {"labels": {OURS: "nvidia"}}}]}

    assert rendered(_ours=ours)["__device_plugin_choice"] == ["nvidia"]
    assert rendered(_ours=ours, vendors=["amd"])["__device_plugin_choice"] == ["amd"]


# --- problems ---------------------------------------------------------------------------------------------------------

PROBLEMS = documents.read(GOLDENS / "device_plugin_problems.yaml")


@pytest.mark.parametrize("case", PROBLEMS, ids=lambda case: "-".join(case["settings"]))
def test_errors_are_reported_before_any_change(case: dict[str, Any]) -> None:
    given = {"_runtime_classes": {"resources": [{"metadata": {"name": "nvidia"}}]}} | case["settings"]
    role = rendered(node("one", labels={OURS: "nvidia"}), chosen=["nvidia"], **given)

    assert role["__device_plugin_problems"] == case["said"]


# --- the end of the wait ----------------------------------------------------------------------------------------------


def pod(name: str, status: dict[str, Any]) -> dict[str, Any]:
    labels = {OURS: "nvidia", "slipway.inference/revision": "1"}
    return {"metadata": {"name": f"plugin-{name}", "labels": labels}, "spec": {"nodeName": name}, "status": status}


def unready(state: dict[str, Any], ended: dict[str, Any] | None = None) -> dict[str, Any]:
    last = {"terminated": ended} if ended else {}
    statuses = [{"name": "plugin", "ready": False, "state": state, "lastState": last}]
    return {"phase": "Pending", "containerStatuses": statuses}


def test_each_node_without_gpus_is_named_with_what_stands_in_the_way() -> None:
    names = ("crashing", "pulling", "refused", "silent", "tainted", "serving")
    nodes = [node(name, labels={OURS: "nvidia"}) for name in names]
    nodes[4]["spec"] = {"taints": [{"key": "example.com/batch", "effect": "NoSchedule"}]}
    nodes[5]["status"]["allocatable"]["nvidia.com/gpu"] = "1"
    ended = {"exitCode": 1, "reason": "Error", "message": "starting\nfailed to initialize NVML"}
    back_off, sandbox = {"reason": "CrashLoopBackOff", "message": "back-off 10s"}, {"reason": "ContainerCreating"}
    pods = [
        pod("crashing", unready({"waiting": back_off}, ended)),
        pod("pulling", unready({"waiting": {"reason": "ImagePullBackOff", "message": "no such host"}})),
        pod("refused", unready({"waiting": sandbox})),
        pod("silent", {"phase": "Running", "containerStatuses": [{"name": "plugin", "ready": True, "state": {}}]}),
    ]
    refusal = {"involvedObject": {"name": "plugin-refused"}, "message": 'no runtime for "nvidia" is configured'}
    role = rendered(
        *nodes,
        chosen=["nvidia"],
        _others=[],
        _revisions=[],
        _pods={"resources": pods},
        _warnings={"resources": [refusal]},
        _logs={"results": [{"item": "plugin-silent", "log_lines": ["Loading configuration.", "No devices found."]}]},
    )

    text = role.text("not_ready.txt.j2")
    golden = GOLDENS / "device_plugin_not_ready.txt"
    if os.environ.get("SLIPWAY_WRITE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()
    assert role["__device_plugin_silent"] == ["plugin-silent"]


def test_a_node_whose_plugin_cannot_start_is_missing_though_it_offers_gpus_still() -> None:
    nodes = [node(name, {"nvidia.com/gpu": "2"}, labels={OURS: "nvidia"}) for name in ("broken", "earlier")]
    broken = pod("broken", unready({"waiting": {"reason": "CrashLoopBackOff"}}))
    earlier = pod("earlier", unready({"waiting": {"reason": "CrashLoopBackOff"}}))
    earlier["metadata"]["labels"]["slipway.inference/revision"] = "0"
    role = rendered(*nodes, chosen=["nvidia"], _pods={"resources": [broken, earlier]}, _revisions=["1"])

    assert role["__device_plugin_states"] == {"broken": "stuck", "earlier": "pending"}
    assert role["__device_plugin_missing"] == ["broken"]


# --- images -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("image", "mirrored"),
    [
        ("nvcr.io/nvidia/k8s-device-plugin:v1", "registry.example.com/mirror/nvidia/k8s-device-plugin:v1"),
        ("rocm/k8s-device-plugin:1.31.0.10", "registry.example.com/mirror/rocm/k8s-device-plugin:1.31.0.10"),
        ("localhost:5000/plugin", "registry.example.com/mirror/plugin"),
    ],
)
def test_a_registry_takes_the_place_of_the_public_one(image: str, mirrored: str) -> None:
    role = rendered(chosen=["nvidia"], nvidia_image=image, registry="registry.example.com/mirror")
    images = {
        container["image"]
        for item in role["__device_plugin_manifests"]
        if item["kind"] == "DaemonSet"
        for container in item["spec"]["template"]["spec"]["containers"]
    }

    assert images == {mirrored}


def test_the_images_are_those_stated_with_the_others() -> None:
    stated = (ROLES.parent / "images/versions.env").read_text().splitlines()
    images = {
        value
        for name, value in documents.read(ROLES / "device_plugin/defaults/main.yml").items()
        if name.endswith("_image")
    }

    assert images == {line.partition("=")[2] for line in stated if line.startswith("ACCELERATOR_")}
