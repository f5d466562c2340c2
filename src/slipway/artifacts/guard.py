"""Guard: which addresses a loader may ask for a file that somebody named in a spec. Pure.

Whoever may write a spec could otherwise have a pod of the cluster ask what only the cluster can: the metadata service
of its cloud, its API server, a neighbour's database. So the addresses of a name are looked at when it is asked, the one
that is connected to among them, and nothing else than public ones is asked unless the operator allows it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import msgspec

BLOCKED: tuple[tuple[str, str], ...] = (
    ("0.0.0.0/8", "this host"),
    ("10.0.0.0/8", "a private network"),
    ("100.64.0.0/10", "a provider's network"),
    ("127.0.0.0/8", "this host"),
    ("169.254.0.0/16", "the link, where clouds have their metadata"),
    ("172.16.0.0/12", "a private network"),
    ("192.0.0.0/24", "reserved"),
    ("192.0.2.0/24", "for documents"),
    ("192.88.99.0/24", "a relay"),
    ("192.168.0.0/16", "a private network"),
    ("198.18.0.0/15", "for benchmarks"),
    ("198.51.100.0/24", "for documents"),
    ("203.0.113.0/24", "for documents"),
    ("224.0.0.0/4", "a group of hosts"),
    ("240.0.0.0/4", "reserved"),
    ("::/127", "this host"),
    ("::/96", "an IPv4 address in another form"),
    ("64:ff9b::/96", "an IPv4 address behind a translator"),
    ("64:ff9b:1::/48", "an IPv4 address behind a translator"),
    ("100::/64", "nowhere"),
    ("2001::/23", "reserved"),
    ("2001:db8::/32", "for documents"),
    ("2002::/16", "an IPv4 address behind a relay"),
    ("fc00::/7", "a private network"),
    ("fe80::/10", "the link"),
    ("fec0::/10", "a private network"),
    ("ff00::/8", "a group of hosts"),
)
"""Network -> what it is, the narrower one first."""

HOST = re.compile(r"(\*\.)?\w([\w.-]*[\w.])?")

_V4: tuple[tuple[IPv4Network, str], ...] = tuple((IPv4Network(net), word) for net, word in BLOCKED if "." in net)
_V6: tuple[tuple[IPv6Network, str], ...] = tuple((IPv6Network(net), word) for net, word in BLOCKED if ":" in net)


class Guard(msgspec.Struct, frozen=True):
    """The operator's exceptions: ``host``, ``*.domain``, an address, or a network such as ``10.1.0.0/16``."""

    allowed: tuple[str, ...] = ()

    def refusal(self, host: str, address: str) -> str | None:
        """Why ``address``, to which the name ``host`` leads, is not asked; None: it may be."""
        found = _address(address)
        if found is None:
            return f"{address!r} is no address"
        word = _blocked(found)
        if word is None or self._allows(host, found):
            return None
        place = bare(host)
        return f"{place} is {word}" if place == str(found) else f"{place} leads to {found}, which is {word}"

    def refusal_of_name(self, host: str) -> str | None:
        """The same of a host that is an address itself, as far as it shows before anybody asks."""
        return self.refusal(host, bare(host)) if _address(bare(host)) else None

    def _allows(self, host: str, address: IPv4Address | IPv6Address) -> bool:
        return any(_matches(rule.strip().lower(), bare(host), address) for rule in self.allowed)


def bare(host: str) -> str:
    """A host as it is compared: without brackets, the final dot and capitals."""
    return host.removeprefix("[").removesuffix("]").rstrip(".").lower()


def faults(rules: Sequence[str]) -> list[str]:
    """Those of the exceptions that say nothing that can be meant."""
    return [rule for rule in rules if not (HOST.fullmatch(rule.strip()) or _network(rule.strip()))]


def _matches(rule: str, host: str, address: IPv4Address | IPv6Address) -> bool:
    if rule.startswith("*."):
        return host.endswith(rule[1:])
    network = _network(rule)
    if network is not None:
        return address.version == network.version and address in network
    return rule.rstrip(".") == host


def _network(text: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(bare(text), strict=False)
    except ValueError:
        return None


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """Without a zone. An IPv4 address that is mapped into IPv6 is the IPv4 address, as the system connects to that."""
    try:
        found = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found


def _blocked(address: IPv4Address | IPv6Address) -> str | None:
    if isinstance(address, IPv4Address):
        return next((word for network, word in _V4 if address in network), None)
    return next((word for network, word in _V6 if address in network), None)
