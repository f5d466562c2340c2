# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: kubeai_config
short_description: Check KubeAI's system configuration
version_added: 0.2.0
author:
  - The slipway.inference authors (@slipway)
description:
  - Reads the system configuration that all models of KubeAI share, and gives it back as it is written into its
    ConfigMap. Nothing is added; what is null is left out.
  - Everything that is wrong with it is told at once, each by the path of its key.
  - Keys of the original that have no meaning here are taken, with a warning; so is the account of the original's pods,
    which its chart makes in one namespace and removes with itself.
  - The role P(slipway.inference.controller#role) uses it.
positional: _input
options:
  _input:
    description:
      - The configuration, with KubeAI's own keys. These are V(secretNames), V(modelServers), V(modelLoading),
        V(resourceProfiles), V(cacheProfiles), V(modelServerPods), V(modelRollouts) and V(modelAutoscaling).
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
  description: The configuration, in plain types.
  type: dict
"""

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible.utils.display import Display
from ansible_collections.slipway.inference.plugins.plugin_utils._shapes import (
    ANYTHING,
    DURATION,
    MAPPING,
    QUANTITY,
    TEXT,
    WHOLE,
    Items,
    Keys,
    Names,
    matching,
    one_of,
    read,
)

# What an object of Kubernetes may be called.
NAME_PATTERN = r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?"
NAME = matching("a name of lower-case letters, digits, '-' and '.'", NAME_PATTERN)
# Empty: there is none.
NAME_OR_NONE = matching(NAME.expected, rf"|{NAME_PATTERN}")
# A Model asks for NAME:COUNT.
PROFILE = matching("a name without ':'", r"[^:\s]+")
ANY_NAME = matching("a name", r"\S+")
IMAGE = matching("an image", r"\S+")
ENGINES = ("OLlama", "VLLM", "FasterWhisper", "Infinity", "SGLang", "LlamaCpp")
# Keys of the original that say nothing here.
WITHOUT_MEANING = (
    "messaging",
    "leaderElection",
    "metricsAddr",
    "healthAddress",
    "allowPodAddressOverride",
    "fixedSelfMetricAddrs",
    "distributedInference",
    "proxy",
    "gatewayAPI",
)
# Helm puts the name of the release before it, unless that is part of it.
ACCOUNT_OF_THE_CHART = "kubeai-models"


def _place(value: Mapping[str, Any]) -> str:
    known = value.get("storageClassName") or value.get("persistentVolumeName")
    return "" if known else "needs storageClassName or persistentVolumeName"


def _shared(value: Mapping[str, Any]) -> str:
    return "" if "sharedFilesystem" in value else "needs sharedFilesystem"


def _patch(value: Mapping[str, Any]) -> str:
    needed = ["op", "path"]
    needed += {"move": ["from"], "copy": ["from"], "remove": []}.get(str(value.get("op")), ["value"])
    missing = [key for key in needed if key not in value]
    return f"needs {' and '.join(missing)}" if missing else ""


POINTER = matching("a path that begins with /, such as /spec/priorityClassName", r"/.*")
QUANTITIES = Names(QUANTITY, ANY_NAME)

CONFIG = Keys(
    {
        "secretNames": Keys(dict.fromkeys(("alibaba", "aws", "gcp", "huggingface", "oci"), NAME_OR_NONE)),
        "modelServers": Keys(dict.fromkeys(ENGINES, Keys({"images": Names(IMAGE, ANY_NAME)}))),
        "modelLoading": Keys({"image": TEXT}),
        "resourceProfiles": Names(
            Keys(
                {
                    "imageName": TEXT,
                    "requests": QUANTITIES,
                    "limits": QUANTITIES,
                    "nodeSelector": Names(TEXT, ANY_NAME),
                    "affinity": MAPPING,
                    "tolerations": Items(MAPPING),
                    "schedulerName": TEXT,
                    "runtimeClassName": TEXT,
                }
            ),
            PROFILE,
        ),
        "cacheProfiles": Names(
            Keys(
                {
                    "sharedFilesystem": Keys(
                        {"storageClassName": TEXT, "persistentVolumeName": TEXT, "storageSize": QUANTITY}, _place
                    )
                },
                _shared,
            ),
            NAME,
        ),
        "modelServerPods": Keys(
            {
                "serviceAccountName": TEXT,
                "podSecurityContext": MAPPING,
                "securityContext": MAPPING,
                "imagePullSecrets": Items(Keys({"name": NAME})),
                "jsonPatches": Items(
                    Keys(
                        {
                            "op": one_of("add", "remove", "replace", "move", "copy", "test"),
                            "path": POINTER,
                            "from": POINTER,
                            "value": ANYTHING,
                        },
                        _patch,
                    )
                ),
            }
        ),
        "modelRollouts": Keys({"surge": WHOLE}),
        "modelAutoscaling": Keys({"interval": DURATION, "timeWindow": DURATION, "stateConfigMapName": TEXT}),
    }
)


def kubeai_config(value: Any, name: str = "controller_kubeai_config") -> dict[str, Any]:
    """``name`` is what errors call the configuration."""
    if not isinstance(value, Mapping):
        raise AnsibleFilterError(f"{name} must be a mapping, not {value!r}.")
    for key in WITHOUT_MEANING:
        if key in value:
            Display().warning(f"{name}.{key} has no meaning here and is left out.")
    problems: list[str] = []
    config: dict[str, Any] = read(
        {key: part for key, part in value.items() if key not in WITHOUT_MEANING}, CONFIG, name, problems
    )
    if problems:
        raise AnsibleFilterError("\n".join(problems))
    account = config.get("modelServerPods", {}).get("serviceAccountName", "")
    if account.endswith(ACCOUNT_OF_THE_CHART):
        Display().warning(
            f"{name}.modelServerPods.serviceAccountName is {account}, which KubeAI's chart makes in its own namespace"
            " and removes: leave it out, unless every namespace of Models has an account of that name."
        )
    return config


class FilterModule:
    """The filter."""

    def filters(self) -> dict[str, Any]:
        return {"kubeai_config": kubeai_config}
