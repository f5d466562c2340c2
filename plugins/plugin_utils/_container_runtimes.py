# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change in any release.

"""How containerd and CRI-O come to know a further runtime. Pure: texts in, texts out.

What containerd does with its files depends on what it is. 1.x speaks versions 1 and 2, and a file that it imports
replaces the whole section of a plugin. 2.x speaks 3 or 4, reads the older ones too, and merges what it imports key by
key; but a file must not be of a newer version than the one that imports it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.slipway.inference.plugins.plugin_utils._toml import (
    NotEditable,
    Path,
    Table,
    at,
    changed,
    laid_over,
    read,
    written,
)

DROP_INS = "/etc/containerd/conf.d"
DROP_IN = "99-nvidia.toml"
HEADER = "# Written by the role gpu_node. It is read beside the file that imports it.\n"
CRI_OF_VERSION = {0: "cri", 1: "cri", 2: "io.containerd.grpc.v1.cri"}
CRI_SINCE_3 = "io.containerd.cri.v1.runtime"
RUNC = "io.containerd.runc.v2"
# Of the runtime that is there already; what it leaves empty is containerd's default for the others too.
TAKEN_OVER = (
    "runtime_type",
    "base_runtime_spec",
    "cgroup_writable",
    "cni_conf_dir",
    "cni_max_conf_num",
    "container_annotations",
    "pod_annotations",
    "privileged_without_host_devices",
    "privileged_without_host_devices_all_devices_allowed",
    "snapshotter",
    "options",
)


@dataclass(frozen=True)
class Wanted:
    """``handlers``: names by which RuntimeClasses ask for ``binary``; the first is the default where ``default``."""

    handlers: Sequence[str]
    binary: str
    cdi: bool
    default: bool


def cri_plugin(version: int) -> str:
    """The plugin that runs pods, as a file of this version calls it."""
    return CRI_OF_VERSION.get(version, CRI_SINCE_3)


def containerd_plan(dump: str, top: str | None, path: str, wanted: Wanted, present: bool = True) -> dict[str, Any]:
    """What to write. ``dump``: what containerd says it runs with; ``top``: the text of its file, None without one.

    Raises ValueError where the file cannot be changed, with a sentence that says why.
    """
    runs = read(dump)
    document = _readable(top, path)
    _see_that_pods_can_run(document, path)
    speaks = int(runs.get("version", 1))
    version = int(document.get("version", 0)) if document else speaks
    merges = speaks >= 3
    if merges and version < 2:
        raise ValueError(
            f"{path} names no version, which makes it version 1. containerd 2 takes nothing from it that concerns pods."
            f" Have containerd write it anew: containerd --config {path} config migrate"
        )
    there = at(document, ("plugins", cri_plugin(version), "containerd", "runtimes"), {})
    if merges and not any(name in there for name in wanted.handlers):
        method, files = "drop_in", _drop_in(runs, document, top or "", path, version, wanted, present)
    else:
        method, files = "top_file", [_file(path, _edited(runs, document, top or "", path, version, wanted, present))]
    return {
        "version": max(version, 1),
        "method": method,
        "files": [file for file in files if file["content"] or top is not None],
        "removed": [] if present else [posixpath.join(_drop_in_folder(document, path), DROP_IN)],
    }


def _readable(top: str | None, path: str) -> Table:
    try:
        return read(top or "")
    except ValueError as error:
        raise ValueError(f"{path} is no TOML: {error}") from error


def _see_that_pods_can_run(document: Table, path: str) -> None:
    names = {"cri", CRI_OF_VERSION[2], CRI_SINCE_3}
    if disabled := sorted(names & set(document.get("disabled_plugins", []))):
        raise ValueError(
            f"{path} switches the plugin {disabled[0]} off (disabled_plugins), so no pod can run by this containerd."
            " Take it out of there; a kubelet needs it."
        )


def _file(path: str, content: str) -> dict[str, str]:
    return {"path": path, "content": content}


def _base(runs: Table) -> tuple[str, Table]:
    """Name and settings of the runtime that pods have today."""
    containerd = at(runs, ("plugins", cri_plugin(int(runs.get("version", 1))), "containerd"), {})
    runtimes = containerd.get("runtimes", {})
    for name in (containerd.get("default_runtime_name"), "runc", "crun"):
        options = at(runtimes, (name or "", "options"), {})
        if name in runtimes and "nvidia" not in f"{name} {options.get('BinaryName', '')}":
            return name, runtimes[name]
    return "runc", {}


def _runtime(base: Table) -> Table:
    taken = {key: base[key] for key in TAKEN_OVER if base.get(key)}
    options = {key: value for key, value in taken.pop("options", {}).items() if value}
    return {"runtime_type": RUNC, **taken, **({"options": options} if options else {})}


def _handler(base: Table, binary: str) -> Table:
    runtime = _runtime(base)
    return {**runtime, "options": {**runtime.get("options", {}), "BinaryName": binary}}


def _settings(runs: Table, version: int, wanted: Wanted) -> Table:
    """What a file of this version has to say."""
    _name, base = _base(runs)
    containerd: Table = {"default_runtime_name": wanted.handlers[0]} if wanted.default else {}
    containerd["runtimes"] = {name: _handler(base, wanted.binary) for name in wanted.handlers}
    cri: Table = {"enable_cdi": True} if wanted.cdi else {}
    return {"plugins": {cri_plugin(version): {**cri, "containerd": containerd}}}


def _drop_in_folder(document: Table, path: str) -> str:
    """The folder from which the file imports all, if there is one."""
    for pattern in document.get("imports", []):
        folder, name = posixpath.split(posixpath.join(posixpath.dirname(path), pattern))
        if name in ("*.toml", "*") and "*" not in folder:
            return posixpath.normpath(folder)
    return DROP_INS


def _drop_in(
    runs: Table, document: Table, top: str, path: str, version: int, wanted: Wanted, present: bool
) -> list[dict[str, str]]:
    """First what is imported, then who imports it."""
    if not present:
        return []
    folder = _drop_in_folder(document, path)
    numbered = {"version": version} if version else {}
    drop_in = _file(f"{folder}/{DROP_IN}", HEADER + written({**numbered, **_settings(runs, version, wanted)}))
    pattern = f"{folder}/*.toml"
    imports = document.get("imports", [])
    read_already = {posixpath.normpath(posixpath.join(posixpath.dirname(path), item)) for item in imports}
    if {pattern, f"{folder}/*"} & read_already:
        return [drop_in]
    line = {"imports": [*imports, pattern]}
    # Without a file containerd has its defaults: one that only imports leaves them.
    top_file = _changed(top, line, [], path) if document else written({**numbered, **line})
    return [drop_in, _file(path, top_file)]


def _edited(runs: Table, document: Table, top: str, path: str, version: int, wanted: Wanted, present: bool) -> str:
    cri: Path = ("plugins", cri_plugin(version))
    runtimes: Path = (*cri, "containerd", "runtimes")
    name: Path = (*cri, "containerd", "default_runtime_name")
    changes = _settings(runs, version, wanted) if present else {}
    base, settings = _base(runs)
    if present and settings and base not in at(document, runtimes, {}):
        # A file of 1.x that names any runtime is asked for all of them.
        changes = laid_over(changes, _nested((*runtimes, base), _runtime(settings)))
    if at(document, name) in wanted.handlers and not (present and wanted.default):
        changes = laid_over(changes, _nested(name, base))
    stale = [
        (*runtimes, handler)
        for handler, settings in at(document, runtimes, {}).items()
        if _is_ours(handler, settings, wanted) and settings != at(changes, (*runtimes, handler))
    ]
    if present and not document:
        changes = {"version": version, **changes}
    return _changed(top, changes, stale, path)


def _is_ours(handler: str, settings: Table, wanted: Wanted) -> bool:
    """By its name, or as another name of our program that was asked for once."""
    return handler in wanted.handlers or at(settings, ("options", "BinaryName")) == wanted.binary


def _nested(path: Path, value: Any) -> Table:
    return {path[0]: _nested(path[1:], value) if path[1:] else value}


def _changed(text: str, changes: Mapping[str, Any], removed: Sequence[Path], path: str) -> str:
    try:
        return changed(text, changes, removed)
    except NotEditable as error:
        raise ValueError(
            f"{path} was left as it is: {error}. Have it say this, in tables with headers of their own:\n"
            f"{written(dict(changes))}"
        ) from error


# ---- CRI-O ---------------------------------------------------------------------------------------------------------


def crio_drop_in(config: str, wanted: Wanted) -> str:
    """A file for CRI-O's ``crio.conf.d``. ``config``: what ``crio config`` says."""
    runtime = at(read(config), ("crio", "runtime"), {})
    runtimes = runtime.get("runtimes", {})
    names = (runtime.get("default_runtime"), "crun", "runc")
    base = next((runtimes[name] for name in names if name in runtimes and name not in wanted.handlers), {})
    taken = {key: value for key, value in base.items() if value and key not in ("runtime_path", "runtime_type")}
    handler = {"runtime_path": wanted.binary, "runtime_type": "oci", **taken}
    said: Table = {"default_runtime": wanted.handlers[0]} if wanted.default else {}
    said["runtimes"] = dict.fromkeys(wanted.handlers, handler)
    return HEADER + written({"crio": {"runtime": said}})


# ---- both ----------------------------------------------------------------------------------------------------------


def handlers_of(said: str) -> dict[str, str]:
    """Handler -> program that runs its containers, of what ``containerd config dump`` or ``crio config`` says."""
    config = read(said)
    if "crio" in config:
        runtimes = at(config, ("crio", "runtime", "runtimes"), {})
        return {name: str(runtime.get("runtime_path", "")) for name, runtime in runtimes.items()}
    runtimes = at(config, ("plugins", cri_plugin(int(config.get("version", 1))), "containerd", "runtimes"), {})
    return {name: str(at(runtime, ("options", "BinaryName"), "")) for name, runtime in runtimes.items()}
