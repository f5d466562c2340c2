"""Contents: the fields that a delivery adds to the pod template of another owner's workload, updates and removes. Pure.

The rest of the template stays unchanged. The additions are identified by their names, so they are recognized even if
the author has applied the workload again and removed some of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from slipway.kube.objects import Object

CONTAINERS = ("initContainers", "containers")


class Names(msgspec.Struct, frozen=True, kw_only=True):
    """Names that identify the additions of a delivery in a pod template."""

    annotations: str
    """Prefix of the annotations' names."""
    variables: tuple[str, ...]
    volumes: tuple[str, ...]
    """Prefixes of the volumes' names."""
    pull_secrets: str
    """Prefix of the pull Secrets' names."""
    gate: str
    """Name of the scheduling gate, which is always removed."""


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """The additions of a delivery to a pod template and to each of its containers. Without arguments, nothing is
    added."""

    annotations: Mapping[str, str] = {}
    env: tuple[Object, ...] = ()
    mounts: tuple[Object, ...] = ()
    volumes: tuple[Object, ...] = ()
    pull_secrets: tuple[Object, ...] = ()


def with_contents(template: Object, contents: Contents, ours: Names) -> Object:
    """Return the template with ``contents`` in place of earlier contents, and without the scheduling gate."""
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
    """Return the name of the first container in which the author mounts a volume at or below the directory ``folder``,
    and the mount path. Return None if there is no such container."""
    for part in CONTAINERS:
        for container in template["spec"].get(part) or ():
            for mount in container.get("volumeMounts") or ():
                path = str(mount["mountPath"]).rstrip("/")
                if f"{path}/".startswith(f"{folder}/") and not _begins(ours.volumes)(mount):
                    return str(container["name"]), path
    return None


def _container(container: Object, contents: Contents, ours: Names) -> Object:
    """Return the container with the contents. The added environment variables come first, because the container's own
    variables may refer to them."""
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
    """Return the list ``before`` with the additions. An addition replaces the item with the same ``identity`` field.
    Items that ``is_ours`` recognizes as earlier additions are removed. New items come last, or first if ``first`` is
    set."""
    missing = {one[identity]: one for one in additions}
    items = [missing.pop(one[identity], one) for one in before or () if one[identity] in missing or not is_ours(one)]
    return [*missing.values(), *items] if first else [*items, *missing.values()]


def _put(obj: Object, field: str, value: Sequence[Object] | Mapping[str, str]) -> None:
    """Set a field, or remove the field if the value is empty. The API server also drops empty lists, so an unchanged
    object stays equal."""
    obj.pop(field, None)
    if value:
        obj[field] = value
