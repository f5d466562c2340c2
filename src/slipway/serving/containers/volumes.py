"""Pod volumes as Kubernetes objects. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from slipway.kube.objects import Object


def scratch(name: str, size_limit: str = "") -> Object:
    """Return an ``emptyDir`` volume on the node's disk. Kubernetes evicts a pod that exceeds ``size_limit``; empty
    means no limit."""
    return {"name": name, "emptyDir": {"sizeLimit": size_limit} if size_limit else {}}


def shared_memory(name: str) -> Object:
    """Return an ``emptyDir`` volume in memory. Its content counts towards the pod's memory."""
    return {"name": name, "emptyDir": {"medium": "Memory"}}


def claim(name: str, claim_name: str, *, read_only: bool = False) -> Object:
    """Return the volume of a PersistentVolumeClaim in the pod's namespace. If ``read_only`` is true, the kubelet does
    not change the group of the volume's files."""
    source = {"claimName": claim_name} | ({"readOnly": True} if read_only else {})
    return {"name": name, "persistentVolumeClaim": source}


def image(name: str, reference: str) -> Object:
    """Return a read-only volume with the files of a container image."""
    return {"name": name, "image": {"reference": reference, "pullPolicy": "IfNotPresent"}}


def secret(name: str, secret_name: str, files: Mapping[str, str]) -> Object:
    """Return a volume with keys of a Secret as files. ``files`` maps a key to its file name. A key that does not exist
    has no file, and the volume is empty if the Secret does not exist."""
    items = [{"key": key, "path": file} for key, file in files.items()]
    return {"name": name, "secret": {"secretName": secret_name, "optional": True, "items": items}}


def config_map(name: str, config_map_name: str) -> Object:
    """Return a volume with the keys of a ConfigMap as files. The pod does not start while the ConfigMap does not
    exist."""
    return {"name": name, "configMap": {"name": config_map_name}}


def key_of_config_map(name: str, config_map_name: str, key: str) -> Object:
    """Return a volume with one key of a ConfigMap as a file of the same name. The volume is empty if the ConfigMap or
    the key does not exist."""
    items = [{"key": key, "path": key}]
    return {"name": name, "configMap": {"name": config_map_name, "optional": True, "items": items}}


def of_the_node(name: str, path: str, kind: Literal["File", "Directory", "DirectoryOrCreate"]) -> Object:
    """Return a volume with a file or directory of the node. The pod does not start if the path has another type, or if
    it does not exist and ``kind`` does not create it."""
    return {"name": name, "hostPath": {"path": path, "type": kind}}
