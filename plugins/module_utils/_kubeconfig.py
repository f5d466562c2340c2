# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.

"""Kubeconfigs: several files are merged, and a context selects a cluster and a user.

If entries have the same name, the first one counts. If several files set a current context, the last one counts. The
official client does the same. A relative path is relative to the directory of the file that contains it.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ansible.module_utils.basic import missing_required_lib
from ansible_collections.slipway.inference.plugins.module_utils._errors import InferenceError
from ansible_collections.slipway.inference.plugins.module_utils._spelling import did_you_mean

# Number of names that an error message lists.
LISTED = 10
_NEEDS_CLIENT = ("exec", "auth-provider")


class KubeconfigError(Exception):
    """A kubeconfig cannot be used. The message contains the reason."""


class Pem(NamedTuple):
    """One or more certificates, or a key, as a path or as data. Both are empty if there is none."""

    path: str = ""
    data: bytes = b""


NO_PEM = Pem()


class Entry(NamedTuple):
    """The content of a named entry, and the directory to which its relative paths are relative."""

    content: Mapping[str, Any]
    folder: str


@dataclass
class Config:
    """The entries of one or more kubeconfigs by name."""

    clusters: dict[str, Entry] = field(default_factory=dict)
    users: dict[str, Entry] = field(default_factory=dict)
    contexts: dict[str, Entry] = field(default_factory=dict)
    current: str | None = None
    # Paths of the files that were read. Empty if the task contains the kubeconfig.
    where: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Name of the kubeconfig for messages."""
        return " and ".join(self.where) or "The kubeconfig in the task"


@dataclass(frozen=True)
class Access:
    """A cluster, and the credentials for it."""

    server: str = ""
    validate: bool = True
    tls_server_name: str = ""
    proxy: str = ""
    authority: Pem = NO_PEM
    certificate: Pem = NO_PEM
    key: Pem = NO_PEM
    token: str = ""
    token_file: str = ""
    username: str = ""
    password: str = ""


def read(paths: str) -> Config:
    """Return the merged content of the files whose paths are separated as in PATH. Missing files are skipped.

    Raise KubeconfigError if no file exists or a file is invalid, and OSError if a file cannot be read.
    """
    try:
        import yaml
    except ImportError as error:
        raise InferenceError("missing_library", missing_required_lib("PyYAML")) from error
    config = Config()
    existing = [path for path in _expanded(paths) if os.path.exists(path)]
    if not existing:
        raise KubeconfigError(f"{' and '.join(_expanded(paths))}: file not found")
    for path in existing:
        with open(path, encoding="utf-8") as file:
            try:
                content = yaml.load(file, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  (both safe)
            except (yaml.YAMLError, UnicodeDecodeError) as error:
                raise KubeconfigError(f"{path} is not YAML: {error}") from error
        if content is None:
            raise KubeconfigError(f"{path} is empty")
        config.where.append(path)
        _merge(config, _mapping(content, path), os.path.dirname(os.path.abspath(path)), path)
    return config


def _expanded(paths: str) -> list[str]:
    return [os.path.expanduser(part) for part in paths.split(os.pathsep) if part]


def from_dictionary(content: Mapping[str, Any]) -> Config:
    """Return the content of a kubeconfig that the task contains. Raise KubeconfigError if it is invalid."""
    config = Config()
    _merge(config, content, "", config.name)
    return config


def access(config: Config, context: str | None) -> Access | None:
    """Return the cluster and credentials of the named context, or of the current context if ``context`` is None.

    Return None if only the official client supports the user's credentials. Raise KubeconfigError if the context is
    invalid.
    """
    name = context or config.current
    if not name:
        raise KubeconfigError(f"{config.name} sets no current-context, and the task sets no context")
    chosen = _named(config, "context", name, "").content
    cluster = _named(config, "cluster", chosen.get("cluster"), f", which its context {name} names")
    user = config.users.get(chosen.get("user") or "", Entry({}, ""))
    if any(user.content.get(key) for key in _NEEDS_CLIENT):
        return None
    server = str(cluster.content.get("server") or "").rstrip("/")
    pems = {}
    if server.startswith("https"):
        pems = {
            "authority": _pem(cluster, "certificate-authority"),
            "certificate": _pem(user, "client-certificate"),
            "key": _pem(user, "client-key"),
        }
    return Access(
        server=server,
        validate=not cluster.content.get("insecure-skip-tls-verify"),
        tls_server_name=_text(cluster, "tls-server-name"),
        proxy=_text(cluster, "proxy-url"),
        token=_text(user, "token"),
        token_file=_path(user, "tokenFile"),
        username=_text(user, "username"),
        password=_text(user, "password"),
        **pems,
    )


def _merge(config: Config, content: Mapping[str, Any], folder: str, where: str) -> None:
    for plural in ("cluster", "user", "context"):
        entries: dict[str, Entry] = getattr(config, f"{plural}s")
        for name, entry in _entries(content, plural, where):
            entries.setdefault(name, Entry(entry, folder))
    if "current-context" in content:
        config.current = str(content["current-context"] or "")


def _entries(content: Mapping[str, Any], kind: str, where: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    entries = content.get(f"{kind}s") or []
    if not isinstance(entries, list):
        raise KubeconfigError(f"{where}: {kind}s is not a list")
    for entry in entries:
        if "name" not in _mapping(entry, f"{where}: one of its {kind}s"):
            text = f"{where}: one of its {kind}s has no name"
            raise KubeconfigError(text)
        yield str(entry["name"]), _mapping(entry.get(kind) or {}, f"{where}: the {kind} {entry['name']}")


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise KubeconfigError(f"{where} is not a mapping")
    return value


def _named(config: Config, kind: str, name: Any, by: str) -> Entry:
    entries: Mapping[str, Entry] = getattr(config, f"{kind}s")
    if name not in entries:
        text = f"{config.name} has no {kind} {name!r}{by}."
        raise KubeconfigError(f"{text} {did_you_mean(str(name), entries) or _there_are(kind, entries)}")
    return entries[name]


def _there_are(kind: str, entries: Mapping[str, Entry]) -> str:
    names = sorted(entries)
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return f"It has {', '.join(names[:LISTED])}{more}." if names else f"It has no {kind}s."


def _text(entry: Entry, key: str) -> str:
    value = entry.content.get(key)
    return "" if value is None else str(value)


def _path(entry: Entry, key: str) -> str:
    text = _text(entry, key)
    return os.path.normpath(os.path.join(entry.folder, text)) if text else ""


def _pem(entry: Entry, key: str) -> Pem:
    """Return a certificate or key of an entry. Data in the entry takes precedence over a path. Raise KubeconfigError if
    it is invalid or missing."""
    if data := _text(entry, f"{key}-data"):
        try:
            return Pem(data=base64.b64decode(data))
        except ValueError as error:
            raise KubeconfigError(f"{key}-data is not Base64: {error}") from error
    path = _path(entry, key)
    if path and not os.path.isfile(path):
        raise KubeconfigError(f"File does not exist: {path}")
    return Pem(path)
