# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: apis
short_description: Return the serving APIs and their properties
version_added: 0.5.0
author:
  - The slipway.inference authors (@slipway)
description:
  - Returns the names of the serving APIs that this collection can install, or one property of each.
  - The roles of this collection use it for their lists of APIs.
options:
  _terms:
    description:
      - The property to return, one at most. Without it, returns the names of the APIs.
      - V(definitions) are the names of the CRDs, V(rules) the RBAC rules of controller and gateway, and V(resources)
        the kinds with the meaning of their status.
      - APIs without the property are omitted.
    type: list
    elements: str
"""

EXAMPLES = r"""
- name: Show the serving APIs
  ansible.builtin.debug:
    msg: "{{ lookup('slipway.inference.apis') }}"

- name: Show the CRDs of each API
  ansible.builtin.debug:
    msg: "{{ lookup('slipway.inference.apis', 'definitions') }}"
"""

RETURN = r"""
_raw:
  description: List of names, or a dictionary of the property by API.
  type: list
  elements: raw
"""

from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase
from ansible_collections.slipway.inference.plugins.module_utils._apis_data import APIS


class LookupModule(LookupBase):
    """Entry point from which Ansible loads the lookup."""

    def run(self, terms: list[str], variables: Any = None, **_kwargs: Any) -> list[Any]:  # noqa: ARG002 - Ansible's own
        if not terms:
            return [[*APIS]]
        if len(terms) > 1:
            raise AnsibleLookupError(f"slipway.inference.apis returns one property at a time, not {', '.join(terms)}.")
        parts = sorted({part for about in APIS.values() for part in about})
        if terms[0] not in parts:
            raise AnsibleLookupError(f"slipway.inference.apis has no property {terms[0]}. Use {', '.join(parts)}.")
        return [{api: about[terms[0]] for api, about in APIS.items() if terms[0] in about}]
