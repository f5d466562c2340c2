# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options that say which objects are made, changed or deleted, and how it is waited for objects."""

from __future__ import annotations

_WAIT_FOR = r"""
  wait_for:
    description:
      - Conditions to wait for, instead of the API's definition of ready. All entries must be true.
      - The wait continues until the controller has reconciled the latest spec. Permanent failures end it in any case.
    type: list
    elements: dict
    suboptions:
      condition:
        description: Type of a status condition, such as V(Routed).
        type: str
      status:
        description: Required status of O(wait_for[].condition). Defaults to V(True).
        type: str
        choices: ['True', 'False', Unknown]
      reason:
        description: Accepted reasons of O(wait_for[].condition).
        type: list
        elements: str
      field:
        description:
          - Dotted path of a field, such as V(status.readyReplicas). Numbers index lists; V(\\.) is a dot inside a key.
          - It must exist, unless O(wait_for[].exists) is V(false).
        type: str
      equals:
        description: Required value of O(wait_for[].field).
        type: raw
      in:
        description: Accepted values of O(wait_for[].field).
        type: list
        elements: raw
      matches:
        description: Regular expression to search for in O(wait_for[].field).
        type: str
      exists:
        description: Whether O(wait_for[].field) must exist or must not exist.
        type: bool
      any:
        description: Alternatives. One of them must be true.
        type: list
        elements: dict
        suboptions:
          condition:
            description: As O(wait_for[].condition).
            type: str
          status:
            description: As O(wait_for[].status).
            type: str
            choices: ['True', 'False', Unknown]
          reason:
            description: As O(wait_for[].reason).
            type: list
            elements: str
          field:
            description: As O(wait_for[].field).
            type: str
          equals:
            description: As O(wait_for[].equals).
            type: raw
          in:
            description: As O(wait_for[].in).
            type: list
            elements: raw
          matches:
            description: As O(wait_for[].matches).
            type: str
          exists:
            description: As O(wait_for[].exists).
            type: bool
"""


class ModuleDocFragment:
    # Annotated: of plain assignments ansible-test wants the text itself.
    DOCUMENTATION: str = rf"""
options:
  state:
    description:
      - V(present) creates or updates the objects. Fields that are not in the task do not change.
      - V(patched) updates existing objects, and fails if an object is missing. Other fields that this module has set
        before do not change. Dictionaries are merged and lists are replaced. A null field is no longer managed by this
        module. Added in version 0.5.0.
      - V(absent) deletes the objects, with their dependents first.
    type: str
    choices: [present, patched, absent]
    default: present
  force_conflicts:
    description:
      - Whether to take over fields that another manager owns with a different value.
      - Otherwise such a field is an error that names its owner.
    type: bool
    default: false
  api_timeout:
    description:
      - Timeout in seconds for all requests that read, check, write or delete objects. Requests are retried while the
        API server restarts.
      - The timeout applies to all objects together. Increase it for many objects or a slow API server. O(wait_timeout)
        starts afterwards.
    type: int
    default: 60
    version_added: 0.5.0
  wait:
    description: Whether to wait until all objects are ready or deleted. Check mode does not wait.
    type: bool
    default: true
  wait_timeout:
    description:
      - Maximum seconds to wait until all objects are ready or deleted.
      - The wait ends early when an object fails permanently.
    type: int
    default: 900{_WAIT_FOR}"""
    OF_OTHERS: str = rf"""
options:
  wait:
    description:
      - Whether to wait until at least one object exists and all are ready, for objects that another tool such as Argo
        CD or Flux creates. Includes objects that are created during the wait.
      - If the CRD is missing, the task fails at once. Check mode does not wait.
    type: bool
    default: false
    version_added: 0.5.0
  wait_timeout:
    description:
      - Maximum seconds to wait until the objects exist and are ready.
      - The wait ends early when an object fails permanently.
    type: int
    default: 900
    version_added: 0.5.0{_WAIT_FOR}    version_added: 0.5.0
"""
