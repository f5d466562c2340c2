"""A file as the source of table and keys: for tests, benchmarks and gateways outside a cluster."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import msgspec

from slipway.gateway.control import Control
from slipway.gateway.table import Backend, Card, RoutingTable
from slipway.serving.route import Route

_FILE_SECONDS = 0.1


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model whose route says more than its endpoints."""

    endpoints: tuple[str, ...] = ()
    route: Route = Route()


class Static(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table in a JSON file: endpoints (``host:port``) by model, or a Model; and API keys by name."""

    models: dict[str, tuple[str, ...] | Model]
    keys: dict[str, str] = {}

    def table(self) -> RoutingTable:
        """As if each model were a Service of the namespace ``static``."""
        models = {name: model if isinstance(model, Model) else Model(model) for name, model in self.models.items()}
        backends = [Backend("static", name, tuple(sorted(m.endpoints)), m.route) for name, m in models.items()]
        owners = {name: b for b in backends for name in (b.service, f"static/{b.service}")}
        cards = {
            name: Card(name, 0, "slipway", "static", features=b.route.features, labels=b.route.labels)
            for name, b in owners.items()
        }
        ids = {name: b.name for name, b in owners.items()}
        return RoutingTable({b.name: b for b in backends}, ids, cards, tuple(sorted(self.models)))

    def hashes(self) -> tuple[tuple[str, str], ...]:
        """Of the keys, as keys.hashes gives them."""
        return tuple(
            sorted((hashlib.sha256(key.encode()).hexdigest().upper(), name) for name, key in self.keys.items())
        )


class File:
    """A static table; a changed file is taken at once."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def run(self, control: Control) -> None:
        """Feeds `control` until cancelled."""
        self._take(control)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(control.run())
            before = b""
            while True:
                text = self._path.read_bytes()
                if text != before:
                    self._take(control)
                    before = text
                await asyncio.sleep(_FILE_SECONDS)

    def _take(self, control: Control) -> None:
        static = msgspec.json.decode(self._path.read_bytes(), type=Static)
        control.admit(static.hashes())
        control.route(static.table())
