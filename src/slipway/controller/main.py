"""The command ``slipway controller``, which reads the settings, connects, and runs until it receives a signal or loses
leadership."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import sys
from pathlib import Path

import aiohttp
import msgspec

from slipway.apis import DELIVERIES, DESCRIPTIONS
from slipway.apis.labels import RESERVED
from slipway.controller.inputs.caches import Caches
from slipway.controller.inputs.catalogs import Catalogs
from slipway.controller.inputs.demands import Demands
from slipway.controller.inputs.gateways import Gateways
from slipway.controller.loaders.agents import LoaderClients
from slipway.controller.loaders.signing import signing_key
from slipway.controller.metrics.conditions import ConditionsCollector
from slipway.controller.metrics.samples import SamplesCollector
from slipway.controller.reconciling.delivery import Deliveries
from slipway.controller.reconciling.reconciler import Reconciler
from slipway.controller.scaling.autoscaler import Autoscaler
from slipway.controller.scaling.scaled import ScaledResources
from slipway.controller.settings import ControllerSettings, read_settings
from slipway.kube.api.client import Client
from slipway.kube.metrics import Metrics
from slipway.kube.runtime.lease import LeaderElector
from slipway.kube.runtime.manager import Manager
from slipway.kube.writes.events import Recorder

API_SERVER = "KUBERNETES_SERVICE_HOST"
"""Environment variable with the address of the API server's Service. Kubernetes sets it in every pod."""
WATCHES = 32
"""Upper bound of the number of kinds that the controller watches in one namespace."""


def in_cluster(settings: ControllerSettings, api_server: str) -> ControllerSettings:
    """Return the settings with ``::`` as the address of engines if none is set and the API server's Service has an IPv6
    address, which shows that Services primarily use IPv6. Otherwise, return the settings unchanged."""
    if settings.engine_address or ":" not in api_server:
        return settings
    return msgspec.structs.replace(settings, engine_address="::")


def main(argv: list[str]) -> int:
    """Run the controller. Return 0 after a signal, 1 if leadership was lost, and 2 if the settings file is invalid or
    cannot be read."""
    parser = argparse.ArgumentParser(prog="slipway controller", description="Reconcile the models of a cluster.")
    parser.add_argument("--config", type=Path, required=True, help="settings file (YAML)")
    parser.add_argument("--kubeconfig", default="", help="default: the pod's account, $KUBECONFIG or ~/.kube/config")
    options = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    try:
        settings = in_cluster(read_settings(options.config), os.environ.get(API_SERVER, ""))
    except (OSError, ValueError) as error:
        sys.stderr.write(f"slipway controller: {error}\n")
        return 2
    return asyncio.run(run(settings, options.kubeconfig))


async def run(settings: ControllerSettings, kubeconfig: str) -> int:
    metrics = Metrics()
    # Each watch needs its own connection.
    watches = WATCHES * len(settings.namespaces)
    connection = await Client.connect(kubeconfig, metrics=metrics, further_connections=watches)
    lease = settings.leader_election
    elector = LeaderElector(connection, lease.namespace, lease.name, metrics=metrics)
    client = connection.fenced(elector.leading)
    pods = aiohttp.ClientSession()
    agents = LoaderClients(client, pods)
    catalogs = Catalogs(client, settings.system_namespace, settings.sources.blocked_networks)
    manager = _manager(settings, client, elector, pods, agents, catalogs, metrics)
    gc.freeze()  # objects loaded by now live as long as the process, so the garbage collector can skip them
    try:
        return await manager.run()
    finally:
        await agents.close()
        await catalogs.close()
        await pods.close()
        await connection.close()


def _manager(
    settings: ControllerSettings,
    client: Client,
    elector: LeaderElector,
    pods: aiohttp.ClientSession,
    agents: LoaderClients,
    catalogs: Catalogs,
    metrics: Metrics,
) -> Manager:
    """Create everything that runs in the process. ``pods`` is the HTTP session for requests to pods."""
    apis, namespace = settings.chosen(), settings.system_namespace
    caches = Caches(
        client,
        apis,
        settings,
        settings.rules(),
        settings.routed_namespaces,
        namespaces=settings.namespaces,
        pod_managers=settings.pod_managers(),
    )
    recorder = Recorder(client, "slipway-controller", metrics=metrics)
    scaled = ScaledResources()
    gateways = Gateways(client, pods, namespace, settings.gateways)
    demands = Demands(gateways)
    reconcilers = [
        Reconciler(api, client, caches, settings, recorder, agents, scaled, RESERVED, catalogs, demands) for api in apis
    ]
    resources = [reconciler.resources for reconciler in reconcilers]
    metrics.registry.register(ConditionsCollector(resources))
    described = [one for one in DESCRIPTIONS if one.name in {api.name for api in apis}]
    metrics.registry.register(SamplesCollector(described, resources, settings))
    key_namespace = settings.leader_election.namespace

    async def take_key() -> None:
        agents.sign_with(await signing_key(client, key_namespace))

    autoscaler = Autoscaler(client, caches, scaled, gateways, namespace, recorder, metrics)
    deliveries = [
        Deliveries(one, client, caches, settings, recorder, settings.namespaces)
        for one in DELIVERIES
        if one.name in settings.apis
    ]
    delivering = [controller for one in deliveries for controller in one.controllers(settings.workers, metrics)]
    informers = [*caches.informers, gateways.pods, *(informer for one in deliveries for informer in one.informers)]
    for informer in informers:
        informer.on_fault(recorder.record_fault)
    return Manager(
        informers=informers,
        controllers=[*(one.controller(settings.workers, metrics) for one in reconcilers), *delivering],
        elector=elector,
        first=take_key,
        background=[recorder.run, autoscaler.run, demands.run],
        listen=settings.listen,
        metrics=metrics,
    )
