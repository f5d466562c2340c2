# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change in any release.

"""The runtimes of containerd or CRI-O, as ``containerd config dump`` and ``crio config`` print them. All functions are
pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ansible_collections.slipway.inference.plugins.plugin_utils._toml import Table, at, read

CRI_OF_VERSION = {0: "cri", 1: "cri", 2: "io.containerd.grpc.v1.cri"}
CRI_SINCE_3 = "io.containerd.cri.v1.runtime"
RUNC = "io.containerd.runc.v2"
_RUNC_TYPE = re.compile(r"io\.containerd\.runc\.v\d+")
# Tables of containerd 1 that each define a runtime with this name and override the list of runtimes.
DEPRECATED = {"default_runtime": "default", "untrusted_workload_runtime": "untrusted"}
# A dump contains these values if no file sets the key, but not if a file defines the runtime without the key.
_USUAL = {("sandbox_mode", "podsandbox"), ("sandboxer", "podsandbox")}

DEFAULT_CHOICES = {"leave": "leave", "true": "yes", "yes": "yes", "false": "no", "no": "no"}


@dataclass(frozen=True)
class State:
    """The runtimes of a node. ``default`` is the runtime of pods without a RuntimeClass, empty if it is not printed.
    ``cdi`` is None if unknown."""

    default: str
    runtimes: Mapping[str, Table]
    cdi: bool | None = None
    imports: Sequence[str] = field(default=())

    def as_dict(self) -> Table:
        return asdict(self)


@dataclass(frozen=True)
class Request:
    """The runtimes to register.

    ``handlers`` are the names in RuntimeClasses that ``binary`` runs. ``default`` is ``leave``, ``yes`` (the first
    handler is the default runtime) or ``no`` (no handler is).
    """

    handlers: Sequence[str]
    binary: str
    cdi: bool
    default: str


def default_choice(value: Any) -> str:
    """Return ``leave``, ``yes`` or ``no`` for the value of an option. Raise ValueError for any other value."""
    try:
        return DEFAULT_CHOICES[str(value).lower()]
    except KeyError:
        raise ValueError(f"The default runtime cannot be {value!r}. Use leave, yes or no.") from None


def cri_plugin(version: int) -> str:
    """Return the name of the plugin that runs pods in a configuration file of this version."""
    return CRI_OF_VERSION.get(version, CRI_SINCE_3)


def state_of(printed: str, path: str = "") -> State:
    """Return the runtimes in a printed configuration. Relative imports are relative to the file ``path``. Raise
    ValueError if the text is not TOML."""
    config = read(printed)
    if "crio" in config:
        runtime = at(config, ("crio", "runtime"), {})
        return State(str(runtime.get("default_runtime", "")), _plain_runtimes(runtime.get("runtimes", {})))
    cri = at(config, ("plugins", cri_plugin(int(config.get("version", 1)))), {})
    containerd = cri.get("containerd", {})
    deprecated = {
        name: containerd[table] for table, name in DEPRECATED.items() if at(containerd, (table, "runtime_type"))
    }
    default = "default" if "default" in deprecated else str(containerd.get("default_runtime_name", ""))
    folder = posixpath.dirname(path)
    imports = [posixpath.normpath(posixpath.join(folder, item)) for item in config.get("imports") or []]
    return State(
        default,
        _plain_runtimes({**containerd.get("runtimes", {}), **deprecated}),
        cri.get("enable_cdi"),
        [item for item in imports if item != posixpath.normpath(path)],
    )


def _plain_runtimes(runtimes: Mapping[str, Any]) -> dict[str, Table]:
    return {name: plain(runtimes[name]) for name in sorted(runtimes)}


def plain(settings: Mapping[str, Any]) -> Table:
    """Return settings without their defaults. Every setting of a runtime defaults to an empty value."""
    kept = {key: plain(value) if isinstance(value, Mapping) else value for key, value in settings.items()}
    return {
        key: value for key, value in kept.items() if value and not (isinstance(value, str) and (key, value) in _USUAL)
    }


def is_runc(settings: Mapping[str, Any]) -> bool:
    """Whether containerd runs a runtime with runc's shim, so that its options have the same meaning for NVIDIA's
    runtime."""
    shim = posixpath.basename(str(settings.get("runtime_path") or "containerd-shim-runc-v2"))
    return bool(_RUNC_TYPE.fullmatch(str(settings.get("runtime_type", "")))) and shim.startswith(
        "containerd-shim-runc-"
    )


def with_binary(settings: Mapping[str, Any], binary: str) -> Table:
    options = {**settings.get("options", {}), "BinaryName": binary}
    return {"runtime_type": RUNC, **settings, "options": options}


def without_binary(settings: Mapping[str, Any]) -> Table:
    options = {key: value for key, value in settings.get("options", {}).items() if key != "BinaryName"}
    return plain({**settings, "options": options})


def check_default(state: State) -> None:
    """Raise ValueError for a configuration with which no pod starts, because the default runtime is not defined."""
    if state.default and state.default not in state.runtimes:
        raise ValueError(
            f"the default runtime '{state.default}' is not defined. Defined are {', '.join(sorted(state.runtimes))}."
        )


def handlers_of(printed: str) -> dict[str, str]:
    """Return the program that runs the containers of each runtime, by name. The result is empty if it is the default
    program."""
    runtimes = state_of(printed).runtimes
    return {
        name: str(settings.get("runtime_path") or "")
        if "crio" in read(printed)
        else str(at(settings, ("options", "BinaryName"), ""))
        for name, settings in runtimes.items()
    }


# ---- differences ---------------------------------------------------------------------------------------------------


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return a line for each difference that pods can notice."""
    lines = []
    if before["default"] != after["default"]:
        lines.append(f"default runtime: {before['default'] or 'not set'} -> {after['default'] or 'not set'}")
    was, now = before["runtimes"], after["runtimes"]
    lines += [f"runtime {name}: removed" for name in was if name not in now]
    for name, settings in now.items():
        if name not in was:
            lines.append(f"runtime {name}: added ({', '.join(f'{key} = {value}' for key, value in _flat(settings))})")
            continue
        old, new = dict(_flat(was[name])), dict(_flat(settings))
        changed = [key for key in {**old, **new} if old.get(key) != new.get(key)]
        lines += [f"runtime {name}: {key} {old.get(key, 'not set')} -> {new.get(key, 'not set')}" for key in changed]
    if None not in (before["cdi"], after["cdi"]) and before["cdi"] != after["cdi"]:
        lines.append(f"enable_cdi: {str(before['cdi']).lower()} -> {str(after['cdi']).lower()}")
    return lines


