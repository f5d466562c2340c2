# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nodes
short_description: Use the nodes of a Kubernetes cluster as hosts, grouped by accelerator
version_added: 0.5.0
author:
  - The slipway.inference authors (@slipway)
description:
  - Adds every node of a cluster as a host with the same name, and its properties as variables.
  - Nodes with accelerators are in the group C(accelerators) and in the group of their vendor, C(accelerator_nvidia),
    C(accelerator_amd) or C(accelerator_intel). Define more groups with O(groups) and O(keyed_groups).
  - V(node_accelerator) is V(nvidia), V(amd), V(intel) or empty. It is read from the label of the role
    P(slipway.inference.device_plugin#role), from the labels of feature discovery, or from the node's resources, in this
    order. V(node_accelerator_product) is the product name from feature discovery. It is empty without feature
    discovery.
  - V(node_accelerators) is the number of allocatable accelerators, V(node_accelerators_capacity) the total number, and
    V(node_accelerator_resources) the allocatable number for each resource. A GPU partition counts as one.
  - V(node_ready) is the node's condition Ready. V(node_schedulable) is false if the node is cordoned.
  - V(node_addresses) contains lists of addresses by type, such as V(InternalIP). C(ansible_host) is the first
    V(InternalIP), V(ExternalIP) or V(Hostname).
  - V(node_labels), V(node_taints), V(node_architecture), V(node_os_image), V(node_kernel), V(node_kubelet) and
    V(node_container_runtime) are copied from the node.
  - The account needs the verb C(list) on nodes. Nodes are read in pages of 500.
extends_documentation_fragment:
  - slipway.inference.k8s_auth
  - constructed
  - inventory_cache
options:
  plugin:
    description: Name of this plugin. The name of the file must end in V(.yml) or V(.yaml).
    type: str
    required: true
    choices: [slipway.inference.nodes]
  label_selectors:
    description: Only nodes that match all of these label selectors, such as V(pool=gpu).
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
# nodes.yml. Set K8S_AUTH_HOST and K8S_AUTH_API_KEY in the environment, or use a kubeconfig.
# Try it with: ansible-inventory --inventory nodes.yml --graph --vars
plugin: slipway.inference.nodes

# The playbook slipway.inference.gpu_nodes prepares the hosts in this group.
groups:
  gpu_nodes: node_accelerator == "nvidia" and "control-plane" not in inventory_hostname

# product_NVIDIA_H100_80GB_HBM3 and so on.
keyed_groups:
  - key: node_accelerator_product
    prefix: product

compose:
  ansible_user: "'ops'"

cache: true
cache_plugin: ansible.builtin.jsonfile
cache_connection: ~/.ansible/tmp/nodes
cache_timeout: 600
"""

import time
from typing import Any

from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin, Cacheable, Constructable
from ansible.utils.unsafe_proxy import wrap_var
from ansible_collections.slipway.inference.plugins.module_utils import _auth
from ansible_collections.slipway.inference.plugins.module_utils._apis import Kind
from ansible_collections.slipway.inference.plugins.module_utils._bulk import API_SECONDS
from ansible_collections.slipway.inference.plugins.module_utils._client import Client, Request
from ansible_collections.slipway.inference.plugins.module_utils._errors import InferenceError
from ansible_collections.slipway.inference.plugins.plugin_utils import _nodes

NODE = Kind("", "v1", "Node", "nodes", namespaced=False)


class InventoryModule(BaseInventoryPlugin, Constructable, Cacheable):
    """An inventory of the nodes of a cluster, read from the API server or from Ansible's cache."""

    NAME = "slipway.inference.nodes"

    def verify_file(self, path: str) -> bool:
        return bool(super().verify_file(path)) and path.endswith((".yml", ".yaml"))

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        super().parse(inventory, loader, path)
        self._read_config_data(path)
        self.load_cache_plugin()
        for name, variables in self._hosts(self.get_cache_key(path), cache=cache).items():
            self._add(name, variables)

    def _hosts(self, key: str, *, cache: bool) -> dict[str, dict[str, Any]]:
        """Return the variables of each node by name, from the cache if it is enabled and ``cache`` allows it."""
        is_cached = self.get_option("cache")
        if is_cached and cache:
            try:
                cached_hosts: dict[str, dict[str, Any]] = self._cache[key]
            except KeyError:
                pass  # The cache has no entry, or the entry has expired.
            else:
                return cached_hosts
        hosts = {node["metadata"]["name"]: _nodes.variables(node) for node in self._nodes()}
        if is_cached:
            self._cache[key] = hosts
        return hosts

    def _nodes(self) -> list[dict[str, Any]]:
        query = {"labelSelector": ",".join(self.get_option("label_selectors"))}
        try:
            connection = _auth.connect({name: self.get_option(name) for name in _auth.ARGUMENTS})
            client = Client(connection, self.display.warning)
            return client.pages(Request("list", NODE, query=query), time.monotonic() + API_SECONDS)[0]
        except InferenceError as error:
            # Without ``from None``, Ansible would show the cause again next to the message.
            raise AnsibleParserError(f"The nodes could not be read. {error.text}") from None

    def _add(self, name: str, variables: dict[str, Any]) -> None:
        self.inventory.add_host(name)
        variables = wrap_var(variables)  # Kubelets write them, so Ansible must not evaluate them as templates.
        for variable, value in variables.items():
            self.inventory.set_variable(name, variable, value)
        for group in _nodes.groups(variables):
            self.inventory.add_host(name, group=self.inventory.add_group(group))
        strict = self.get_option("strict")
        self._set_composite_vars(self.get_option("compose"), variables, name, strict=strict)
        host_vars = self.inventory.get_host(name).get_vars()
        self._add_host_to_composed_groups(self.get_option("groups"), host_vars, name, strict=strict)
        self._add_host_to_keyed_groups(self.get_option("keyed_groups"), host_vars, name, strict=strict)
