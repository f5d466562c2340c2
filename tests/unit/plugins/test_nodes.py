# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The inventory plugin nodes against an API server."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleError
from ansible.inventory.data import InventoryData
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import inventory_loader
from ansible_collections.slipway.inference.plugins.plugin_utils import _nodes
from fake_api import Answer, FakeApi

COLLECTION = Path(__file__).resolve().parents[3]
NAME = "slipway.inference.nodes"
PLUGIN = "ansible_collections.slipway.inference.plugins.inventory.nodes"
Read = Callable[..., InventoryManager]
H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.present": "true"}


def has_node(
    api: FakeApi,
    name: str,
    labels: dict[str, str] | None = None,
    *,
    allocatable: dict[str, str] | None = None,
    ready: str = "True",
    addresses: dict[str, str] | None = None,
    **spec: Any,
) -> None:
    api.objects[f"/api/v1/nodes/{name}"] = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": spec,
        "status": {
            "allocatable": {"cpu": "8", **(allocatable or {})},
            "capacity": {"cpu": "8", "nvidia.com/gpu": "8"} if labels == H100 else {"cpu": "8"},
            "conditions": [{"type": "Ready", "status": ready}],
            "addresses": [{"type": kind, "address": address} for kind, address in (addresses or {}).items()],
            "nodeInfo": {"architecture": "amd64", "osImage": "Ubuntu 24.04.3 LTS", "kubeletVersion": "v1.34.1"},
        },
    }


@pytest.fixture
def read(api: FakeApi, tmp_path: Path) -> Read:
    """Reads the inventory with these options."""

    def call(*, cached: bool = True, **options: Any) -> InventoryManager:
        file = tmp_path / "nodes.yml"
        settings = {"plugin": NAME, "host": api.url, "api_key": "the-api-key", "strict": True}
        file.write_text(yaml.safe_dump({**settings, **options}))
        inventory = InventoryManager(loader=DataLoader(), sources=[str(file)], parse=False)
        inventory.parse_source(str(file), cache=cached)
        inventory.reconcile_inventory()
        return inventory

    return call


def members(inventory: InventoryManager) -> dict[str, list[str]]:
    usual = ("all", "ungrouped")
    groups = inventory.groups.items()
    return {name: [host.name for host in group.hosts] for name, group in groups if name not in usual}


def test_nodes_are_hosts_with_what_the_cluster_knows_of_them(api: FakeApi, read: Read) -> None:
    has_node(api, "gpu-1", H100, allocatable={"nvidia.com/gpu": "7"}, addresses={"InternalIP": "10.0.0.5"})
    variables = read().get_host("gpu-1").get_vars()
    assert {
        name: variables[name] for name in variables if name.startswith(("node_acc", "ansible_host", "node_ready"))
    } == {
        "ansible_host": "10.0.0.5",
        "node_accelerator": "nvidia",
        "node_accelerator_product": "NVIDIA-H100-80GB-HBM3",
        "node_accelerators": 7,
        "node_accelerators_capacity": 8,
        "node_accelerator_resources": {"nvidia.com/gpu": 7},
        "node_ready": True,
    }
    assert (variables["node_os_image"], variables["node_schedulable"]) == ("Ubuntu 24.04.3 LTS", True)
    assert [call.verb for call in api.calls] == ["list"]


def test_nodes_are_grouped_by_the_vendor_of_their_accelerators(api: FakeApi, read: Read) -> None:
    has_node(api, "by-our-label", {_nodes.LABEL: "intel"})
    has_node(api, "by-discovery", {"feature.node.kubernetes.io/amd-gpu": "true"})
    has_node(api, "by-what-it-offers", allocatable={"nvidia.com/mig-1g.10gb": "14"})
    has_node(api, "without", {"nvidia.com/gpu.present": "false"}, allocatable={"nvidia.com/gpu": "0"})
    assert members(read()) == {
        "accelerators": ["by-discovery", "by-our-label", "by-what-it-offers"],
        "accelerator_amd": ["by-discovery"],
        "accelerator_intel": ["by-our-label"],
        "accelerator_nvidia": ["by-what-it-offers"],
    }


def test_an_unready_or_cordoned_node_is_marked_in_its_variables(api: FakeApi, read: Read) -> None:
    has_node(api, "away", ready="Unknown")
    has_node(api, "cordoned", unschedulable=True)
    inventory = read()
    host_variables = {name: host.get_vars() for name, host in inventory.hosts.items()}
    assert {
        name: (variables["node_ready"], variables["node_schedulable"]) for name, variables in host_variables.items()
    } == {
        "away": (False, True),
        "cordoned": (True, False),
    }
    assert "ansible_host" not in host_variables["away"]


def test_groups_and_variables_can_be_composed(api: FakeApi, read: Read) -> None:
    has_node(api, "gpu-1", H100, allocatable={"nvidia.com/gpu": "8"})
    has_node(api, "cpu-1")
    inventory = read(
        strict=False,  # A node without a product is in no group of one.
        groups={"gpu_nodes": 'node_accelerator == "nvidia" and big'},
        keyed_groups=[{"key": "node_accelerator_product", "prefix": "product", "trailing_separator": False}],
        compose={"big": "node_accelerators >= 8"},
    )
    assert inventory.get_host("gpu-1").get_vars()["big"]
    assert members(inventory)["gpu_nodes"] == ["gpu-1"]
    assert members(inventory)["product_NVIDIA_H100_80GB_HBM3"] == ["gpu-1"]


