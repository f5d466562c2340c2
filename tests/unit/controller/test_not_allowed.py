"""What an author may not have is refused before anything is written, and what serves goes on serving."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from slipway.apis.kubeai import KUBEAI
from slipway.apis.kubeai.types import KIND
from slipway.kube.objects import DEPLOYMENT, SERVICE
from slipway.serving.contract.settings import Settings

from .conftest import apply_kubeai_model, controlled


@pytest.fixture
async def running(client, session, start, request) -> AsyncIterator[None]:
    """A controller for Models of KubeAI whose system namespace is the parameter."""
    async with controlled(KUBEAI, client, session, start, Settings(system_namespace=request.param)):
        yield


def accepted(cluster):
    conditions = (cluster.find(KIND) or {}).get("status", {}).get("conditions") or []
    return next(((one["status"], one["reason"]) for one in conditions if one["type"] == "Accepted"), None)


@pytest.mark.parametrize("running", ["models"], indirect=True)
async def test_nothing_is_made_in_the_system_namespace(server, cluster, running, eventually):
    await apply_kubeai_model(server, cluster)
    await eventually(lambda: accepted(cluster) == ("False", "NotAllowed"))
    assert (cluster.find(DEPLOYMENT, "model-a"), cluster.find(SERVICE, "model-a")) == (None, None)
    written = [one.path for one in server.log if one.method in ("PATCH", "POST", "PUT", "DELETE")]
    assert [path for path in written if "/events" not in path] == [f"{cluster.path(KIND, 'a')}/status"]


@pytest.mark.parametrize("running", ["system"], indirect=True)
async def test_objects_of_the_last_valid_spec_stay(server, cluster, running, eventually):
    await apply_kubeai_model(server, cluster)
    await eventually(lambda: accepted(cluster) == ("True", "Valid"))
    deployment = cluster.get(DEPLOYMENT, "model-a")
    await apply_kubeai_model(server, cluster, priorityClassName="system-node-critical", args=["--seed", "1"])
    await eventually(lambda: accepted(cluster) == ("False", "NotAllowed"))
    assert cluster.get(DEPLOYMENT, "model-a") == deployment
    await apply_kubeai_model(server, cluster, priorityClassName="mine")
    await eventually(lambda: accepted(cluster) == ("True", "Valid"))
    assert cluster.get(DEPLOYMENT, "model-a")["spec"]["template"]["spec"]["priorityClassName"] == "mine"