def without_extras(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> Table:
    """Return ``actual`` without the runtimes, settings and default that ``expected`` lacks.

    CRI-O prints its own defaults of a runtime, but prints no runtime if all runtimes have their defaults.
    """
    return {
        "default": actual["default"] if expected["default"] else "",
        "cdi": None,
        "runtimes": {
            name: {key: value for key, value in actual["runtimes"][name].items() if key in settings}
            for name, settings in expected["runtimes"].items()
            if name in actual["runtimes"]
        }
        if actual["runtimes"]
        else expected["runtimes"],
    }


def mismatches(expected: Mapping[str, Any], actual: Mapping[str, Any], exact: bool = True) -> list[str]:
    """Return a line for each way in which a configuration differs from the expected one. The result is empty if it
    matches."""
    lines = differences(expected, actual if exact else without_extras(expected, actual))
    if actual["default"] and actual["runtimes"] and actual["default"] not in actual["runtimes"]:
        lines.append(f"default runtime: '{actual['default']}' is not defined")
    kept = actual["default"] in (expected["runtimes"] or [actual["default"]])
    if actual["default"] and not expected["default"] and not kept:
        lines.append(f"default runtime: another file sets it to {actual['default']}, which will be removed")
    return lines


def _flat(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value)
        else:
            yield key, str(value).lower() if isinstance(value, bool) else str(value)
