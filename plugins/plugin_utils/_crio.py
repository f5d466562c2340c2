# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change in any release.

"""Plans that add a container runtime to CRI-O's configuration. All functions are pure.

``crio config`` prints values that differ from CRI-O's defaults, and the others as comments. A later file replaces a
whole runtime, so a handler is written with all its settings.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any

from ansible_collections.slipway.inference.plugins.plugin_utils._containerd_node import HEADER
from ansible_collections.slipway.inference.plugins.plugin_utils._runtime_state import (
    Request,
    State,
    check_default,
    differences,
    state_of,
)
from ansible_collections.slipway.inference.plugins.plugin_utils._toml import Table, changed, read, written

# Settings that select a handler's program. A derived handler with these settings would not run NVIDIA's program.
_CHOOSE_PROGRAM = ("runtime_path", "runtime_type", "platform_runtime_paths", "inherit_default_runtime")
_OCI = ("", "oci")


def crio_plan(printed: str, drop_in: str | None, request: Request, present: bool = True) -> dict[str, Any]:
    """Return the content of our file, empty to remove it, with the expected state and the changes.

    ``printed`` is the output of ``crio config``, and ``drop_in`` the current text of our file, or None. Raise
    ValueError, with the reason, if there is no valid plan.
    """
    if "crio" not in read(printed):
        printed = "[crio]\n"
    state = state_of(printed)
    expected = _with(state, request) if present else _without(state, drop_in, request)
    # If CRI-O prints no runtime, it has its default runtimes.
    if state.runtimes:
        check_default(expected)
    return {
        "content": _content(state, expected, drop_in, request) if present else "",
        "expected": expected.as_dict(),
        "changes": differences(state.as_dict(), expected.as_dict()),
    }


def _program(name: str, settings: Mapping[str, Any]) -> str:
    return posixpath.basename(str(settings.get("runtime_path") or name))


def _is_pattern(name: str, settings: Mapping[str, Any]) -> bool:
    return settings.get("runtime_type", "") in _OCI and _program(name, settings) in ("runc", "crun")


def _handler(state: State, name: str, request: Request) -> Table:
    base = state.runtimes.get(name)
    if base is None:
        names = (state.default, "crun", "runc", *state.runtimes)
        base = next((state.runtimes[item] for item in names if _pattern_named(state, item)), {})
    elif base.get("runtime_type", "") not in _OCI:
        raise ValueError(
            f"The runtime {name} exists already and is of the type {base['runtime_type']!r}, which cannot run"
            f" {request.binary}. Rename it."
        )
    taken = {key: value for key, value in base.items() if key not in _CHOOSE_PROGRAM}
    return {"runtime_path": request.binary, "runtime_type": "oci", **taken}


def _pattern_named(state: State, name: str) -> bool:
    return name in state.runtimes and _is_pattern(name, state.runtimes[name])


def _is_ours(state: State, name: str, request: Request) -> bool:
    return name in request.handlers or state.runtimes.get(name, {}).get("runtime_path") == request.binary


def _with(state: State, request: Request) -> State:
    runtimes = {**state.runtimes, **{name: _handler(state, name, request) for name in request.handlers}}
    default = state.default
    if request.default == "yes":
        default = request.handlers[0]
    elif request.default == "no" and _is_ours(state, default, request):
        default = _fallback(state, request)
    return State(default, runtimes)


def _fallback(state: State, request: Request) -> str:
    others = [name for name in ("crun", "runc", *state.runtimes) if not _is_ours(state, name, request)]
    for name in others:
        if _pattern_named(state, name):
            return name
    raise ValueError(
        f"The default runtime is {state.default}, and CRI-O has no other that runs by runc or crun. Define one, or set"
        " gpu_node_toolkit_default_runtime to leave."
    )


def _without(state: State, drop_in: str | None, request: Request) -> State:
    """Return the state without our file. Only CRI-O knows the settings that our file replaced, so only the remaining
    runtimes are expected."""
    mine = _of_file(drop_in)
    default = "" if mine.default else state.default
    if _is_ours(state, default, request) and default in mine.runtimes:
        raise ValueError(
            f"another file sets default_runtime to {default}, which would no longer exist. Set it to runc or crun."
        )
    return State(default, {name: state.runtimes[name] for name in state.runtimes if name not in mine.runtimes})


def _content(state: State, expected: State, drop_in: str | None, request: Request) -> str:
    sets_default = bool(_of_file(drop_in).default) or expected.default != state.default
    runtime: Table = {"default_runtime": expected.default} if sets_default and expected.default else {}
    document = {
        "crio": {"runtime": {**runtime, "runtimes": {name: expected.runtimes[name] for name in request.handlers}}}
    }
    if not drop_in or drop_in.startswith(HEADER):
        return HEADER + written(document)
    return changed(drop_in, document)


def _of_file(drop_in: str | None) -> State:
    return state_of(drop_in) if drop_in and "crio" in read(drop_in) else State("", {})
