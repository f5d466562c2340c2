# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release. It runs on the nodes, whose Python may be 3.8.

"""What CUDA answers a program that begins to compute, and what to do where that is an error."""

from __future__ import annotations

import json
from typing import Any

# A program of its own, since a broken driver may hang it or end it. Its arguments are the library and nothing else.
PROGRAM = """
import ctypes, json, os, sys

# Else it would be told of some GPUs only.
os.environ.pop("CUDA_VISIBLE_DEVICES", None)


def asked(library):
    try:
        cuda = ctypes.CDLL(library)
    except OSError as error:
        return {"call": "dlopen", "text": str(error)}
    version, count = ctypes.c_int(0), ctypes.c_int(0)
    calls = (
        ("cuInit", (ctypes.c_uint(0),)),
        ("cuDriverGetVersion", (ctypes.byref(version),)),
        ("cuDeviceGetCount", (ctypes.byref(count),)),
    )
    for call, arguments in calls:
        code = getattr(cuda, call)(*arguments)
        if code:
            return {"call": call, "code": code}
    return {"call": "", "version": version.value, "count": count.value}


print(json.dumps(asked(sys.argv[1])))
"""

KERNEL_LOG = "journalctl --dmesg --grep 'NVRM|Xid'"
NO_DEVICE = (
    "See whether MIG is on and no device is made (nvidia-smi -L), and whether /dev has nvidia0 and nvidiactl. "
    f"The log of the kernel says more: {KERNEL_LOG}"
)
NOT_READY = (
    "See whether the fabric manager runs, in the version of the driver: journalctl --unit nvidia-fabricmanager. "
    "In a rack of GB200 or GB300 the controller of the switches says why."
)
UNKNOWN = (
    "See whether nvidia_uvm is loaded (modprobe nvidia_uvm) and /dev has nvidia-uvm. "
    f"The log of the kernel says more: {KERNEL_LOG}"
)
INSTALL = (
    "Install what the driver brings for computing: libnvidia-compute on Ubuntu, libcuda1 on Debian, nvidia-driver-cuda "
    "on the RHEL family."
)

# Code of an error -> its name in CUDA, what it means here, and what to do.
ERRORS = {
    2: ("CUDA_ERROR_OUT_OF_MEMORY", "the machine has too little memory to start it", "Free memory on the machine."),
    34: (
        "CUDA_ERROR_STUB_LIBRARY",
        "it found the library that CUDA brings for building, which does nothing",
        "Take the folder of stubs out of LD_LIBRARY_PATH and /etc/ld.so.conf.d, and run ldconfig.",
    ),
    46: (
        "CUDA_ERROR_DEVICE_UNAVAILABLE",
        "a GPU is taken by another program alone, or is being reset",
        "See who has it: nvidia-smi. Set its compute mode back: nvidia-smi --compute-mode=0",
    ),
    100: (
        "CUDA_ERROR_NO_DEVICE",
        "the driver offers it no GPU",
        NO_DEVICE,
    ),
    214: (
        "CUDA_ERROR_ECC_UNCORRECTABLE",
        "the memory of a GPU has an error that cannot be corrected",
        "Reset the GPU or reboot the machine. Where it comes back, have the GPU replaced.",
    ),
    304: (
        "CUDA_ERROR_OPERATING_SYSTEM",
        "a call of the operating system failed, maybe for lack of rights to /dev/nvidia*",
        "See who may open the devices: ls -l /dev/nvidia*",
    ),
    802: (
        "CUDA_ERROR_SYSTEM_NOT_READY",
        "the NVSwitches between the GPUs are not set up",
        NOT_READY,
    ),
    803: (
        "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        "its library and the kernel modules that are loaded are of different versions",
        "Reboot the machine, or load the modules anew.",
    ),
    804: (
        "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
        "a package cuda-compat is in the way, which these GPUs cannot use",
        "Remove cuda-compat, or take it out of LD_LIBRARY_PATH and /etc/ld.so.conf.d, and run ldconfig.",
    ),
    999: (
        "CUDA_ERROR_UNKNOWN",
        "the driver gives no reason",
        UNKNOWN,
    ),
}
OTHER = "", "it gives no reason that is known here", f"The log of the kernel may: {KERNEL_LOG}"


def told(status: int, output: str, errors: str, seconds: int) -> dict[str, Any]:
    """Of how PROGRAM ended. ``seconds``: when it was ended by ``timeout``, which has the status 124 for that."""
    try:
        said = json.loads(output) if status == 0 else {}
    except ValueError:
        said = {}
    if not said:
        return _failed("cuInit", None, *_without_an_answer(status, errors, seconds))
    if said["call"] == "dlopen":
        return _failed("dlopen", None, "", f"CUDA's library cannot be loaded: {said['text']}.", INSTALL)
    if said["call"]:
        code = said["code"]
        name, meaning, remedy = ERRORS.get(code, OTHER)
        problem = f"{said['call']} failed with {f'{name} ({code})' if name else f'error {code}'}: {meaning}."
        return _failed(said["call"], code, name, problem, remedy)
    version = f"{said['version'] // 1000}.{said['version'] % 1000 // 10}"
    return {
        "usable": said["count"] > 0,
        "count": said["count"],
        "cuda_version": version,
        "call": "",
        "code": 0,
        "name": "",
        "problem": "" if said["count"] else "CUDA starts, and finds no GPU.",
        "remedy": "" if said["count"] else NO_DEVICE,
    }


def _without_an_answer(status: int, errors: str, seconds: int) -> tuple[str, str, str]:
    if status == 124:
        return "", f"CUDA did not answer within {seconds} s.", OTHER[2]
    last = (errors.strip().splitlines() or [""])[-1]
    return "", f"A program that starts CUDA ended with status {status}. {last}".strip(), OTHER[2]


def _failed(call: str, code: int | None, name: str, problem: str, remedy: str) -> dict[str, Any]:
    return {
        "usable": False,
        "count": 0,
        "cuda_version": "",
        "call": call,
        "code": code,
        "name": name,
        "problem": problem,
        "remedy": remedy,
    }
