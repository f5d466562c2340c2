# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: k8s_info
short_description: Return Kubernetes objects to the roles of this collection
version_added: 0.5.0
author:
  - The slipway.inference authors (@slipway)
description:
  - Internal to the roles of this collection. It may change in any release. In playbooks, use
    M(kubernetes.core.k8s_info).
  - Does what M(kubernetes.core.k8s_info) does, which documents the options and results.
  - The module runs in Ansible's own process if it would run on the same machine with the same Python and user. A call
    then takes about a tenth of the CPU time. In other cases, and with variables other than C(K8S_AUTH_*) in the task's
    C(environment), the module of M(kubernetes.core.k8s_info) runs as usual.
extends_documentation_fragment:
  - slipway.inference.attributes
attributes:
  check_mode:
    support: full
    details: The module changes nothing.
  diff_mode:
    support: N/A
    details: The module changes nothing.
  idempotent:
    support: full
    details: The module changes nothing.
options: {}
notes:
  - C(module_defaults) of C(group/kubernetes.core.k8s) and of C(kubernetes.core.k8s_info) apply, too. Those of this
    collection take precedence.
seealso:
  - module: kubernetes.core.k8s_info
"""

EXAMPLES = r"""
- name: Read all pods of a namespace
  slipway.inference.k8s_info:
    kind: Pod
    namespace: models
  register: pods
"""

RETURN = r""" # """
