# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options that say which objects are made, changed or deleted, and how it is waited for objects."""

from __future__ import annotations

_WAIT_FOR = r"""
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


class ModuleDocFragment:
    # Annotated: of plain assignments ansible-test wants the text itself.
    DOCUMENTATION: str = rf"""
options:
  state:
    description:
      - V(present) makes the objects as they are described. Fields that are not mentioned are left to others.
      - V(patched) changes objects that are there, and is an error where there are none. Only what is described is
        changed; of the rest, what this module has set before stays. Dictionaries are merged, lists are replaced, and a
        field that is null is no longer set by this module. V(patched) since version 0.5.0.
      - V(absent) deletes them, their children first.
    type: str
    choices: [present, patched, absent]
    default: present
  force_conflicts:
    description:
      - Whether to take over fields that another manager owns with another value.
      - Without it such a field is an error that names its owner.
    type: bool
    default: false
  api_timeout:
    description:
      - Seconds within which all objects have to be read, checked and written, or asked to go. Restarts of the API
        server are waited out within them.
      - It is one deadline, for very many objects or a slow API server. O(wait_timeout) counts from then on.
    type: int
    default: 60
    version_added: 0.5.0
  wait:
    description: Whether to wait until all objects are ready, or gone. Check mode does not wait.
    type: bool
    default: true
  wait_timeout:
    description:
      - Seconds within which all of them have to be ready, or gone. It is one deadline, not one for each.
      - The wait ends before that as soon as one has failed for good.
    type: int
    default: 900{_WAIT_FOR}"""
    OF_OTHERS: str = rf"""
options:
  wait:
    description:
      - Whether to wait until there is at least one and all are ready, for those that somebody else makes, such as Argo
        CD or Flux. Those that are there by then count; they are looked for again after each wait.
      - It is an error at once where the cluster does not know their kind. Check mode does not wait.
    type: bool
    default: false
    version_added: 0.5.0
  wait_timeout:
    description:
      - Seconds within which all of them have to be there and ready.
      - The wait ends before that as soon as one has failed for good.
    type: int
    default: 900
    version_added: 0.5.0{_WAIT_FOR}    version_added: 0.5.0
"""
