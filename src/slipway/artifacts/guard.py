"""Guard: which addresses a loader may ask for a file that somebody named in a spec. Pure.

Whoever may write a spec could otherwise have a pod of the cluster ask what only the cluster can: the metadata service
of its cloud, its API server, a neighbour's database. So the addresses of a name are looked at when it is asked, the one
that is connected to among them, and nothing else than public ones is asked unless the operator allows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import msgspec

BLOCKED: tuple[tuple[str, str], ...] = (
    ("0.0.0.0/8", "this host"),
    ("10.0.0.0/8", "a private network"),
    ("100.64.0.0/10", "a provider's network"),
    ("127.0.0.0/8", "this host"),
    ("168.63.129.16/32", "the host of a machine at Azure"),
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
    ("::ffff:0:0:0/96", "an IPv4 address in another form"),
    ("64:ff9b::/96", "an IPv4 address behind a translator"),
    ("64:ff9b:1::/48", "an IPv4 address behind a translator"),
    ("100::/64", "nowhere"),
    ("2001::/23", "reserved"),
    ("2001:db8::/32", "for documents"),
    ("2002::/16", "an IPv4 address behind a relay"),
    ("3fff::/20", "for documents"),
    ("5f00::/16", "a provider's network"),
    ("fc00::/7", "a private network"),
    ("fe80::/10", "the link"),
    ("fec0::/10", "a private network"),
    ("ff00::/8", "a group of hosts"),
)
"""Network -> what it is, the narrower one first."""
METADATA = ("169.254.169.254", "fd00:ec2::254", "100.100.100.200", "192.0.0.192", "168.63.129.16")
"""Where clouds tell a machine what it is, and as whom it may ask them."""
EVERYWHERE = ("0.0.0.0/0", "::/0")
EMBEDDING = (("::/96", 0), ("::ffff:0:0:0/96", 0), ("64:ff9b::/96", 0), ("2002::/16", 80))
"""Networks of IPv6 addresses with an IPv4 address in them, and the bits behind that one."""

HOST = re.compile(r"(\*\.)?\w([\w.-]*[\w.])?")

_V4: tuple[tuple[IPv4Network, str], ...] = tuple((IPv4Network(net), word) for net, word in BLOCKED if "." in net)
_EMBEDDING = tuple((IPv6Network(net), behind) for net, behind in EMBEDDING)
_V6: tuple[tuple[IPv6Network, str], ...] = tuple((IPv6Network(net), word) for net, word in BLOCKED if ":" in net)


class Guard(msgspec.Struct, frozen=True):
    """What the operator allows and refuses beside the rule."""

    allowed: tuple[str, ...] = ()
    """``host``, ``*.domain``, an address, or a network such as ``10.1.0.0/16``."""
    blocked: tuple[str, ...] = ()
    """Networks that are never asked, whatever is allowed: a name that is allowed leads where its owner likes."""
    proxies: bool = False
    """Whether proxies, too, are asked only where this lets them: whoever writes specs chooses them."""

    def refusal(self, host: str, address: str) -> str | None:
        """Why ``address``, to which the name ``host`` leads, is not asked; None: it may be."""
        found = _address(address)
        if found is None:
            return f"{address!r} is no address"
        word = next((word for one in _forms(found) if (word := self._refused(host, one))), None)
        place = bare(host)
        if word is None:
            return None
        return f"{place} is {word}" if place == str(found) else f"{place} leads to {found}, which is {word}"

    def _refused(self, host: str, address: IPv4Address | IPv6Address) -> str | None:
        word = _blocked(address)
        if any(_holds(_network(rule), address) for rule in self.blocked):
            return word or "in a network that the operator blocks"
        return None if word is None or self._allows(host, address) else word

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


def network_faults(networks: Sequence[str]) -> list[str]:
    """Those that are neither a network nor an address."""
    return [network for network in networks if _network(network.strip()) is None]


def within_reach(guard: Guard | None) -> Guard:
    """``guard``, or one that lets everything pass, without the clouds' metadata services: what asks as a tenant is not
    to be taken for the machine that it runs on."""
    given = guard or Guard(allowed=EVERYWHERE)
    return msgspec.structs.replace(given, blocked=(*given.blocked, *METADATA))


def _matches(rule: str, host: str, address: IPv4Address | IPv6Address) -> bool:
    if rule.startswith("*."):
        return host.endswith(rule[1:])
    network = _network(rule)
    if network is not None:
        return _holds(network, address)
    return rule.rstrip(".") == host


def _network(text: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(bare(text.strip()), strict=False)
    except ValueError:
        return None


def _holds(network: IPv4Network | IPv6Network | None, address: IPv4Address | IPv6Address) -> bool:
    return network is not None and address.version == network.version and address in network


def _forms(address: IPv4Address | IPv6Address) -> Iterator[IPv4Address | IPv6Address]:
    """The address, and the IPv4 address in it that it leads to."""
    yield address
    for network, behind in _EMBEDDING:
        if address in network and address not in IPv6Network("::/127"):
            yield IPv4Address(int(address) >> behind & 0xFFFFFFFF)


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
