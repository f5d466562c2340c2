"""Address policy: the addresses to which a loader may connect for a URL in a spec. Protects against server-side request
forgery. Pure.

Without the policy, an author could make a pod connect to services that only the cluster can reach: the cloud's metadata
service, the API server, another tenant's database. The loader therefore checks every address of a name when it
connects. Only public addresses are allowed unless the operator allows others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import msgspec

BLOCKED: tuple[tuple[str, str], ...] = (
    ("0.0.0.0/8", "this host"),
    ("10.0.0.0/8", "a private address"),
    ("100.64.0.0/10", "shared by a provider's customers"),
    ("127.0.0.0/8", "this host"),
    ("168.63.129.16/32", "an Azure host service"),
    ("169.254.0.0/16", "link-local, where clouds serve metadata"),
    ("172.16.0.0/12", "a private address"),
    ("192.0.0.0/24", "reserved"),
    ("192.0.2.0/24", "reserved for documentation"),
    ("192.88.99.0/24", "a 6to4 relay"),
    ("192.168.0.0/16", "a private address"),
    ("198.18.0.0/15", "reserved for benchmarks"),
    ("198.51.100.0/24", "reserved for documentation"),
    ("203.0.113.0/24", "reserved for documentation"),
    ("224.0.0.0/4", "a multicast address"),
    ("240.0.0.0/4", "reserved"),
    ("::/127", "this host"),
    ("::/96", "an embedded IPv4 address"),
    ("::ffff:0:0:0/96", "an embedded IPv4 address"),
    ("64:ff9b::/96", "an IPv4 address behind NAT64"),
    ("64:ff9b:1::/48", "an IPv4 address behind NAT64"),
    ("100::/64", "the discard prefix"),
    ("2001::/23", "reserved"),
    ("2001:db8::/32", "reserved for documentation"),
    ("2002::/16", "an IPv4 address behind 6to4"),
    ("3fff::/20", "reserved for documentation"),
    ("5f00::/16", "shared by a provider's customers"),
    ("fc00::/7", "a private address"),
    ("fe80::/10", "link-local"),
    ("fec0::/10", "a private address"),
    ("ff00::/8", "a multicast address"),
)
"""Network -> its description, narrower networks first."""
METADATA = ("169.254.169.254", "fd00:ec2::254", "100.100.100.200", "192.0.0.192", "168.63.129.16")
"""Addresses of cloud metadata services, which return the machine's credentials."""
EVERYWHERE = ("0.0.0.0/0", "::/0")
EMBEDDING = (("::/96", 0), ("::ffff:0:0:0/96", 0), ("64:ff9b::/96", 0), ("2002::/16", 80))
"""IPv6 networks whose addresses contain an IPv4 address, and the number of bits after the IPv4 address."""

HOST = re.compile(r"(\*\.)?\w([\w.-]*[\w.])?")

_V4: tuple[tuple[IPv4Network, str], ...] = tuple((IPv4Network(net), word) for net, word in BLOCKED if "." in net)
_EMBEDDING = tuple((IPv6Network(net), behind) for net, behind in EMBEDDING)
_V6: tuple[tuple[IPv6Network, str], ...] = tuple((IPv6Network(net), word) for net, word in BLOCKED if ":" in net)


class AddressPolicy(msgspec.Struct, frozen=True):
    """The rule that only public addresses are allowed, with the operator's exceptions and further blocked networks."""

    allowed: tuple[str, ...] = ()
    """Allowed destinations: ``host``, ``*.domain``, an address, or a network such as ``10.1.0.0/16``."""
    blocked: tuple[str, ...] = ()
    """Networks and addresses that are refused even for allowed destinations, because the owner of a name decides about
    its addresses."""
    proxies: bool = False
    """Whether the policy also applies to proxies, because specs can choose them."""

    def refusal(self, host: str, address: str) -> str | None:
        """Return the reason to refuse ``address``, to which ``host`` resolves. Return None if it is allowed."""
        ip = _address(address)
        if ip is None:
            return f"{address!r} is not an address"
        reason = next((reason for one in _forms(ip) if (reason := self._refused(host, one))), None)
        place = bare(host)
        if reason is None:
            return None
        return f"{place} is {reason}" if place == str(ip) else f"{place} resolves to {ip}, which is {reason}"

    def _refused(self, host: str, address: IPv4Address | IPv6Address) -> str | None:
        reason = _blocked(address)
        if any(_holds(_network(rule), address) for rule in self.blocked):
            return reason or "blocked by the operator"
        return None if reason is None or self._allows(host, address) else reason

    def refusal_of_name(self, host: str) -> str | None:
        """Return the reason to refuse a host that is itself an address. Return None if the address is allowed, and
        for a name, which this function does not resolve."""
        return self.refusal(host, bare(host)) if _address(bare(host)) else None

    def _allows(self, host: str, address: IPv4Address | IPv6Address) -> bool:
        return any(_matches(rule.strip().lower(), bare(host), address) for rule in self.allowed)


def bare(host: str) -> str:
    """Normalize a host for comparisons: lower case, without brackets and trailing dot."""
    return host.removeprefix("[").removesuffix("]").rstrip(".").lower()


def faults(rules: Sequence[str]) -> list[str]:
    """Return the rules that are neither a host, a ``*.domain``, an address nor a network."""
    return [rule for rule in rules if not (HOST.fullmatch(rule.strip()) or _network(rule.strip()))]


def network_faults(networks: Sequence[str]) -> list[str]:
    """Return the entries of ``networks`` that are neither a network nor an address."""
    return [network for network in networks if _network(network.strip()) is None]


def without_metadata(policy: AddressPolicy | None) -> AddressPolicy:
    """Return ``policy`` with cloud metadata services blocked, because a tenant must not get the machine's credentials.
    If ``policy`` is None, all other addresses are allowed."""
    base = policy or AddressPolicy(allowed=EVERYWHERE)
    return msgspec.structs.replace(base, blocked=(*base.blocked, *METADATA))


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
    """Yield an address, and the IPv4 address that an IPv6 address may contain."""
    yield address
    for network, behind in _EMBEDDING:
        if address in network and address not in IPv6Network("::/127"):
            yield IPv4Address(int(address) >> behind & 0xFFFFFFFF)


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """Parse an address, without its zone; None if it is invalid. An IPv4-mapped IPv6 address becomes the IPv4 address,
    because the system connects to that one."""
    try:
        ip = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return (ip.ipv4_mapped or ip) if isinstance(ip, IPv6Address) else ip


def _blocked(address: IPv4Address | IPv6Address) -> str | None:
    if isinstance(address, IPv4Address):
        return next((reason for network, reason in _V4 if address in network), None)
    return next((reason for network, reason in _V6 if address in network), None)
