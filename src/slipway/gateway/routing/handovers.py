"""Handovers: changes of the Service to which a model ID leads. Events report a handover at both Services."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from slipway.gateway.routing.table import RoutingTable

_MOST_REMEMBERED = 1000
"""Maximum number of IDs per namespace whose holders are remembered while no Service has the IDs."""
_MOST_LOSERS = 10_000
_MOST_NAMED = 3
"""Maximum number of IDs in a message."""


class Holder(NamedTuple):
    """A Service that has or had a model ID."""

    namespace: str
    service: str
    uid: str

    @property
    def key(self) -> str:
        """Full name of the Service: ``namespace/name``."""
        return f"{self.namespace}/{self.service}"


class Handover(NamedTuple):
    """Model IDs that one Service, the loser, lost to another Service, the winner."""

    loser: Holder
    winner: Holder
    models: tuple[str, ...]

    def message_to_loser(self) -> str:
        """Return the message of the Event at the Service that lost the IDs."""
        return f"{self._ids()} now routed to Service {self.winner.key}. Reserve important IDs with idOwners"

    def message_to_winner(self) -> str:
        """Return the message of the Event at the Service that now has the IDs."""
        return f"{self._ids()} now routed to this Service instead of Service {self.loser.key}"

    def _ids(self) -> str:
        rest = len(self.models) - _MOST_NAMED
        named = ", ".join(self.models[:_MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")
        return f"requests for {named} are"


class Handovers:
    """The last holder of each model ID, even while no Service has the ID. Aliases are not remembered."""

    def __init__(self) -> None:
        self._last: dict[str, Holder] = {}
        self._losers: dict[str, Holder] = {}
        """Model ID -> its last reported loser."""

    def observe(self, table: RoutingTable, uids: Mapping[str, str]) -> list[Handover]:
        """Return the handovers since the last table. Also return a handover for each loser that was recreated and
        claims its ID again, so that the new object gets an Event.

        ``uids`` maps backend names to the UIDs of their Services.
        """
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
        """Return model ID, loser and winner, for each reported loser that was recreated and claims its ID again."""
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
