"""Contents: what a delivery adds to the pod template of another owner's workload, keeps there and removes again. Pure.

The rest of the template stays unchanged. Our additions are identified by name, so they are recognized whatever the
author's apply has left of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from slipway.kube.objects import Object

CONTAINERS = ("initContainers", "containers")


class Names(msgspec.Struct, frozen=True, kw_only=True):
    """The names that identify our additions in a template."""

    annotations: str
    """Prefix of their names."""
    variables: tuple[str, ...]
    volumes: tuple[str, ...]
    """Prefixes of their names."""
    pull_secrets: str
    """Prefix of their names."""
    gate: str
    """Scheduling gate, which is always removed."""


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """The additions of a delivery to a template, and to each of its containers; empty: nothing."""

    annotations: Mapping[str, str] = {}
    env: tuple[Object, ...] = ()
    mounts: tuple[Object, ...] = ()
    volumes: tuple[Object, ...] = ()
    pull_secrets: tuple[Object, ...] = ()


def with_contents(template: Object, contents: Contents, ours: Names) -> Object:
    """Returns the template with these contents in place of its earlier ones, and without the gate."""
    metadata, pod = dict(template.get("metadata") or {}), dict(template["spec"])
    annotations = metadata.get("annotations") or {}
    others = {name: text for name, text in annotations.items() if not name.startswith(ours.annotations)}
    _put(metadata, "annotations", {**others, **contents.annotations})
    for part in CONTAINERS:
        if pod.get(part):
            pod[part] = [_container(one, contents, ours) for one in pod[part]]
    for field, additions, prefixes in (
        ("volumes", contents.volumes, ours.volumes),
        ("imagePullSecrets", contents.pull_secrets, (ours.pull_secrets,)),
        ("schedulingGates", (), (ours.gate,)),
    ):
        _put(pod, field, _merged(pod.get(field), additions, "name", _begins(prefixes)))
    return {**template, "spec": pod, **({"metadata": metadata} if metadata or "metadata" in template else {})}


def find_conflict(template: Object, folder: str, ours: Names) -> tuple[str, str] | None:
    """Returns the first container in which the author mounts something at or below this folder, and its path; None if
    there is none."""
    for part in CONTAINERS:
        for container in template["spec"].get(part) or ():
            for mount in container.get("volumeMounts") or ():
                path = str(mount["mountPath"]).rstrip("/")
                if f"{path}/".startswith(f"{folder}/") and not _begins(ours.volumes)(mount):
                    return str(container["name"]), path
    return None


def _container(container: Object, contents: Contents, ours: Names) -> Object:
    """Adds the contents to a container. Variables come before the container's own, which may refer to them."""
    copy, is_variable = dict(container), lambda one: one["name"] in ours.variables
    _put(copy, "env", _merged(copy.get("env"), contents.env, "name", is_variable, first=True))
    _put(copy, "volumeMounts", _merged(copy.get("volumeMounts"), contents.mounts, "mountPath", _begins(ours.volumes)))
    return copy


def _begins(prefixes: tuple[str, ...]) -> Callable[[Object], bool]:
    return lambda one: str(one.get("name", "")).startswith(prefixes)


def _merged(
    before: Iterable[Object] | None,
    additions: Sequence[Object],
    identity: str,
    is_ours: Callable[[Object], bool],
    *,
    first: bool = False,
) -> list[Object]:
    """Returns a list with our desired items, each at its earlier position, and no others of ours."""
    missing = {one[identity]: one for one in additions}
    items = [missing.pop(one[identity], one) for one in before or () if one[identity] in missing or not is_ours(one)]
    return [*missing.values(), *items] if first else [*items, *missing.values()]


def _put(obj: Object, field: str, value: Sequence[Object] | Mapping[str, str]) -> None:
    """Sets or removes a field. Empty lists are removed, because the API server drops them here."""
    obj.pop(field, None)
    if value:
        obj[field] = value
