"""The ScaledObjects for KEDA, and values that KEDA would reject."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from slipway.apis.ome.components.keda import Trigger, scaled_object
from slipway.kube.objects import DEPLOYMENT
from slipway.serving.contract.settings import PROMETHEUS_SERVER
from slipway.serving.pods.server import Scale
from slipway.serving.pods.workload import Rollout
from tests import documents
from tests.schemas import faults, schema_of

ROLLOUT = Rollout(
    name="chat-engine", namespace="models", labels={"a": "b"}, selector={}, scale=Scale(None), startup_seconds=60
)
TRIGGER = Trigger(query="sum(up)", metric="tps")
NAMED = msgspec.structs.replace(
    TRIGGER,
    authentication={"name": "prometheus", "kind": "ClusterTriggerAuthentication"},
    auth_modes="basic, tls",
)
DEFINITION = Path(__file__).parents[3] / "cluster/manifests/keda/scaledobjects.yaml"


def test_a_workload_follows_a_query() -> None:
    manifest = scaled_object("scaledobject-chat-engine", ROLLOUT, DEPLOYMENT, 1, 4, TRIGGER)
    assert manifest["metadata"] == {"name": "scaledobject-chat-engine", "namespace": "models", "labels": {"a": "b"}}
    spec = manifest["spec"]
    assert spec["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat-engine"}
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (1, 4)
    [trigger] = spec["triggers"]
    assert trigger == {
        "type": "prometheus",
        "metadata": {
            "serverAddress": PROMETHEUS_SERVER,
            "metricName": "tps",
            "query": "sum(up)",
            "threshold": "10",
            "operator": "LessThanOrEqual",
        },
    }


@pytest.mark.parametrize("trigger", [TRIGGER, NAMED], ids=["plain", "named"])
def test_kedas_own_definition_takes_what_is_made(trigger: Trigger) -> None:
    manifest = scaled_object("scaledobject-chat-engine", ROLLOUT, DEPLOYMENT, 1, 4, trigger)
    assert faults(schema_of(documents.read(DEFINITION)), manifest) == []


def test_credentials_are_named_and_never_held() -> None:
    [trigger] = scaled_object("x", ROLLOUT, DEPLOYMENT, 1, 4, NAMED)["spec"]["triggers"]
    assert trigger["authenticationRef"] == {"name": "prometheus", "kind": "ClusterTriggerAuthentication"}
    assert trigger["metadata"]["authModes"] == "basic, tls"


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({}, ""),
        ({"threshold": "-0.5e3"}, ""),
        ({"operator": "Equal"}, "operator 'Equal'"),
        ({"threshold": "ten"}, "threshold 'ten'"),
        ({"threshold": "nan"}, "threshold 'nan'"),
        ({"server": "ftp://prometheus"}, "not a Prometheus URL"),
        ({"server": "http://"}, "not a Prometheus URL"),
        ({"server": "http://[x"}, "not a Prometheus URL"),
        ({"auth_modes": "basic,none"}, "'none'"),
    ],
)
def test_values_that_keda_would_reject_are_reported(fields: dict[str, str], fault: str) -> None:
    message = msgspec.structs.replace(TRIGGER, **fields).fault()
    assert fault in message
    assert bool(message) == bool(fault)
