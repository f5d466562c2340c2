"""What a survey or --extra-vars gives as text does the same as the number, the boolean or the list that it means.

Argument specs accept such a text but do not convert the variable, so the roles must convert it wherever they use it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import documents

from .cluster_api import OPENSHIFT, ClusterApi
from .role_run import run_tasks

pytestmark = pytest.mark.plays

ROOT = Path(__file__).parents[3]
ROLES = ("controller", "gateway", "hub", "leader_worker_set", "metrics_server", "openshift_route")
GIVEN: dict[str, Any] = {"hub_volume": {"emptyDir": {}}, "metrics_server_resolution_seconds": 20}
LISTS: dict[str, list[str]] = {
    "controller_apis": ["kubeai", "llmkube", "ome"],
    "controller_allowed_host_path_roots": ["/mnt/models", "/mnt/more"],
    "controller_allowed_remote_hosts": ["files.example", "*.example.com"],
    "controller_author_image_prefixes": ["ghcr.io/acme", "registry.lan"],
    "controller_author_priority_classes": ["*", "system-node-critical"],
    "controller_author_privileged_models": ["models/tiny", "trusted/*"],
    "controller_author_prometheus_servers": ["http://one.example:9090", "http://two.example:9090"],
    "controller_author_service_accounts": ["first", "second"],
    "controller_author_trigger_authentications": ["first", "second"],
    "controller_hub_organizations": ["meta-llama", "mistralai"],
    "controller_catalog_secrets": ["first", "second"],
    "controller_blocked_networks": ["198.18.0.0/15", "2001:db8::/32"],
    "controller_image_pull_secrets": ["first", "second"],
    "controller_namespaces": ["team-a", "team-b"],
    "controller_ome_roots": ["/raid/models", "/mnt/more"],
    "controller_ome_shared_roots": ["/mnt/shared", "/mnt/more-shared"],
    "controller_prometheus_namespaces": ["metrics", "more-metrics"],
    "gateway_apis": ["krypton", "kubeai"],
    "gateway_cors_origins": ["https://chat.example.org", "http://localhost:3000"],
    "gateway_hub_organizations": ["meta-llama", "mistralai"],
    "gateway_image_pull_secrets": ["first", "second"],
    "gateway_prometheus_namespaces": ["metrics", "more-metrics"],
    "gateway_trusted_proxies": ["10.0.0.0/8", "192.168.0.0/16"],
    "hub_gated": ["acme/tiny", "closed/*"],
    "hub_image_pull_secrets": ["first"],
    "leader_worker_set_image_pull_secrets": ["first", "second"],
    "metrics_server_image_pull_secrets": ["first", "second"],
    "metrics_server_kubelet_address_types": ["Hostname", "InternalIP"],
}


def options(role: str) -> dict[str, Any]:
    document: dict[str, Any] = documents.read(ROOT / f"roles/{role}/meta/argument_specs.yml")
    return document["argument_specs"]["main"]["options"]


def other(name: str, option: dict[str, Any]) -> Any:
    """A value that is not the default, so that it shows whether anybody has read it."""
    if option["type"] == "bool":
        return not option["default"]
    return GIVEN.get(name, option["default"] + 1) if option["type"] == "int" else LISTS[name]


def changed() -> dict[str, Any]:
    """Every number, boolean and list of names of the roles, each another one than its default."""
    return {
        name: other(name, option)
        for role in ROLES
        for name, option in options(role).items()
        if option["type"] in ("int", "bool") or (option["type"], option.get("elements")) == ("list", "str")
    }


def text(value: Any) -> str:
    return ",".join(value) if isinstance(value, list) else str(value).lower()


def without_ids(api: ClusterApi) -> dict[tuple[str, str, str], Any]:
    objects = copy.deepcopy(api.objects)
    for served in objects.values():
        served["metadata"].pop("uid")
    return objects


@pytest.fixture
def apis() -> Iterator[tuple[ClusterApi, ClusterApi]]:
    servers = (ClusterApi(), ClusterApi())
    for server in servers:
        server.kinds += OPENSHIFT
        for name in LISTS["controller_namespaces"]:
            server.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield servers
    for server in servers:
        server.stop()


@pytest.mark.timeout(900)
def test_texts_make_the_same_objects_as_what_they_mean(tmp_path: Path, apis: tuple[ClusterApi, ClusterApi]) -> None:
    meant, actual = apis
    tasks = [{"ansible.builtin.import_role": {"name": f"slipway.inference.{role}"}} for role in ROLES]
    values = changed()
    run_tasks(tmp_path, meant, tasks, **{**GIVEN, **values})
    run_tasks(tmp_path, actual, tasks, **{**GIVEN, **{name: text(value) for name, value in values.items()}})

    assert without_ids(actual) == without_ids(meant)
    assert len(meant.objects) > 30
