"""Handovers: IDs that now lead to another Service. They are reported to both Services."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from slipway.gateway.routing.table import RoutingTable

_MOST_REMEMBERED = 1000
"""IDs of one namespace that are remembered while no Service has them. The limit is separate for each namespace."""
_MOST_LOSERS = 10_000
_MOST_NAMED = 3
"""IDs listed in a message."""


class Holder(NamedTuple):
    """A Service that has or had an ID."""

    namespace: str
    service: str
    uid: str

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.service}"


class Handover(NamedTuple):
    """IDs that a Service lost to another one."""

    loser: Holder
    winner: Holder
    models: tuple[str, ...]

    def message_to_loser(self) -> str:
        """Returns the Event's message for the Service that lost the IDs."""
        return f"{self._ids()} now routed to Service {self.winner.key}. Reserve important IDs with idOwners"

    def message_to_winner(self) -> str:
        """Returns the Event's message for the Service that has them now."""
        return f"{self._ids()} now routed to this Service instead of Service {self.loser.key}"

    def _ids(self) -> str:
        rest = len(self.models) - _MOST_NAMED
        named = ", ".join(self.models[:_MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")
        return f"requests for {named} are"


class Handovers:
    """Remembers the last holder of each ID, even while no Service has it. Aliases are not remembered."""

    def __init__(self) -> None:
        self._last: dict[str, Holder] = {}
        self._losers: dict[str, Holder] = {}
        """The last reported loser of each ID."""

    def observe(self, table: RoutingTable, uids: Mapping[str, str]) -> list[Handover]:
        """Returns the handovers since the last table. ``uids``: UIDs of the Services, by backend name."""
        holders = {
            name: Holder(backend.namespace, backend.service, uids.get(name, ""))
            for name, backend in table.backends.items()
        }
        changes: dict[tuple[Holder, Holder], list[str]] = {}
        for model, name in table.models.items():
            before, now = self._last.pop(model, None), holders[name]
            if model not in table.aliases:
                self._last[model] = now
            if before is not None and before.key != now.key:
                loser = holders.get(f"{before.namespace}:{before.service}", before)
                changes.setdefault((loser, now), []).append(model)
                self._losers[model] = loser
        for model, loser, winner in self._find_recreated(table, holders):
            changes.setdefault((loser, winner), []).append(model)
            self._losers[model] = loser
        self._trim(table)
        return [Handover(loser, winner, tuple(models)) for (loser, winner), models in changes.items()]

    def _find_recreated(self, table: RoutingTable, holders: Mapping[str, Holder]) -> list[tuple[str, Holder, Holder]]:
        """Returns ID, loser and winner for each reported loser that has been recreated and claims its ID again."""
        claims = []
        for model, loser in list(self._losers.items()):
            name, winner = f"{loser.namespace}:{loser.service}", table.models.get(model)
            if winner == name:
                del self._losers[model]
            elif winner and name in holders and holders[name] != loser and model in table.backends[name].route.models:
                claims.append((model, holders[name], holders[winner]))
        return claims

    def _trim(self, table: RoutingTable) -> None:
        unrouted: dict[str, list[str]] = {}
        for model, holder in self._last.items():
            if model not in table.models:
                unrouted.setdefault(holder.namespace, []).append(model)
        for models in unrouted.values():
            for model in models[: max(0, len(models) - _MOST_REMEMBERED)]:
                del self._last[model]
        for model in list(self._losers)[: max(0, len(self._losers) - _MOST_LOSERS)]:
            del self._losers[model]
