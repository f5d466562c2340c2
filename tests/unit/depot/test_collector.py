"""The time of the registry's last collection is a metric, so that an alert can report missing collections."""

from __future__ import annotations

from slipway.depot.storage.collector import CRON_JOB, Collector
from slipway.kube.objects import Key

from ..kube.conftest import refuse
from .conftest import SYSTEM

NAME = Key(SYSTEM, "slipway-registry-collection")
CREATED = "2026-01-01T00:00:00Z"
SERIES = f'slipway_depot_collected_timestamp_seconds{{namespace="{SYSTEM}"}}'


def shown(metrics) -> list[str]:
    return [line for line in metrics.text().decode().splitlines() if line.startswith("slipway_depot_collected")]


async def test_the_last_collection_that_ended_well_is_shown(server, client, metrics):
    collector = Collector(client, NAME, metrics)
    await collector.refresh()
    assert shown(metrics) == []
    path = CRON_JOB.path(*NAME)
    await server.put(path, metadata={"creationTimestamp": CREATED})
    await collector.refresh()
    assert shown(metrics) == [f"{SERIES} 1.7672256e+09"]
    status = {"lastScheduleTime": "2026-01-03T00:00:00Z", "lastSuccessfulTime": "2026-01-02T00:00:00Z"}
    await server.put(path, metadata={"creationTimestamp": CREATED}, status=status)
    await collector.refresh()
    assert shown(metrics) == [f"{SERIES} 1.767312e+09"]


async def test_known_objects_stay_while_the_api_server_is_unreachable(server, client, metrics):
    collector = Collector(client, NAME, metrics)
    await server.put(CRON_JOB.path(*NAME), metadata={"creationTimestamp": CREATED})
    await collector.refresh()
    before = shown(metrics)
    server.fault("GET", "cronjobs", refuse(500, "InternalError"))
    await collector.refresh()
    assert shown(metrics) == before != []
    await server.remove(CRON_JOB.path(*NAME))
    await collector.refresh()
    assert shown(metrics) == []
