"""What ``containerd config dump`` prints of files, in place of the program: the rules by which 1.x and 2.x read them.

Where the program itself is at hand, test_containerd_nodes compares.
"""

from __future__ import annotations

import posixpath
import tomllib
from collections.abc import Mapping
from fnmatch import fnmatch
from typing import Any

from ansible_collections.slipway.inference.plugins.plugin_utils._toml import at, laid_over, written

RUNC: dict[str, Any] = {
    "runtime_type": "io.containerd.runc.v2",
    "runtime_path": "",
    "pod_annotations": [],
    "privileged_without_host_devices": False,
    "base_runtime_spec": "",
    "cni_max_conf_num": 0,
    "options": {"BinaryName": "", "SystemdCgroup": False},
}
NAMES = {1: "cri", 2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime"}
TOP = "/etc/containerd/config.toml"


def dump(major: int, files: Mapping[str, str], top: str = TOP) -> str:
    """``files``: texts by path. ``major``: of containerd."""
    read = read_in_order(files, top, major)
    documents = [tomllib.loads(files[path]) for path in read]
    merge = laid_over if major == 2 else _replaced
    cri: dict[str, Any] = {}
    for document in documents:
        name = NAMES[min(max(document.get("version", 2 if major == 1 and not document else 1), 1), 3)]
        section = at(document, ("plugins", name))
        cri = merge(cri, section) if section is not None else cri
    plain = {"runc": RUNC | {"sandboxer" if major == 2 else "sandbox_mode": "podsandbox"}}
    defaults = {"enable_cdi": major == 2, "containerd": {"default_runtime_name": "runc"}}
    runtimes = at(cri, ("containerd", "runtimes"))
    if major == 2:
        defaults["containerd"]["runtimes"] = plain
    cri = laid_over(defaults, cri)
    if major == 1 and runtimes is None:
        cri["containerd"]["runtimes"] = plain
    version = major + 1
    # 1.x prints the files that it has read, in random order. 2.x prints what all files import.
    patterns = [*_default_imports(files, top, major), *(item for path in read for item in imports_of(files, path))]
    imports = read[::-1] if major == 1 else patterns
    return written({"version": version, "imports": imports, "plugins": {NAMES[version]: cri}})


def read_in_order(files: Mapping[str, str], top: str = TOP, major: int = 2) -> list[str]:
    """The paths of the files that are read: containerd's own, and those that it imports, breadth first."""
    order: list[str] = []
    pending = [top] if top in files else _matches(_default_imports(files, top, major), top, files, major)
    while pending:
        path = pending.pop(0)
        if path not in order:
            order.append(path)
            pending += _matches(imports_of(files, path), path, files, major)
    return order


def imports_of(files: Mapping[str, str], path: str) -> list[str]:
    imports: list[str] = tomllib.loads(files[path]).get("imports", [])
    return imports


def _default_imports(files: Mapping[str, str], top: str, major: int) -> list[str]:
    """2.x may import a directory by default, even if its file does not exist."""
    return [posixpath.join(posixpath.dirname(top), "conf.d/*.toml")] if major == 2 and top not in files else []


def _matches(patterns: list[str], path: str, files: Mapping[str, str], major: int) -> list[str]:
    """1.x takes a relative pattern from its working directory, and a relative name from the importing file."""
    matches = []
    for pattern in patterns:
        folder = "/" if major == 1 and "*" in pattern else posixpath.dirname(path)
        item = posixpath.normpath(posixpath.join(folder, pattern))
        matches += [file for file in sorted(files) if fnmatch(file, item) and file.count("/") == item.count("/")]
    return matches


def _replaced(_below: Any, above: Any) -> Any:
    return above