def test_nodes_are_selected_by_labels(api: FakeApi, read: Read) -> None:
    has_node(api, "a", {"pool": "gpu"})
    has_node(api, "b", {"pool": "web"})
    assert list(read(label_selectors=["pool=gpu"]).hosts) == ["a"]


def test_read_data_is_kept_until_a_refresh_is_requested(api: FakeApi, read: Read, tmp_path: Path) -> None:
    has_node(api, "a")
    cache = {"cache": True, "cache_plugin": "ansible.builtin.jsonfile", "cache_connection": str(tmp_path / "cache")}
    read(**cache)
    has_node(api, "b")
    assert list(read(**cache).hosts) == ["a"]
    assert len(api.calls) == 1
    assert list(read(cached=False, **cache).hosts) == ["a", "b"]
    assert "the-api-key" not in "".join(file.read_text() for file in (tmp_path / "cache").iterdir())


def test_text_of_a_kubelet_is_not_evaluated_as_a_template(api: FakeApi, read: Read) -> None:
    has_node(api, "a", addresses={"Hostname": "{{ 6 * 7 }}"})
    inventory = read(compose={"said": "node_addresses.Hostname[0]"})
    assert inventory.get_host("a").get_vars()["said"] == "{{ 6 * 7 }}"


def test_an_address_that_would_be_an_option_of_ssh_is_not_connected_to(api: FakeApi, read: Read) -> None:
    has_node(api, "a", addresses={"InternalIP": "-oProxyCommand=true", "Hostname": "a.example"})
    has_node(api, "b", addresses={"InternalIP": "fd00::1"})
    hosts = {name: read().get_host(name).get_vars()["ansible_host"] for name in ("a", "b")}
    assert hosts == {"a": "a.example", "b": "fd00::1"}


@pytest.mark.parametrize("allocatable", [{"nvidia.com/gpu": "many"}, {"nvidia.com/gpu": "-1"}, {"nvidia.com/gpu": "²"}])
def test_an_amount_that_is_none_counts_as_nothing(api: FakeApi, read: Read, allocatable: dict[str, str]) -> None:
    has_node(api, "a", allocatable=allocatable)
    assert read().get_host("a").get_vars()["node_accelerators"] == 0


def test_an_inventory_counts_1k_as_a_thousand(api: FakeApi, read: Read) -> None:
    has_node(api, "a", allocatable={"nvidia.com/gpu": "1k", "nvidia.com/mig-1g.5gb": "1500m"})
    node = read().get_host("a").get_vars()
    assert node["node_accelerators"] == 1001
    assert node["node_accelerator_resources"] == {"nvidia.com/gpu": 1000, "nvidia.com/mig-1g.5gb": 1}


def test_a_refusal_of_the_api_server_is_reported_without_the_token(api: FakeApi, tmp_path: Path) -> None:
    api.answers.append(Answer(lambda _call: True, 401, "Unauthorized", "Unauthorized"))
    file = tmp_path / "nodes.yml"
    file.write_text(yaml.safe_dump({"plugin": NAME, "host": api.url, "api_key": "the-api-key"}))
    with pytest.raises(AnsibleError, match="The API server rejected the credentials") as raised:
        inventory_loader.get(NAME).parse(InventoryData(), DataLoader(), str(file))
    assert "the-api-key" not in str(raised.value)


def test_vendors_are_those_that_the_role_knows() -> None:
    role = COLLECTION / "roles" / "device_plugin" / "vars" / "main" / "nodes.yml"
    role_vars = yaml.safe_load(role.read_text())
    assert role_vars["__device_plugin_label"] == _nodes.LABEL
    assert {
        name: (vendor.resources, [{"key": label, "operator": "In", "values": ["true"]} for label in vendor.labels])
        for name, vendor in _nodes.VENDORS.items()
    } == {name: (vendor["resources"], vendor["nodes"]) for name, vendor in role_vars["__device_plugin_vendors"].items()}


def test_pages_and_documentation_have_readable_examples(api: FakeApi, read: Read, tmp_path: Path) -> None:
    has_node(api, "gpu-1", H100, allocatable={"nvidia.com/gpu": "8"})
    page = (COLLECTION / "docs" / "reference" / "nodes" / "inventory.md").read_text()
    shown = page.split("<!-- elsewhere: tests/unit/plugins/test_nodes.py -->\n```yaml\n")[1].split("```")[0]
    for text in (shown, import_module(PLUGIN).EXAMPLES):
        options = {**yaml.safe_load(text), "cache_connection": str(tmp_path / "cache")}
        groups = members(read(cached=False, **options))
        assert groups["gpu_nodes"] == groups["product_NVIDIA_H100_80GB_HBM3"] == ["gpu-1"]
