"""The role depot: what its pods read, and what it may do."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from slipway.apis.deckhouse.settings import deckhouse
from slipway.depot.settings import parse_settings
from slipway.serving.contract.settings import Settings

from ..network_policy import ALL, PROMETHEUS, who
from .rendering import Rendered
from .test_network_policies import policy

CATALOG = {"depot_catalog": "public", "depot_catalog_secrets": ["headquarters"], "depot_registry_ca": "PEM"}


def rendered(name: str, **given: Any) -> Any:
    return Rendered("depot", **given)[name]


def test_every_mount_has_its_volume() -> None:
    for given in ({}, CATALOG):
        mounted = {mount["name"] for mount in rendered("__depot_container", **given)["volumeMounts"]}
        volumes = {volume["name"] for volume in rendered("__depot_volumes", **given)}
        assert mounted - {"config", "token"} == volumes


def test_secrets_are_read_by_their_names_alone() -> None:
    assert rendered("__depot_namespace_rules") == [rendered("__depot_collector_rule")]
    [_collector, secrets] = rendered("__depot_namespace_rules", **CATALOG)
    assert (secrets["resources"], secrets["resourceNames"]) == (["secrets"], ["headquarters"])
    everywhere = [resource for rule in rendered("__depot_cluster_rules") for resource in rule["resources"]]
    assert "secrets" not in everywhere


def test_every_client_reaches_the_depot_and_only_prometheus_its_metrics() -> None:
    network_policy = policy("depot")
    assert who(network_policy, 8443) == ALL
    assert who(network_policy, 8081) == {PROMETHEUS}


def test_settings_say_what_was_given_and_nothing_else() -> None:
    usual = rendered("__depot_settings")
    assert usual["registry"] == "slipway-registry.slipway-system.svc:5000"
    assert not {"catalog", "catalogSource", "registryCa", "blockedNetworks"} & set(usual)
    settings = rendered("__depot_settings", **CATALOG, depot_registry="r:1")
    assert (settings["catalog"], settings["registry"]) == ("public", "r:1")
    assert settings["catalogSource"]["plural"] == "modelcatalogsources"


@pytest.mark.parametrize(
    ("given", "limit", "share"),
    [
        ({}, "100Gi", 90),
        ({"controller_deckhouse_config": {"image": True}}, "100Gi", 90),
        ({"controller_deckhouse_config": {"image": False}}, "100Gi", 90),
        ({"model_registry_size": "1Ti"}, "1Ti", 90),
        ({"depot_capacity_limit": "5Gi", "depot_namespace_share": "25"}, "5Gi", 25),
        ({"model_registry_external": "r:1"}, "", 90),
        ({"model_registry_claim": "mine"}, "", 90),
        ({"model_registry_s3": {"bucket": "b", "secret": "s"}}, "", 90),
    ],
)
def test_depot_and_controller_have_the_same_limits(given: dict[str, Any], limit: str, share: int) -> None:
    depot = parse_settings(rendered("__depot_settings", **given))
    role = Rendered("controller", slipway_apis=["deckhouse"], **given)
    own = role["__controller_deckhouse"] | given.get("controller_deckhouse_config", {})
    controller = deckhouse(msgspec.convert({"apis": {"deckhouse": own}}, Settings))
    assert (depot.capacity_limit, depot.namespace_share) == (limit, share)
    assert (controller.capacity_limit, controller.namespace_share) == (limit, share)
    assert depot.copies == controller.copies == (2 if own.get("image") else 1)
