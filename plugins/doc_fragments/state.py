# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options that say which objects are made or deleted, and how it is waited for them."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  state:
    description:
      - V(present) makes the objects as they are described. Fields that are not mentioned are left to others.
      - V(absent) deletes them, their children first.
    type: str
    choices: [present, absent]
    default: present
  force_conflicts:
    description:
      - Whether to take over fields that another manager owns with another value.
      - Without it such a field is an error that names its owner.
    type: bool
    default: false
  wait:
    description: Whether to wait until all objects are ready, or gone. Check mode does not wait.
    type: bool
    default: true
  wait_timeout:
    description:
      - Seconds within which all of them have to be ready, or gone. It is one deadline, not one for each.
      - The wait ends before that as soon as one has failed for good.
    type: int
    default: 900
  wait_for:
    description:
      - What to wait for instead of the API's own rule of readiness. All entries have to hold.
      - An object counts only when its controller has seen the newest spec, and one that has failed for good still
        ends the wait.
    type: list
    elements: dict
    suboptions:
      condition:
        description: Type of a status condition, such as V(Routed).
        type: str
      status:
        description: Status that O(wait_for[].condition) has to have. V(True) if not set.
        type: str
        choices: ['True', 'False', Unknown]
      reason:
        description: Reasons of which O(wait_for[].condition) has to have one.
        type: list
        elements: str
      field:
        description:
          - Dotted path of a field, such as V(status.readyReplicas). Numbers index lists; V(\\.) is a dot inside a key.
          - It has to be there, unless one of the tests below says otherwise.
        type: str
      equals:
        description: Value that O(wait_for[].field) has to have.
        type: raw
      in:
        description: Values of which O(wait_for[].field) has to have one.
        type: list
        elements: raw
      matches:
        description: Regular expression that has to be found in O(wait_for[].field).
        type: str
      exists:
        description: Whether O(wait_for[].field) has to be there.
        type: bool
      any:
        description: Rules of which one is enough.
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
