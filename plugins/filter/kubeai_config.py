# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: kubeai_config
short_description: Validate KubeAI's system configuration
version_added: 0.2.0
author:
  - The slipway.inference authors (@slipway)
description:
  - Validates the system configuration for all KubeAI Models, and returns it for its ConfigMap. Null values are omitted.
  - Reports all errors together, each with the path of its key.
  - KubeAI's keys without an effect in Slipway cause a warning. So does the ServiceAccount of KubeAI's pods, which its
    chart creates in one namespace and deletes on uninstallation.
  - The role P(slipway.inference.controller#role) uses it.
positional: _input
options:
  _input:
    description:
      - The configuration, with KubeAI's keys V(secretNames), V(modelServers), V(modelLoading), V(resourceProfiles),
        V(cacheProfiles), V(modelServerPods), V(modelRollouts) and V(modelAutoscaling).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Check a profile
  ansible.builtin.debug:
    msg: "{{ config | slipway.inference.kubeai_config }}"
  vars:
    config:
      resourceProfiles:
        big:
          requests: {cpu: 32, memory: 256Gi}
"""

RETURN = r"""
_value:
  description: The configuration.
  type: dict
"""

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible.utils.display import Display
from ansible_collections.slipway.inference.plugins.plugin_utils._kubeai_config_schema import SCHEMA
from ansible_collections.slipway.inference.plugins.plugin_utils._shapes import of_schema, read

DEFINITIONS = SCHEMA["$defs"]
CONFIG = of_schema(SCHEMA, DEFINITIONS)
# Keys of the original system that have no effect in Slipway.
WITHOUT_MEANING = [name for name, part in DEFINITIONS["SystemConfig"]["properties"].items() if part.get("deprecated")]
# Helm adds the release name as a prefix, unless the release name contains it.
ACCOUNT_OF_THE_CHART = "kubeai-models"


def kubeai_config(value: Any, name: str = "controller_kubeai_config") -> dict[str, Any]:
    """Return the validated configuration. ``name`` is the variable's name for messages. Raise AnsibleFilterError if it
    is invalid."""
    if not isinstance(value, Mapping):
        raise AnsibleFilterError(f"{name} must be a mapping, not {value!r}.")
    for key in WITHOUT_MEANING:
        if key in value:
            Display().warning(f"{name}.{key} has no effect in Slipway and is ignored.")
    problems: list[str] = []
    config: dict[str, Any] = read(
        {key: part for key, part in value.items() if key not in WITHOUT_MEANING}, CONFIG, name, problems
    )
    if problems:
        raise AnsibleFilterError("\n".join(problems))
    account = config.get("modelServerPods", {}).get("serviceAccountName", "")
    if account.endswith(ACCOUNT_OF_THE_CHART):
        Display().warning(
            f"{name}.modelServerPods.serviceAccountName is {account}, which KubeAI's chart creates in its own namespace"
            " and deletes on uninstallation. Remove it, unless every namespace with Models has it."
        )
    return config


class FilterModule:
    """Entry point from which Ansible loads the filter."""

    def filters(self) -> dict[str, Any]:
        return {"kubeai_config": kubeai_config}
