# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change in any release.

"""Plans that add a container runtime to containerd's configuration. All functions are pure: they map texts to texts.

How containerd treats its files depends on its version. 1.x reads versions 1 and 2, and an imported file replaces the
whole section of a plugin, so one file must configure the whole plugin. 2.x reads all versions and merges imported files
key by key, but a file must not have a newer version than the file that imports it.

A runtime that works is not changed. A handler is derived from a runtime of the same type, with all its options.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.slipway.inference.plugins.plugin_utils._containerd_node import (
    HEADER,
    OWN_NAMES,
    Node,
    Source,
    node_of,
    runs_by,
)
from ansible_collections.slipway.inference.plugins.plugin_utils._runtime_state import (
    DEPRECATED,
    Request,
    State,
    check_default,
    cri_plugin,
    differences,
    is_runc,
    with_binary,
    without_binary,
)
from ansible_collections.slipway.inference.plugins.plugin_utils._toml import (
    NotEditable,
    Path,
    Table,
    at,
    changed,
    read,
    written,
)

DROP_INS = "/etc/containerd/conf.d"
DROP_IN = "99-nvidia.toml"


def containerd_plan(
    dump: str,
    top: str | None,
    path: str,
    request: Request,
    present: bool = True,
    imported: Mapping[str, str] | None = None,
    defaults: str = "",
) -> dict[str, Any]:
    """Return the files to write and to remove, with the expected state.

    ``dump`` is the output of ``containerd config dump``, and ``defaults`` that of ``config default``. ``top`` is the
    text of the file at ``path``, or None if it does not exist. ``imported`` contains the files that containerd imports,
    in any order. Raise ValueError, with the reason, if there is no valid plan.
    """
    node = node_of(dump, top, path, request, imported or {}, defaults)
    expected = _expected(node, present)
    try:
        check_default(expected)
    except ValueError as error:
        raise ValueError(f"{path}: {error} No pod starts with this file. Set default_runtime_name.") from error
    home = _home(node, present)
    edited = {source.path: _edited(node, source, home, expected, present) for source in node.sources}
    files = {source.path: source.text for source in node.sources if source.text is not None}
    drop_in = _drop_in(node, expected) if home is None and present else {}
    edited |= drop_in
    ours = [source.path for source in node.sources if source.written_by_us and node.merges]
    # An import of all files in a directory also reads the backups of earlier releases.
    removed = [item for item in ours if item not in drop_in]
    after = {item: text for item, text in {**files, **edited}.items() if text and item not in removed}
    return {
        "version": max(node.top.version, 1),
        "method": "drop_in" if home is None else "top_file",
        "files": [{"path": item, "content": text} for item, text in _in_order(edited, node, removed)],
        "removed": removed,
        "expected": expected.as_dict(),
        "changes": differences(node.state.as_dict(), expected.as_dict()),
        "trial": _trial(node, after),
    }


# ---- which runtimes there will be ----------------------------------------------------------------------------------


def _pattern(node: Node) -> Table:
    """Return the settings from which a handler is derived: those of a runtime that uses runc, without the program."""
    runtimes = {name: settings for name, settings in node.state.runtimes.items() if is_runc(settings)}
    others = [name for name in runtimes if not node.is_ours(name)]
    preferred = [node.state.default, "runc", "crun", *others]
    configured = [name for name in preferred if name in others and (node.configured(name) or name == "default")]
    ours = [name for name in (node.state.default, *node.request.handlers, *runtimes) if name in runtimes]
    for name in (*configured, *ours, *others):
        return without_binary(runtimes[name])
    return node.implied


def _handler(node: Node, name: str) -> Table:
    settings = node.state.runtimes.get(name)
    if settings is None or (not is_runc(settings) and runs_by(settings, node.request.binary)):
        return with_binary(_pattern(node), node.request.binary)
    if not is_runc(settings):
        raise ValueError(
            f"The runtime {name} exists already and is of the type {settings.get('runtime_type', '')!r},"
            f" which cannot run {node.request.binary}. Rename it."
        )
    return with_binary(settings, node.request.binary)


def _stale(node: Node, present: bool) -> list[str]:
    """Return the runtimes to remove: all of ours, or those that the role no longer registers."""
    ours = [name for name in node.state.runtimes if node.is_ours(name)]
    if not present:
        return ours
    kept = {*node.request.handlers, *([node.state.default] if node.request.default == "leave" else [])}
    return [name for name in ours if name in OWN_NAMES and name not in kept]


def _expected(node: Node, present: bool) -> State:
    state, request = node.state, node.request
    stale = _stale(node, present)
    runtimes = {name: settings for name, settings in state.runtimes.items() if name not in stale}
    if present:
        runtimes |= {name: _handler(node, name) for name in request.handlers}
    default = state.default
    if present and request.default == "yes":
        _check_default_can_change(node)
        default = request.handlers[0]
    elif node.default_is_ours and (not present or request.default == "no"):
        _check_default_can_change(node)
        default = _fallback(node)
        if default not in runtimes or node.is_ours(default) or not (_only_ours(node) or node.configured(default)):
            runtimes[default] = _pattern(node)
    cdi = True if present and request.cdi and state.cdi is not None else state.cdi
    return State(default, {name: runtimes[name] for name in sorted(runtimes)}, cdi if present else None)


def _only_ours(node: Node) -> bool:
    """Whether our file alone defines our runtimes, so that its removal restores the node."""
    return node.merges and not any(node.configured(name) for name in node.state.runtimes if node.is_ours(name))


def _check_default_can_change(node: Node) -> None:
    if node.state.default == "default":
        raise ValueError(
            f"{node.top.path} sets the default runtime by the deprecated table default_runtime, which overrides"
            " default_runtime_name. Define the runtime under runtimes, and name it in default_runtime_name."
        )


def _fallback(node: Node) -> str:
    """Return the default runtime to use instead of ours: the one in the node's files if our own file overrides it, or
    else runc or crun."""
    others = {name: settings for name, settings in node.state.runtimes.items() if not node.is_ours(name)}
    if any(source.written_by_us and source.default for source in node.sources):
        below = [source.default for source in reversed(node.sources) if source.default and not source.written_by_us]
        if below and below[0] in others:
            return below[0]
    return next((name for name in ("runc", "crun") if is_runc(others.get(name, {})) and node.configured(name)), "runc")


# ---- where they are written ----------------------------------------------------------------------------------------


def _home(node: Node, present: bool) -> Source | None:
    """Return the file in which to change our runtimes, or None if they belong in our own file."""
    if not node.merges:
        plugin = [source for source in node.sources if at(source.document, source.containerd[:2]) is not None]
        return plugin[-1] if plugin else node.top
    if present and any(source.written_by_us for source in node.sources):
        return None
    files = [source for source in node.sources if not source.written_by_us and _has_ours(node, source)]
    return files[-1] if files else None


def _has_ours(node: Node, source: Source) -> bool:
    return any(name in (*node.request.handlers, *OWN_NAMES) or node.is_ours(name) for name in source.runtimes)


def _edited(node: Node, source: Source, home: Source | None, expected: State, present: bool) -> str:
    """Return the new text of an existing file, or of containerd's own file."""
    text = source.text or ""
    if source.written_by_us and node.merges:
        return text
    if not node.merges and source is not home:
        return text
    changes: Table = {}
    unused = [name for name in _stale(node, present) if name in source.runtimes and name not in expected.runtimes]
    tables: list[Path] = [(*source.containerd, "runtimes", name) for name in unused]
    if source is home:
        changes, replaced = _of_home(node, source, expected, present)
        tables += replaced
    elif node.default_is_ours and source.default and source.default not in expected.runtimes:
        changes = _nested((*source.containerd, "default_runtime_name"), expected.default)
    if source is home and present and not source.document:
        changes = {"version": source.version, **changes}
    return _changed(text, changes, tables, source.path)


