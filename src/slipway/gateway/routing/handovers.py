"""Handovers: ids that now lead to another Service, so that no id changes hands unnoticed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from slipway.gateway.routing.table import RoutingTable

_MOST_REMEMBERED = 1000
"""Ids of one namespace that are remembered while nobody has them. A namespace cannot have others' forgotten."""
_MOST_LOST = 10_000
_MOST_NAMED = 3
"""Ids that a message names."""


class Holder(NamedTuple):
    """A Service that has or had an id."""

    namespace: str
    service: str
    uid: str

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.service}"


class Handover(NamedTuple):
    """Ids that a Service lost to another one."""

    loser: Holder
    winner: Holder
    models: tuple[str, ...]

    def message_to_loser(self) -> str:
        """The Event for the Service that lost them."""
        return f"{self._ids()} now routed to Service {self.winner.key}. Reserve important IDs with idOwners"

    def message_to_winner(self) -> str:
        """The Event for the Service that has them now."""
        return f"{self._ids()} now routed to this Service instead of Service {self.loser.key}"

    def _ids(self) -> str:
        rest = len(self.models) - _MOST_NAMED
        named = ", ".join(self.models[:_MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")
        return f"requests for {named} are"


class Handovers:
    """Remembers who had each id last, also while nobody has it. Who answers for an alias has no claim to it."""

    def __init__(self) -> None:
        self._last: dict[str, Holder] = {}
        self._lost: dict[str, Holder] = {}
        """Who lost each id last, as reported."""

    def observe(self, table: RoutingTable, uids: Mapping[str, str]) -> list[Handover]:
        """What changed hands since the last table. `uids`: of the Services, by the names of their backends."""
        holders = {
            name: Holder(backend.namespace, backend.service, uids.get(name, ""))
            for name, backend in table.backends.items()
        }
        moved: dict[tuple[Holder, Holder], list[str]] = {}
        for model, name in table.models.items():
            before, now = self._last.pop(model, None), holders[name]
            if model not in table.aliases:
                self._last[model] = now
            if before is not None and before.key != now.key:
                loser = holders.get(f"{before.namespace}:{before.service}", before)
                moved.setdefault((loser, now), []).append(model)
                self._lost[model] = loser
        for model, loser, winner in self._find_recreated(table, holders):
            moved.setdefault((loser, winner), []).append(model)
            self._lost[model] = loser
        self._trim(table)
        return [Handover(loser, winner, tuple(models)) for (loser, winner), models in moved.items()]

    def _find_recreated(self, table: RoutingTable, holders: Mapping[str, Holder]) -> list[tuple[str, Holder, Holder]]:
        """Losers that were deleted when it was reported, and now exist again and ask for their ids."""
        claims = []
        for model, loser in list(self._lost.items()):
            name, winner = f"{loser.namespace}:{loser.service}", table.models.get(model)
            if winner == name:
                del self._lost[model]
            elif winner and name in holders and holders[name] != loser and model in table.backends[name].route.models:
                claims.append((model, holders[name], holders[winner]))
        return claims

    def _trim(self, table: RoutingTable) -> None:
        away: dict[str, list[str]] = {}
        for model, holder in self._last.items():
            if model not in table.models:
                away.setdefault(holder.namespace, []).append(model)
        for models in away.values():
            for model in models[: max(0, len(models) - _MOST_REMEMBERED)]:
                del self._last[model]
        for model in list(self._lost)[: max(0, len(self._lost) - _MOST_LOST)]:
            del self._lost[model]
