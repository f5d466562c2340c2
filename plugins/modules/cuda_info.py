#!/usr/bin/python

# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cuda_info
short_description: See whether programs can compute on the GPUs of a machine
version_added: 0.5.0
author:
  - The slipway.inference authors (@slipway)
description:
  - Starts CUDA on the machine (C(cuInit)), as every program does that computes on GPUs of NVIDIA, and counts the GPUs
    that it offers. Where that fails it says what is wrong and what to do.
  - C(nvidia-smi) answers on machines where this fails, where the NVSwitches are not set up for example.
  - Loads C(libcuda.so.1), which the driver brings. Nothing else has to be installed, and nothing is compiled.
extends_documentation_fragment:
  - slipway.inference.attributes
attributes:
  check_mode:
    support: full
    details: It changes nothing. The driver loads C(nvidia_uvm) for it where that is not loaded, as for every program.
  diff_mode:
    support: N/A
    details: It changes nothing.
  idempotent:
    support: full
    details: It changes nothing.
  action_group:
    details: It runs on the nodes and speaks to no cluster, so that it is in their group.
    membership:
      - slipway.inference.nodes
options:
  library:
    description: CUDA's library, a name or a path.
    type: str
    default: libcuda.so.1
  timeout:
    description: Seconds that CUDA has to answer. It may hang where a GPU is broken.
    type: int
    default: 60
notes:
  - It does not fail where CUDA does, so that a play can decide about it.
seealso:
  - module: slipway.inference.gpu_info
"""

EXAMPLES = r"""
- name: Start CUDA
  slipway.inference.cuda_info:
  register: cuda
  become: true

- name: End where no program can compute
  ansible.builtin.assert:
    that: cuda.usable
    fail_msg: "{{ cuda.problem }} {{ cuda.remedy }}"
"""

RETURN = r"""
usable:
  description: Whether CUDA starts, and offers a GPU.
  returned: success
  type: bool
count:
  description:
    - Number of GPUs that it offers. Of all MIG devices of a machine it offers a single one.
  returned: success
  type: int
  sample: 8
cuda_version:
  description: The newest version of CUDA that the driver knows. Empty where CUDA does not start.
  returned: success
  type: str
  sample: "13.0"
call:
  description: The call that failed, C(dlopen) where the library cannot be loaded. Empty where none failed.
  returned: success
  type: str
  sample: cuInit
code:
  description: The code of the call that failed. V(0) if none failed; null if it returned none.
  returned: success
  type: int
  sample: 802
name:
  description: The name that CUDA has for it. Empty where it is not known.
  returned: success
  type: str
  sample: CUDA_ERROR_SYSTEM_NOT_READY
problem:
  description: What is wrong, in one sentence. Empty where nothing is.
  returned: success
  type: str
  sample: "cuInit failed with CUDA_ERROR_SYSTEM_NOT_READY (802): the NVSwitches between the GPUs are not set up."
remedy:
  description: What to do about it. Empty where there is nothing to do.
  returned: success
  type: str
"""

import sys

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.slipway.inference.plugins.module_utils._cuda import PROGRAM, told


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "library": {"type": "str", "default": "libcuda.so.1"},
            "timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    seconds = module.params["timeout"]
    limit = module.get_bin_path("timeout")
    within = [limit, str(seconds)] if limit else []
    command = [*within, sys.executable, "-c", PROGRAM, module.params["library"]]
    status, output, errors = module.run_command(command, environ_update={"LC_ALL": "C"})
    module.exit_json(changed=False, **told(status, output, errors, seconds))


if __name__ == "__main__":
    main()