def _of_home(node: Node, source: Source, expected: State, present: bool) -> tuple[Table, list[Path]]:
    """Return the changes of the file that contains our runtimes, and the tables to replace."""
    runtimes, replaced = _runtimes_to_write(node, source, expected, present)
    containerd: Table = {"default_runtime_name": expected.default} if expected.default != node.state.default else {}
    containerd |= {"runtimes": runtimes} if runtimes else {}
    cri: Table = {"enable_cdi": True} if present and node.request.cdi else {}
    cri |= {"containerd": containerd} if containerd else {}
    tables = [(*source.containerd, "runtimes", name) for name in replaced]
    return ({"plugins": {cri_plugin(source.version): cri}} if cri else {}), tables


def _runtimes_to_write(node: Node, source: Source, expected: State, present: bool) -> tuple[Table, list[str]]:
    """Return the settings of each runtime to write, and the runtimes whose tables are replaced. With containerd 1, a
    file that defines one runtime must define all."""
    complete = not node.merges and (present or bool(source.runtimes))
    to_write: Table = {}
    replaced: list[str] = []
    for name, settings in expected.runtimes.items():
        was = node.state.runtimes.get(name, {})
        defined = name in source.runtimes
        if name in DEPRECATED.values() or (settings == was and (defined or not complete)):
            continue
        loses_binary = "BinaryName" in was.get("options", {}) and "BinaryName" not in settings.get("options", {})
        if defined and is_runc(was) and not loses_binary:
            to_write[name] = {"options": settings["options"]}
            continue
        to_write[name] = settings
        replaced += [name] if defined else []
    return to_write, replaced


