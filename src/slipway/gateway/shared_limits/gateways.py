"""The other gateways that share limits: their reports, and the requests that they may still accept. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from slipway.gateway.shared_limits.usage import Days, Peer, Report, Window

_RETIRED_SECONDS = 70.0
"""Seconds after the last report of a retired gateway for which its use in the last minute still counts."""


class Gateways:
    """The other gateways, and the last report of each."""

    def __init__(self, address: str) -> None:
        self.address = address
        """Address of this gateway."""
        self.peers: dict[str, Peer] = {}
        """Address, ``host:port`` -> last known state of a gateway."""
        self.addresses: tuple[str, ...] = ()
        """Addresses of the other gateways that share the limits."""
        self._retired: list[Peer] = []

    @property
    def number(self) -> int:
        """Number of gateways that share each limit, including this gateway."""
        return len(self.addresses) + 1

    def is_fresh(self, address: str) -> bool:
        """Whether the gateway at ``address`` answered the last request."""
        return address in self.peers and self.peers[address].fresh

    @property
    def fresh(self) -> list[Peer]:
        """Gateways that answered the last request."""
        return [peer for peer in self.peers.values() if peer.fresh]

    @property
    def silent(self) -> frozenset[str]:
        """Addresses of gateways that share the limits, but did not answer the last request."""
        return frozenset(address for address in self.addresses if not self.is_fresh(address))

    def update_peer(self, now: float, address: str, report: Report) -> tuple[Peer, Peer | None]:
        """Return the peer that sent a report, which is a new peer if another process sent it. Also return the previous
        peer at this address if it has another instance ID, and otherwise None."""
        peer, before = self.peers.get(address), None
        if peer is None or (peer.instance, peer.epoch) != (report.instance, report.epoch):
            # A restarted process reports the last minute of the previous process.
            if peer is not None and peer.instance != report.instance:
                before = peer
                self._retire(now, peer)
            peer = self.peers[address] = Peer(report.instance, report.epoch)
        return peer, before

    def set_addresses(self, now: float, addresses: Iterable[str]) -> list[Peer]:
        """Set the other gateways that share the limits. Return the peers that are no longer among them. These are
        retired: if they reported recently, their use in the last minute still counts."""
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
        """Return the windows with a holder's use at the other gateways, including retired gateways. Omit gateways at
        which the holder has no window."""
        windows = (peer.windows.get(holder) for peer in (*self.peers.values(), *self._retired))
        return [window for window in windows if window]

    def all_know(self, version: int) -> bool:
        """Whether the grants of all responding gateways are based on this gateway's changes up to ``version``.

        Otherwise, two gateways could reserve the same remaining requests. Gateways that keep an equal part for this
        gateway are ignored.
        """
        return all(
            peer.acknowledged is None or peer.acknowledged >= version for peer in self.peers.values() if peer.fresh
        )

    @property
    def any_misses_this(self) -> bool:
        """Whether a responding gateway gets no answers from this gateway, and therefore keeps an equal part for it."""
        return any(peer.acknowledged is None for peer in self.peers.values() if peer.fresh)

    def equal_part(self, limit: int, address: str) -> int:
        """Return the equal part of a limit for the gateway at ``address``. The parts of all gateways add up to the
        limit, even if it is smaller than the number of gateways."""
        whole, rest = divmod(limit, self.number)
        return whole + (sum(other < address for other in (self.address, *self.addresses)) < rest)

    def reserved_by_others(self, now: float, holder: str, limit: int, index: int, days: Days) -> int:
        """Return the number of further requests of a holder that the other gateways may accept.

        They have reserved these requests, or do not respond and are assumed to use their equal part. ``index`` is 0 for
        a limit per minute, and 1 for a limit per day.
        """
        total = 0
        for address in self.addresses:
            peer = self.peers.get(address)
            record = peer.records.get(holder) if peer else None
            reserved = record.reserved[index] if record else 0
            if peer is None:
                reserved = self.equal_part(limit, address)
            elif not peer.fresh:
                used = peer.used_last_minute(now, holder) if index == 0 else days.used_by(peer.instance, holder)
                reserved = max(reserved, self.equal_part(limit, address) - used.requests)
            total += reserved
        return total

    def instances_with(self, holder: str, quality: str) -> set[str]:
        """Return the instance IDs of the responding gateways at which a holder's request waits, if ``quality`` is
        ``waiting``, or at which its requests recently arrived, if ``quality`` is ``eager``."""
        records = ((peer.instance, peer.records.get(holder)) for peer in self.peers.values() if peer.fresh)
        return {instance for instance, record in records if record and getattr(record, quality)}
