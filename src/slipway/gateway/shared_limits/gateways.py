"""The other gateways: which of them count, what they reported, and what they may still accept. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from slipway.gateway.shared_limits.usage import Days, Peer, Report, Window

_RETIRED_SECONDS = 70.0
"""How long the last minute of a gateway that has gone counts."""


class Gateways:
    """All gateways but this one."""

    def __init__(self, address: str) -> None:
        self.address = address
        """Of this gateway."""
        self.peers: dict[str, Peer] = {}
        """By address."""
        self.addresses: tuple[str, ...] = ()
        """Of those that count."""
        self._retired: list[Peer] = []

    @property
    def number(self) -> int:
        """How many gateways share each limit."""
        return len(self.addresses) + 1

    def is_fresh(self, address: str) -> bool:
        """Whether a gateway answered the last time."""
        return address in self.peers and self.peers[address].fresh

    @property
    def fresh(self) -> list[Peer]:
        """Those that answered the last time."""
        return [peer for peer in self.peers.values() if peer.fresh]

    @property
    def silent(self) -> frozenset[str]:
        """Addresses of those that count, and did not answer the last time."""
        return frozenset(address for address in self.addresses if not self.is_fresh(address))

    def update_peer(self, now: float, address: str, report: Report) -> tuple[Peer, Peer | None]:
        """The peer that reports, and one that it has replaced, if any."""
        peer, before = self.peers.get(address), None
        if peer is None or (peer.instance, peer.epoch) != (report.instance, report.epoch):
            # A restarted process reports the last minute of the previous one.
            if peer is not None and peer.instance != report.instance:
                before = peer
                self._retire(now, peer)
            peer = self.peers[address] = Peer(report.instance, report.epoch)
        return peer, before

    def set_addresses(self, now: float, addresses: Iterable[str]) -> list[Peer]:
        """Takes over which gateways count. Returns those that no longer do, whose last minute still counts."""
        self.addresses = tuple(addresses)
        ended = [self.peers.pop(address) for address in self.peers.keys() - set(self.addresses)]
        for peer in ended:
            self._retire(now, peer)
        self._retired = [peer for peer in self._retired if now - peer.reported_at <= _RETIRED_SECONDS]
        return ended

    def _retire(self, now: float, peer: Peer) -> None:
        peer.fresh = False
        if now - peer.reported_at <= _RETIRED_SECONDS:
            self._retired.append(peer)

    def windows(self, holder: str) -> list[Window]:
        """What they used in the last minute, also those that have gone."""
        windows = (peer.windows.get(holder) for peer in (*self.peers.values(), *self._retired))
        return [window for window in windows if window]

    def all_know(self, version: int) -> bool:
        """Whether all know what was changed here up to a version, and the answers show what they then did.

        Otherwise two gateways could reserve the same rest. Those that keep an equal part for this one need not know.
        """
        return all(
            peer.acknowledged is None or peer.acknowledged >= version for peer in self.peers.values() if peer.fresh
        )

    @property
    def any_misses_this(self) -> bool:
        """Whether one of them hears nothing from this gateway, and therefore keeps an equal part for it."""
        return any(peer.acknowledged is None for peer in self.peers.values() if peer.fresh)

    def equal_part(self, limit: int, address: str) -> int:
        """The equal part of a gateway. All parts together are the limit, also where it is smaller than their number."""
        whole, rest = divmod(limit, self.number)
        return whole + (sum(other < address for other in (self.address, *self.addresses)) < rest)

    def reserved_by_others(self, now: float, holder: str, limit: int, index: int, days: Days) -> int:
        """Requests that they may accept beside what they have used: they reserved them, or do not answer.

        `index`: 0 for a limit per minute, 1 for one per day.
        """
        taken = 0
        for address in self.addresses:
            peer = self.peers.get(address)
            record = peer.records.get(holder) if peer else None
            reserved = record.reserved[index] if record else 0
            if peer is None:
                reserved = self.equal_part(limit, address)
            elif not peer.fresh:
                used = peer.used_last_minute(now, holder) if index == 0 else days.used_by(peer.instance, holder)
                reserved = max(reserved, self.equal_part(limit, address) - used.requests)
            taken += reserved
        return taken

    def instances_with(self, holder: str, quality: str) -> set[str]:
        """Gateways where a holder's requests wait (`waiting`), or arrived a moment ago (`eager`)."""
        records = ((peer.instance, peer.records.get(holder)) for peer in self.peers.values() if peer.fresh)
        return {instance for instance, record in records if record and getattr(record, quality)}