def _drop_in_folder(top: Source) -> str:
    """Return the directory from which the file imports all files, or containerd's default directory."""
    for pattern in top.document.get("imports", []):
        folder, name = posixpath.split(posixpath.join(posixpath.dirname(top.path), pattern))
        if name in ("*.toml", "*") and "*" not in folder:
            return posixpath.normpath(folder)
    return DROP_INS


def _drop_in(node: Node, expected: State) -> dict[str, str]:
    """Return the texts of our file and, if it must be changed to import ours, of the top file, by path."""
    top, request = node.top, node.request
    folder = _drop_in_folder(top)
    containerd: Table = {"default_runtime_name": expected.default} if node.is_ours(expected.default) else {}
    if request.default == "yes":
        containerd = {"default_runtime_name": request.handlers[0]}
    kept = [
        name for name in expected.runtimes if name in request.handlers or name == containerd.get("default_runtime_name")
    ]
    containerd["runtimes"] = {name: expected.runtimes[name] for name in kept}
    cri: Table = {"enable_cdi": True} if request.cdi else {}
    settings = {"plugins": {cri_plugin(top.version): {**cri, "containerd": containerd}}}
    numbered = {"version": top.version} if top.version else {}
    path = f"{folder}/{DROP_IN}"
    existing = next((source for source in node.sources if source.path == path and not source.written_by_us), None)
    if existing:
        drop_in = _changed(existing.text or "", settings, [], path)
    else:
        drop_in = HEADER + written({**numbered, **settings})
    imports = top.document.get("imports", [])
    read_already = {posixpath.normpath(posixpath.join(posixpath.dirname(top.path), item)) for item in imports}
    if {f"{folder}/*.toml", f"{folder}/*"} & read_already:
        return {path: drop_in}
    line = {"imports": [*imports, f"{folder}/*.toml"]}
    # Without a file containerd has its defaults: a file that only imports keeps them.
    text = _changed(top.text or "", line, [], top.path) if top.document else written({**numbered, **line})
    return {path: drop_in, top.path: text}


def _in_order(edited: Mapping[str, str], node: Node, removed: Sequence[str]) -> list[tuple[str, str]]:
    """Return the path and text of each file to write. The top file comes last, so that all imported files exist."""
    texts = {source.path: source.text for source in node.sources}
    listed = [
        (path, text)
        for path, text in edited.items()
        if path not in removed and (text != (texts.get(path) or "") or path not in texts)
    ]
    return sorted(listed, key=lambda item: item[0] == node.top.path)


def _trial(node: Node, after: Mapping[str, str]) -> list[dict[str, str]]:
    """Return copies of the new files with names for a single directory, so that containerd can check them before they
    take effect."""
    top = node.top.path
    others = [path for path in after if path != top]
    order = [source.path for source in node.sources]
    others.sort(key=lambda path: (_place(path, order), path))
    names = {path: f"{number}-{posixpath.basename(path)}" for number, path in enumerate(others, start=1)}
    files = [{"name": names[path], "content": _without_imports(after[path], path)} for path in others]
    if not after:
        return []
    imports = {"imports": list(names.values())} if names else {}
    # A file that contains only imports replaces containerd's default import.
    text = after.get(top) or written({"version": node.top.version})
    text = _changed(text, imports, [], top) if imports else text
    return [*files, {"name": "config.toml", "content": text}]


def _without_imports(text: str, path: str) -> str:
    """Return a text without its imports. The copies must not import the original files; config.toml imports all
    copies."""
    return _changed(text, {"imports": []}, [], path) if read(text).get("imports") else text


def _place(path: str, order: Sequence[str]) -> tuple[int, int]:
    """Return a sort key for the position at which containerd reads a file. A file that does not exist yet is sorted
    into its directory."""
    if path in order:
        return order.index(path), 1
    siblings = [item for item in order[1:] if posixpath.dirname(item) == posixpath.dirname(path)]
    later = [item for item in siblings if item > path]
    if later:
        return order.index(later[0]), 0
    return (order.index(siblings[-1]), 2) if siblings else (len(order), 0)


def _nested(path: Path, value: Any) -> Table:
    return {path[0]: _nested(path[1:], value) if path[1:] else value}


def _changed(text: str, changes: Mapping[str, Any], removed: Sequence[Path], path: str) -> str:
    try:
        return changed(text, changes, removed)
    except NotEditable as error:
        raise ValueError(
            f"{path} was not changed: {error}. Add these settings, in tables with headers:\n{written(dict(changes))}"
        ) from error
