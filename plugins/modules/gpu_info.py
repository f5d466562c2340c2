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
  - Says which GPUs of NVIDIA, AMD and Intel a machine has, which driver is loaded and which is installed, whether
    Secure Boot is on, and whether the machine wants to be rebooted.
  - Runs on the machine itself. The files of the kernel are enough; C(nvidia-smi), C(modinfo) and C(needs-restarting)
    are asked for what these do not say, where they are there. Nothing has to be installed.
  - Only root may read all of it.
extends_documentation_fragment:
  - slipway.inference.attributes
attributes:
  check_mode:
    support: full
    details: It changes nothing.
  diff_mode:
    support: N/A
    details: It changes nothing.
  idempotent:
    support: full
    details: It changes nothing.
  action_group:
    details: It runs on the nodes and speaks to no cluster, so that it has a group of its own.
    membership:
      - slipway.inference.nodes
options:
  root:
    description:
      - Directory that holds the C(/proc), C(/sys), C(/run) and C(/var) to read. Another one than V(/) is for tests.
    type: path
    default: /
  vendor:
    description: Whose driver is told of. V(auto) takes that of RV(vendor).
    type: str
    choices: [auto, nvidia, amd, intel]
    default: auto
  tools:
    description: Whether tools are asked too.
    type: bool
    default: true
  timeout:
    description: Seconds that a tool has to answer. One may hang where a GPU is broken.
    type: int
    default: 60
notes:
  - The role C(slipway.inference.gpu_node) acts on what it finds.
"""

EXAMPLES = r"""
- name: Find the GPUs
  slipway.inference.gpu_info:
  register: found
  become: true

- name: Show them
  ansible.builtin.debug:
    msg: "{{ item.model }} at {{ item.address }}, {{ item.memory_bytes | human_readable }}"
  loop: "{{ found.gpus | selectattr('memory_bytes') }}"
  loop_control:
    label: "{{ item.address }}"

- name: End where the driver that runs is not the one that is installed
  ansible.builtin.assert:
    that: found.driver.loaded_version == found.driver.installed_version
    fail_msg: "{{ found.driver.loaded_version }} runs, {{ found.driver.installed_version }} is installed."
"""

RETURN = r"""
vendor:
  description:
    - Whose GPUs they are, V(nvidia), V(amd) or V(intel); V(none) where there are none.
    - Of several the first in this order, since a processor may bring a GPU of its own.
  returned: success
  type: str
  sample: nvidia
vendors:
  description: All vendors of GPUs in the machine, in that order.
  returned: success
  type: list
  elements: str
  sample: [nvidia]
gpus:
  description: The GPUs, by their address.
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
      description: PCI id of the vendor.
      type: str
      sample: "10de"
    device_id:
      description: PCI id of the model.
      type: str
      sample: "2330"
    model:
      description: Name of the model. Empty where neither a driver nor the machine's list of PCI devices says it.
      type: str
      sample: NVIDIA H100 80GB HBM3
    architecture:
      description:
        - Generation of a GPU of NVIDIA, from V(kepler), V(maxwell), V(pascal), V(volta), V(turing), V(ampere), V(ada)
          and V(hopper) to V(blackwell). Empty for one that is not known, and for those of others.
      type: str
      sample: hopper
    uuid:
      description: What the vendor identifies it by. Empty where the driver does not say.
      type: str
      sample: GPU-8d6c1c7e-5b3e-0a4f-9f0e-1f2a3b4c5d6e
    memory_bytes:
      description: Memory of its own, in bytes. Null where nobody says.
      type: int
      sample: 85520809984
    driver:
      description: Driver of the kernel that it is bound to. Empty where it is bound to none.
      type: str
      sample: nvidia
    mig_enabled:
      description: Whether it can be, and is, cut into MIG devices. Null where it cannot be, or nobody says.
      type: bool
    mig_devices:
      description: The MIG devices that it is cut into.
      type: list
      elements: dict
      contains:
        profile:
          description: Profile of the part.
          type: str
          sample: 1g.10gb
        uuid:
          description: What the part is identified by.
          type: str
          sample: MIG-5c3f2a6e-9d1b-5e0a-8c7d-6b5a4f3e2d1c
nvswitches:
  description: Number of NVSwitches.
  returned: success
  type: int
  sample: 4
nvlink_managers:
  description:
    - Number of InfiniBand functions that manage switches of NVLink 5, as in HGX B200 and B300. PCI does not show those
      switches themselves.
  returned: success
  type: int
  sample: 0
driver:
  description: The driver of RV(vendor), or of O(vendor) where that is said.
  returned: success
  type: dict
  contains:
    vendor:
      description: Whose it is.
      type: str
      sample: nvidia
    module:
      description: The kernel module. Empty where there are no GPUs.
      type: str
      sample: nvidia
    loaded:
      description: Whether it is loaded.
      type: bool
    loaded_version:
      description: Its version. Empty where it is not loaded, or is that of the kernel.
      type: str
      sample: 580.95.05
    loaded_kind:
      description:
        - V(open) or V(proprietary) for that of NVIDIA, else V(inbox) for the kernel's own and V(added) for one that was
          added to it. Empty where it is not loaded.
      type: str
      sample: open
    installed_version:
      description:
        - Version of the one that the running kernel would load. Empty where there is none, or it is that of the kernel;
          null where there is no C(modinfo) to ask.
      type: str
      sample: 580.95.05
    installed_kind:
      description:
        - As RV(driver.loaded_kind), of the one that would be loaded. Empty where there is none; null where there is no
          C(modinfo) to ask.
      type: str
      sample: open
    source:
      description:
        - How a driver of NVIDIA came where that was not by packages. V(runfile) is NVIDIA's own installer, V(container)
          a container with the driver, such as that of its operator. Empty where neither is seen.
      type: str
      sample: runfile
nouveau_loaded:
  description: Whether the driver nouveau is loaded, which keeps that of NVIDIA out.
  returned: success
  type: bool
secure_boot:
  description:
    - Whether Secure Boot is on, so that the kernel only loads modules that somebody it trusts has signed.
    - Null where nothing can be said.
  returned: success
  type: bool
module_keys:
  description: Keys of the machine for modules that are built on it.
  returned: success
  type: list
  elements: dict
  contains:
    path:
      description: Its certificate.
      type: str
      sample: /var/lib/shim-signed/mok/MOK.der
    enrolled:
      description: Whether the machine trusts it.
      type: bool
reboot_required:
  description: Whether the system wants to be rebooted.
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
