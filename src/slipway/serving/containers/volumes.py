"""Volumes of a pod, as Kubernetes writes them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from slipway.kube.objects import Object


def scratch(name: str, size_limit: str = "") -> Object:
    """An empty folder on the node's disk that lives as long as the pod; one that grows over its limit is evicted."""
    return {"name": name, "emptyDir": {"sizeLimit": size_limit} if size_limit else {}}


def shared_memory(name: str) -> Object:
    """A folder in memory, which counts as the pod's."""
    return {"name": name, "emptyDir": {"medium": "Memory"}}


def claim(name: str, claim_name: str, *, read_only: bool = False) -> Object:
    """A PersistentVolumeClaim of the pod's namespace. Read-only, the kubelet does not change the group of its files."""
    source = {"claimName": claim_name} | ({"readOnly": True} if read_only else {})
    return {"name": name, "persistentVolumeClaim": source}


def image(name: str, reference: str) -> Object:
    """The files of a container image, read-only."""
    return {"name": name, "image": {"reference": reference, "pullPolicy": "IfNotPresent"}}


def secret(name: str, secret_name: str, files: Mapping[str, str]) -> Object:
    """Mounts keys of a Secret as files of these names; none if the Secret does not exist."""
    items = [{"key": key, "path": file} for key, file in files.items()]
    return {"name": name, "secret": {"secretName": secret_name, "optional": True, "items": items}}


def config_map(name: str, config_map_name: str) -> Object:
    """A ConfigMap's keys as files."""
    return {"name": name, "configMap": {"name": config_map_name}}


def key_of_config_map(name: str, config_map_name: str, key: str) -> Object:
    """Mounts one key of a ConfigMap as a file of its name; none if the ConfigMap or the key does not exist."""
    items = [{"key": key, "path": key}]
    return {"name": name, "configMap": {"name": config_map_name, "optional": True, "items": items}}


def of_the_node(name: str, path: str, kind: Literal["File", "Directory", "DirectoryOrCreate"]) -> Object:
    """Mounts a file or folder of the node. The pod does not start if it does not exist, unless it is created, or has
    the other type."""
    return {"name": name, "hostPath": {"path": path, "type": kind}}
