"""A metric with the time at which the registry's garbage collector, a CronJob, last freed storage."""

from __future__ import annotations

import asyncio
import logging

from prometheus_client import Gauge

from slipway.decoding import describe_error
from slipway.kube.api.client import Client
from slipway.kube.api.errors import ApiError, NotFoundError
from slipway.kube.metrics import Metrics
from slipway.kube.objects import Key, Kind, Object, created_unix
from slipway.kube.values.times import unix_time

log = logging.getLogger(__name__)

CRON_JOB = Kind("batch", "v1", "CronJob", "cronjobs")
LOOK_SECONDS = 60.0


def collected(cron_job: Object) -> float:
    """Return the time of the last successful collection in Unix seconds. If there was none, return the CronJob's
    creation time."""
    last = (cron_job.get("status") or {}).get("lastSuccessfulTime")
    return unix_time(last) if last else float(created_unix(cron_job))


class Collector:
    """A task that reads the CronJob every minute and updates the metric. If there is no CronJob, for example for a
    registry that Slipway did not install, there is no metric."""

    def __init__(self, client: Client, name: Key, metrics: Metrics) -> None:
        self._client, self._name = client, name
        self._gauge = Gauge(
            "slipway_depot_collected_timestamp_seconds",
            "Time of the registry's last successful collection. Initially, the time of the installation.",
            ["namespace"],
            registry=metrics.registry,
        )

    async def run(self) -> None:
        """Update the metric every minute, until the task is cancelled."""
        while True:
            await self.refresh()
            await asyncio.sleep(LOOK_SECONDS)

    async def refresh(self) -> None:
        """Update the metric once, or remove it if there is no CronJob. After a failure, log it and keep the last
        value."""
        try:
            cron_job = await self._client.get(CRON_JOB, self._name)
            self._gauge.labels(self._name.namespace).set(collected(cron_job))
        except NotFoundError:
            self._gauge.clear()
        except (ApiError, ValueError) as error:
            log.warning("could not read the CronJob %s: %s", self._name, describe_error(error))
