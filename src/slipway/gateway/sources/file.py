"""A file as the source of the routing table and of the API keys, for tests, benchmarks and gateways outside a
cluster."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import msgspec

from slipway.gateway.routing.keys import Rights
from slipway.gateway.routing.table import Backend, Card, Publish, RoutingTable, Snapshot
from slipway.serving.routing.route import Route
from slipway.serving.status.unready import Unready

_FILE_SECONDS = 0.1


class ModelEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model with its endpoints and its route, or the reason why it is not ready."""

    endpoints: tuple[str, ...] = ()
    route: Route = Route()
    unready: Unready | None = None


class TableFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of the JSON file. ``models`` maps model IDs to endpoints (``host:port``) or a ``ModelEntry``, and
    ``keys`` and ``rights`` map names to API keys and their rights."""

    models: dict[str, tuple[str, ...] | ModelEntry]
    keys: dict[str, str] = {}
    refused: dict[str, str] = {}
    """ID of a rejected model -> reason of the rejection."""
    rights: dict[str, Rights] = {}
    gateways: tuple[str, ...] = ()
    """``host:port`` of each gateway's exchange."""

    def table(self) -> RoutingTable:
        """Return the routing table, in which each model is a Service in the namespace ``static``."""
        models = {
            name: model if isinstance(model, ModelEntry) else ModelEntry(model) for name, model in self.models.items()
        }
        backends = [
            Backend("static", name, tuple(sorted(m.endpoints)), m.route, m.unready) for name, m in models.items()
        ]
        named = [b for b in backends if not b.route.internal]
        aliases = {alias: b for b in reversed(named) for alias in b.route.aliases}
        owners = aliases | {name: b for b in named for name in (b.service, f"static/{b.service}")}
        cards = {
            name: Card(name, 0, "slipway", "static", features=b.route.features, labels=b.route.labels)
            for name, b in owners.items()
        }
        ids = {name: b.name for name, b in owners.items()}
        listed = tuple(sorted(b.service for b in named))
        return RoutingTable({b.name: b for b in backends}, ids, cards, listed, refused=self.refused)

    def hash_keys(self) -> tuple[tuple[str, str], ...]:
        """Return the upper-case SHA-256 and the name of each API key."""
        return tuple(
            sorted((hashlib.sha256(key.encode()).hexdigest().upper(), name) for name, key in self.keys.items())
        )


class FileSource:
    """A source that reads the routing table from a file, and reads it again after each change."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def run(self, publish: Publish) -> None:
        """Publish the table and the keys in the file, at once and after each change, until cancelled.

        Raise OSError or msgspec.DecodeError if the file cannot be read or parsed.
        """
        before: bytes | None = None
        while True:
            text = self._path.read_bytes()
            if text != before:
                file = msgspec.json.decode(text, type=TableFile)
                publish(Snapshot(file.table(), file.hash_keys(), file.rights, dict.fromkeys(file.gateways, True)))
                before = text
            await asyncio.sleep(_FILE_SECONDS)
