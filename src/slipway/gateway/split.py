"""Canaries: a share of a backend's requests goes to another backend. Pure: the table in, entries of maps and rules out.

Each request gets the next number of a sequence, and those with a small one go to the canary. Random numbers would
miss the share by more than a point in each sixth series of 5,000 requests. A canary without an endpoint that takes
requests gets none: the request stays where it was, to wait there if need be. Nobody ever waits for a canary.
"""

from __future__ import annotations

from slipway.gateway.table import RoutingTable

SHARES_MAP, CANARIES_MAP = "shares.map", "canaries.map"
_SEQUENCE = "proc.draw"
_LENGTH, _STEP = 997, 616
"""The sequence has each number below the length once before it begins again. The length is a prime, so the same holds
for every second or every hundredth of the numbers, which may be all that one model gets of them. The step is the golden
section of the length: it spreads the numbers of any part of the sequence."""
NOT_MOVED = "!{ var(txn.canary),strcmp(txn.be) eq 0 }"
"""The condition of a request that stayed where its model's id leads."""


def maps(table: RoutingTable) -> dict[str, dict[str, str]]:
    """By backend: how many numbers of the sequence are its canary's, and the name of that one's backend."""
    split = {
        name: (str(round(_LENGTH * backend.route.canary.percent / 100)), backend.canary)
        for name, backend in table.backends.items()
        if backend.route.canary and backend.canary in table.backends
    }
    return {
        SHARES_MAP: {name: numbers for name, (numbers, _unused) in split.items()},
        CANARIES_MAP: {name: canary for name, (_unused, canary) in split.items()},
    }


def start() -> str:
    """Of the section ``global``."""
    return f"    set-var {_SEQUENCE} int(0)"


def rules(run: str) -> str:
    """Rules of the public frontend, once the backend is known and before anything is counted for it."""
    canary, drawn = f"var(txn.be),map_str({run}/{CANARIES_MAP})", f"{{ var(txn.share),sub({_SEQUENCE}) gt 0 }}"
    takes = f"{{ var(txn.canary),lua.servers -m int gt 0 }} !{{ var(txn.canary),map_str({run}/hold.map) -m found }}"
    return f"""\
    http-request set-var(txn.share) var(txn.be),map_str_int({run}/{SHARES_MAP})
    http-request set-var({_SEQUENCE}) var({_SEQUENCE}),add({_STEP}),mod({_LENGTH}) if {{ var(txn.share) -m found }}
    http-request set-var(txn.canary) {canary} if {drawn}
    http-request set-var(txn.be) var(txn.canary) if {takes}"""
