"""``slipway depot``: ``serve`` runs the server until a signal stops it, and ``keys`` creates and renews the server's
keys."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

from slipway.depot.credentials.keys import Names, ensure
from slipway.depot.credentials.signing import Signer
from slipway.depot.handlers.catalog import Catalog
from slipway.depot.handlers.imports import Imports
from slipway.depot.handlers.sweep import Sweeper
from slipway.depot.handlers.tokens import Tokens
from slipway.depot.handlers.uploads import Uploads
from slipway.depot.http import server
from slipway.depot.http.app import Endpoint, application
from slipway.depot.settings import Settings, load
from slipway.depot.storage.collector import Collector
from slipway.depot.storage.models import Models
from slipway.depot.storage.presence import Presence
from slipway.depot.storage.registry import Registry
from slipway.kube.api.client import Client
from slipway.kube.api.errors import ApiError
from slipway.kube.caches.informer import Informer
from slipway.kube.metrics import Metrics
from slipway.kube.objects import Key
from slipway.kube.runtime import health
from slipway.serving.wire import depot_token

log = logging.getLogger(__name__)


def main(argv: list[str]) -> int:
    """Run the command and return its exit status: 0 for success or after a signal, 1 if ``keys`` fails, 2 for invalid
    settings or key files of ``serve``. Raise any later error of ``serve``, or SystemExit if the command line is
    invalid."""
    arguments = _arguments(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    status: int = arguments.run(arguments)
    return status


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="slipway depot", description="Protect the registry of model artifacts.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    serve = commands.add_parser(
        "serve", help="sign registry tokens and accept uploads", description="Serve the depot's APIs."
    )
    serve.add_argument("--config", type=Path, required=True, help="settings file (YAML)")
    serve.set_defaults(run=_serve)
    keys = commands.add_parser(
        "keys",
        help="create the keys of registry and depot, and renew their certificates",
        description="Create missing keys, renew certificates that expire in less than 90 days, and print the changes.",
    )
    keys.add_argument("--namespace", required=True, help="namespace of registry and depot")
    keys.add_argument(
        "--cluster-domain", default="cluster.local", metavar="NAME", help="of the cluster's DNS (default: %(default)s)"
    )
    for service in ("registry", "depot"):
        keys.add_argument(
            f"--{service}-name",
            action="append",
            default=[],
            metavar="NAME",
            help=f"further DNS name or address of the {service} (repeatable)",
        )
    keys.set_defaults(run=_keys)
    for command in (serve, keys):
        command.add_argument(
            "--kubeconfig", default="", help="default: the pod's account, $KUBECONFIG or ~/.kube/config"
        )
    return parser.parse_args(argv)


def _serve(arguments: argparse.Namespace) -> int:
    try:
        settings = load(arguments.config)
        keys = Keys(settings)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"slipway depot: {error}\n")
        return 2
    return asyncio.run(_run(settings, keys, arguments.kubeconfig))


def _keys(arguments: argparse.Namespace) -> int:
    names = Names(
        namespace=arguments.namespace,
        cluster_domain=arguments.cluster_domain,
        registry=tuple(arguments.registry_name),
        depot=tuple(arguments.depot_name),
    )
    try:
        changes = asyncio.run(_ensured(names, arguments.kubeconfig))
    except (ApiError, ValueError) as error:
        sys.stderr.write(f"slipway depot: {error}\n")
        return 1
    sys.stdout.writelines(f"{one}\n" for one in changes)
    return 0


async def _ensured(names: Names, kubeconfig: str) -> list[str]:
    client = await Client.connect(kubeconfig, metrics=Metrics())
    try:
        return await ensure(client, names, datetime.now(UTC))
    finally:
        await client.close()


class Keys:
    """The content of the key directory: certificate, HMAC key and token signer."""

    def __init__(self, settings: Settings) -> None:
        """Read the key files. Raise OSError, or ValueError with the name of an invalid file."""
        self.certificate = server.Certificate(settings.key("tls.crt"), settings.key("tls.key"))
        self.hmac = settings.key("hmac").read_bytes()
        if len(self.hmac) != depot_token.KEY_BYTES:
            raise ValueError(f"{settings.key('hmac')}: a key has {depot_token.KEY_BYTES} bytes")
        pem = settings.key("token.key").read_bytes()
        try:
            self.signer = Signer(pem, issuer=settings.issuer, audience=settings.service, seconds=settings.token_seconds)
        except ValueError as error:
            raise ValueError(f"{settings.key('token.key')}: {error}") from None


async def _run(settings: Settings, keys: Keys, kubeconfig: str) -> int:
    metrics = Metrics()
    ready = False
    async with AsyncExitStack() as stack:
        client = await Client.connect(kubeconfig, metrics=metrics)
        stack.push_async_callback(client.close)
        await stack.enter_async_context(health.serve(settings.operations_listen, ready=lambda: ready, metrics=metrics))
        registry = Registry.connect(settings, keys.signer)
        stack.push_async_callback(registry.close)
        uploads = Uploads(settings, keys.hmac, Models(client, settings, keys.hmac), registry, metrics)
        models = Informer(client, settings.cluster_models)
        collector = Collector(client, Key(settings.namespace, settings.collector), metrics)
        presence = Presence(client, registry, (settings.models, settings.cluster_models))
        tasks = (_wait_for_signal(), collector.run(), presence.run(), uploads.run())
        running = {asyncio.create_task(one) for one in tasks}
        if settings.catalog:
            running.add(asyncio.create_task(models.run()))
        for task in running:
            stack.callback(task.cancel)
        endpoints = [*_build_endpoints(settings, keys, client, models, registry), uploads]
        app = application(endpoints, metrics, at_once=settings.requests_at_once)
        tls = keys.certificate.context
        await stack.enter_async_context(server.serve(app, settings.listen, tls, connections=settings.connections))
        renewal = asyncio.create_task(keys.certificate.run())
        stack.callback(renewal.cancel)
        ready = True
        log.info("serving on %s", settings.listen)
        ended, _unused = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        log.info("stopping")
        ready = False
        uploads.stop()
        for task in ended:
            task.result()  # a task that ends unexpectedly ends the process
    return 0


def _build_endpoints(
    settings: Settings, keys: Keys, client: Client, models: Informer, registry: Registry
) -> list[Endpoint]:
    """Return all endpoints except the one for uploads. ``models`` is the cache of cluster-scoped models."""
    tokens = Tokens(settings, keys.signer, keys.hmac, client)
    source = settings.catalog_sources
    return [
        tokens,
        Sweeper(settings, tokens, client, registry),
        *([Catalog(settings, keys.signer, models)] if settings.catalog else []),
        *([Imports(settings, source, tokens, client)] if source else []),
    ]


async def _wait_for_signal() -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()
