# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: installed_versions
short_description: Tell of which version of the collection each part is that is installed
version_added: 0.5.0
author:
  - The slipway.inference authors (@slipway)
description:
- Reads the label C(slipway.inference/version) of Deployments, or where they have none, the tag of the image.
- The role P(slipway.inference.preflight#role) uses it.
options:
  _input:
    description: Deployments, as the API server lists them.
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
- name: Show what is installed
  ansible.builtin.debug:
    msg: "{{ deployments.resources | slipway.inference.installed_versions }}"
"""

RETURN = r"""
_value:
  description: By the name of a Deployment its version. It is empty where neither label nor image tells it.
  type: dict
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

LABEL = "slipway.inference/version"
TAG = re.compile(r":v?(\d+\.\d+\.\d+)[^:/@]*$")


def installed_versions(deployments: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    return {one["metadata"]["name"]: _version(one) for one in deployments}


def _version(deployment: Mapping[str, Any]) -> str:
    labelled = (deployment["metadata"].get("labels") or {}).get(LABEL)
    tag = TAG.search(deployment["spec"]["template"]["spec"]["containers"][-1]["image"])
    return labelled or (tag[1] if tag else "")


class FilterModule:
    """Registers the filter."""

    def filters(self) -> dict[str, Any]:
        return {"installed_versions": installed_versions}
