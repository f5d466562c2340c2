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
  - Gives the names of the serving APIs that this collection installs, or one part of what it knows of each.
  - The roles of this collection read their lists of APIs from it.
options:
  _terms:
    description:
      - The part to look up, one at most. Without it, the names of the APIs are given.
      - V(definitions) lists the names of the CustomResourceDefinitions; V(rules) the RBAC rules that the controller
        and the gateway need; V(resources) the kinds and what their status means.
      - An API that has no such part is left out.
    type: list
    elements: str
"""

EXAMPLES = r"""
- name: Name the serving APIs
  ansible.builtin.debug:
    msg: "{{ lookup('slipway.inference.apis') }}"

- name: Name the definitions of each
  ansible.builtin.debug:
    msg: "{{ lookup('slipway.inference.apis', 'definitions') }}"
"""

RETURN = r"""
_raw:
  description: The list of names; with a part, a dictionary of API to that part.
  type: list
  elements: raw
"""

from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase
from ansible_collections.slipway.inference.plugins.module_utils._apis_data import APIS


class LookupModule(LookupBase):
    """Registers the lookup."""

    def run(self, terms: list[str], variables: Any = None, **_kwargs: Any) -> list[Any]:  # noqa: ARG002 - Ansible's own
        if not terms:
            return [[*APIS]]
        if len(terms) > 1:
            raise AnsibleLookupError(f"slipway.inference.apis looks up one part at a time, not {', '.join(terms)}.")
        parts = sorted({part for about in APIS.values() for part in about})
        if terms[0] not in parts:
            raise AnsibleLookupError(f"slipway.inference.apis has no part {terms[0]}; there are {', '.join(parts)}.")
        return [{api: about[terms[0]] for api, about in APIS.items() if terms[0] in about}]
