#!/usr/bin/python

# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_info
short_description: Return the GPUs of a host and their driver
version_added: 0.4.0
author:
  - The slipway.inference authors (@slipway)
description:
  - Returns the NVIDIA, AMD and Intel GPUs of a host, the loaded and installed driver, whether Secure Boot is enabled,
    and whether the host needs a reboot.
  - Runs on the host and reads kernel files. If C(nvidia-smi), C(modinfo) and C(needs-restarting) are installed, they
    provide additional facts. No packages are required.
  - Some facts are only readable as root.
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
  action_group:
    details: It runs on the nodes and does not connect to the cluster, so it has a separate group.
    membership:
      - slipway.inference.nodes
options:
  root:
    description:
      - Directory with the C(/proc), C(/sys), C(/run) and C(/var) to read. Values other than V(/) are for tests.
    type: path
    default: /
  vendor:
    description: Vendor of the driver to return. V(auto) means RV(vendor).
    type: str
    choices: [auto, nvidia, amd, intel]
    default: auto
  tools:
    description: Whether to also run tools such as C(nvidia-smi).
    type: bool
    default: true
  timeout:
    description: Timeout in seconds for each tool. Tools can hang if a GPU is broken.
    type: int
    default: 60
notes:
  - The role C(slipway.inference.gpu_node) uses this module.
"""

EXAMPLES = r"""
- name: Read the GPUs
  slipway.inference.gpu_info:
  register: found
  become: true

- name: Show them
  ansible.builtin.debug:
    msg: "{{ item.model }} at {{ item.address }}, {{ item.memory_bytes | human_readable }}"
  loop: "{{ found.gpus | selectattr('memory_bytes') }}"
  loop_control:
    label: "{{ item.address }}"

- name: Fail if the loaded driver is not the installed one
  ansible.builtin.assert:
    that: found.driver.loaded_version == found.driver.installed_version
    fail_msg: "{{ found.driver.loaded_version }} is loaded, {{ found.driver.installed_version }} is installed."
"""

RETURN = r"""
vendor:
  description:
    - Vendor of the GPUs. V(none) if there are none.
    - If there are several vendors, the first in this order, because a CPU can have an integrated GPU.
  returned: success
  type: str
  sample: nvidia
vendors:
  description: All GPU vendors of the host, in that order.
  returned: success
  type: list
  elements: str
  sample: [nvidia]
gpus:
  description: The GPUs, sorted by address.
  returned: success
  type: list
  elements: dict
  contains:
    address:
      description: PCI address.
      type: str
      sample: "0000:3b:00.0"
    vendor:
      description: As in RV(vendor).
      type: str
      sample: nvidia
    vendor_id:
      description: PCI vendor ID.
      type: str
      sample: "10de"
    device_id:
      description: PCI device ID.
      type: str
      sample: "2330"
    model:
      description: Model name. Empty if neither the driver nor the host's list of PCI devices contains it.
      type: str
      sample: NVIDIA H100 80GB HBM3
    architecture:
      description:
        - Generation of an NVIDIA GPU, from V(kepler), V(maxwell), V(pascal), V(volta), V(turing),
          V(ampere), V(ada), V(hopper) or V(blackwell). Empty for unknown models and other vendors.
      type: str
      sample: hopper
    uuid:
      description: UUID of the GPU. Empty if the driver does not report it.
      type: str
      sample: GPU-8d6c1c7e-5b3e-0a4f-9f0e-1f2a3b4c5d6e
    memory_bytes:
      description: GPU memory in bytes. Null if unknown.
      type: int
      sample: 85520809984
    driver:
      description: Kernel driver of the GPU. Empty if there is none.
      type: str
      sample: nvidia
    mig_enabled:
      description: Whether MIG is enabled. Null if the GPU does not support MIG, or if unknown.
      type: bool
    mig_devices:
      description: MIG devices of the GPU.
      type: list
      elements: dict
      contains:
        profile:
          description: MIG profile.
          type: str
          sample: 1g.10gb
        uuid:
          description: UUID of the MIG device.
          type: str
          sample: MIG-5c3f2a6e-9d1b-5e0a-8c7d-6b5a4f3e2d1c
nvswitches:
  description: Number of NVSwitches.
  returned: success
  type: int
  sample: 4
nvlink_managers:
  description:
    - Number of InfiniBand functions that manage NVLink 5 switches, as in HGX B200 and B300. These switches are not PCI
      devices.
  returned: success
  type: int
  sample: 0
driver:
  description: Driver for the GPUs of O(vendor) or, if that is V(auto), of RV(vendor).
  returned: success
  type: dict
  contains:
    vendor:
      description: Vendor of the driver.
      type: str
      sample: nvidia
    module:
      description: Kernel module. Empty if there are no GPUs.
      type: str
      sample: nvidia
    loaded:
      description: Whether the driver is loaded.
      type: bool
    loaded_version:
      description: Version of the loaded driver. Empty if none is loaded, or if it is the kernel's own.
      type: str
      sample: 580.95.05
    loaded_kind:
      description:
        - V(open) or V(proprietary) for NVIDIA. For others, V(inbox) for the kernel's own driver and V(added) for an
          additional one. Empty if no driver is loaded.
      type: str
      sample: open
    installed_version:
      description:
        - Version of the driver that is installed for the running kernel. Empty if there is none, or if it is the
          kernel's own. Null without C(modinfo).
      type: str
      sample: 580.95.05
    installed_kind:
      description:
        - As RV(driver.loaded_kind), for the installed driver. Empty if there is none. Null without C(modinfo).
      type: str
      sample: open
    source:
      description:
        - Source of an NVIDIA driver that was not installed from packages. V(runfile) is NVIDIA's installer.
          V(container) is a driver container, such as the GPU operator's. Otherwise empty.
      type: str
      sample: runfile
nouveau_loaded:
  description: Whether the driver nouveau is loaded, which blocks the NVIDIA driver.
  returned: success
  type: bool
secure_boot:
  description:
    - Whether Secure Boot is enabled, so the kernel only loads modules that are signed with a trusted key.
    - Null if unknown.
  returned: success
  type: bool
module_keys:
  description: Keys that sign modules built on the host.
  returned: success
  type: list
  elements: dict
  contains:
    path:
      description: Path of the certificate.
      type: str
      sample: /var/lib/shim-signed/mok/MOK.der
    enrolled:
      description: Whether the host trusts the key.
      type: bool
reboot_required:
  description: Whether the host needs a reboot.
  returned: success
  type: bool
"""

from collections.abc import Sequence

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.slipway.inference.plugins.module_utils._gpu import Answer, Run, facts
from ansible_collections.slipway.inference.plugins.module_utils._gpu_tree import Tree


def tools(module: AnsibleModule) -> Run:
    limit = module.get_bin_path("timeout")

    def run(command: Sequence[str]) -> Answer | None:
        path = module.get_bin_path(command[0], opt_dirs=["/sbin", "/usr/sbin"])
        if path is None:
            return None
        within = [limit, str(module.params["timeout"])] if limit else []
        status, text, _errors = module.run_command([*within, path, *command[1:]], environ_update={"LC_ALL": "C"})
        return Answer(status, text)

    return run


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "default": "/"},
            "vendor": {"type": "str", "choices": ["auto", "nvidia", "amd", "intel"], "default": "auto"},
            "tools": {"type": "bool", "default": True},
            "timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    run = tools(module) if module.params["tools"] else lambda _command: None
    module.exit_json(changed=False, **facts(Tree(module.params["root"]), run, module.params["vendor"]))


if __name__ == "__main__":
    main()
