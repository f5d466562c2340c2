"""Which addresses are asked: public ones, and those that the operator allows."""

from __future__ import annotations

import pytest

from slipway.artifacts.locations.address_policy import (
    EVERYWHERE,
    METADATA,
    AddressPolicy,
    faults,
    network_faults,
    without_metadata,
)
from tests.tables import each

BLOCKED = """
0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.127.255.255 127.0.0.1 127.9.9.9 169.254.169.254 172.16.0.1
172.31.255.255 192.0.0.8 192.168.1.1 192.88.99.1 198.18.0.1 198.19.255.255 224.0.0.1 240.0.0.1 255.255.255.255
:: ::1 ::10.0.0.1 ::8.8.8.8 ::ffff:10.0.0.1 ::ffff:127.0.0.1 ::ffff:169.254.169.254 64:ff9b::a00:1 64:ff9b::808:808
168.63.129.16 ::ffff:168.63.129.16 ::ffff:0:10.0.0.1 ::ffff:0:8.8.8.8 64:ff9b::a83f:8110 3fff::1 5f00::1 100.100.100.200
64:ff9b:1::a00:1 2002:a00:1:: 2001:0:1::1 fc00::1 fd00:ec2::254 fe80::1 fe80::1%eth0 fec0::1 ff02::1 2001:db8::1
"""
PUBLIC = (
    "8.8.8.8 1.1.1.1 100.63.255.255 100.128.0.1 172.15.0.1 172.32.0.1 192.0.1.1 198.17.0.1 2606:4700::1 ::ffff:8.8.8.8"
)


@each(BLOCKED.split())
def test_addresses_that_only_the_cluster_can_reach_get_no_request(address: str) -> None:
    assert AddressPolicy().refusal("weights.example", address)


@pytest.mark.parametrize("address", PUBLIC.split())
def test_public_addresses_are_asked(address: str) -> None:
    assert AddressPolicy().refusal("weights.example", address) is None


def test_an_invalid_address_gets_no_request() -> None:
    assert AddressPolicy(("*.example",)).refusal("weights.example", "2130706433") == "'2130706433' is not an address"


@pytest.mark.parametrize(
    ("rule", "host", "address", "allowed"),
    [
        ("store.lan", "store.lan", "10.0.0.1", True),
        ("Store.LAN", "store.lan.", "10.0.0.1", True),
        ("store.lan", "other.store.lan", "10.0.0.1", False),
        ("store.lan", "evil-store.lan", "10.0.0.1", False),
        ("*.lan", "store.lan", "10.0.0.1", True),
        ("*.lan", "lan", "10.0.0.1", False),
        ("*.lan", "storelan", "10.0.0.1", False),
        ("10.1.0.0/16", "store.lan", "10.1.2.3", True),
        ("10.1.0.0/16", "store.lan", "10.2.0.1", False),
        ("10.1.0.0/16", "store.lan", "::ffff:10.1.2.3", True),
        ("10.1.2.3", "10.1.2.3", "10.1.2.3", True),
        ("fd00::/8", "store.lan", "fd00::1", True),
        ("fd00::/8", "store.lan", "10.0.0.1", False),
        ("[fd00::1]", "[fd00::1]", "fd00::1", True),
    ],
)
def test_the_operator_allows_hosts_domains_and_networks(rule: str, host: str, address: str, allowed: bool) -> None:
    assert (AddressPolicy((rule,)).refusal(host, address) is None) == allowed


@pytest.mark.parametrize(
    ("rules", "address", "allowed"),
    [
        ((), "8.8.8.8", False),
        ((), "8.9.0.1", True),
        ((), "::ffff:8.8.8.8", False),
        ((), "2606:4700::1", False),
        (("weights.example",), "8.8.8.8", False),
        (("*.example", "8.8.8.8"), "8.8.8.8", False),
        (("10.0.0.0/8",), "10.1.2.3", False),
        (("10.0.0.0/8",), "10.2.2.3", True),
        (("64:ff9b::/96",), "64:ff9b::808:808", False),
    ],
)
def test_networks_that_the_operator_blocks_stay_blocked_despite_allowed_hosts(
    rules: tuple[str, ...], address: str, allowed: bool
) -> None:
    blocked = ("8.8.0.0/16", "10.1.0.0/16", "2606:4700::/32")
    assert (AddressPolicy(rules, blocked).refusal("weights.example", address) is None) == allowed


@pytest.mark.parametrize("network", ["64:ff9b::/96", "2002::/16", "::ffff:0:0:0/96", "::/96"])
def test_a_translator_that_is_allowed_leads_to_public_addresses_only(network: str) -> None:
    """Where a cluster has IPv6 alone every IPv4 address is reached by one."""
    forms = {"64:ff9b::/96": "64:ff9b::{}:{}", "2002::/16": "2002:{}:{}::1", "::/96": "::{}:{}"}
    form = forms.get(network, "::ffff:0:{}:{}")
    assert AddressPolicy((network,)).refusal("weights.example", form.format("808", "808")) is None
    for private in ("a9fe:a9fe", "a00:1", "7f00:1"):
        assert AddressPolicy((network,)).refusal("weights.example", form.format(*private.split(":")))


def test_a_tenants_policy_blocks_metadata_services_and_changes_nothing_else() -> None:
    for given in (None, AddressPolicy(EVERYWHERE), AddressPolicy(("metadata.example",))):
        policy = without_metadata(given)
        for address in (*METADATA, "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe"):
            assert policy.refusal("metadata.example", address)
    assert without_metadata(None).refusal("store.lan", "10.0.0.1") is None
    assert without_metadata(None).refusal("localhost", "::1") is None
    assert without_metadata(AddressPolicy()).refusal("store.lan", "10.0.0.1")


def test_networks_that_are_none_are_found() -> None:
    assert network_faults(["10.0.0.0/8", "10.1.2.3", "fd00::/8", " 8.8.8.0/24 "]) == []
    wrong = ["store.lan", "10.0.0.0/99", "", "*.lan"]
    assert network_faults(wrong) == wrong


def test_a_refusal_says_where_a_name_leads() -> None:
    assert AddressPolicy().refusal("Metadata.example", "169.254.169.254") == (
        "metadata.example resolves to 169.254.169.254, which is link-local, where clouds serve metadata"
    )
    assert AddressPolicy().refusal("[::1]", "::1") == "::1 is this host"


def test_private_addresses_in_a_spec_are_refused_before_any_lookup_and_names_are_not() -> None:
    assert AddressPolicy().refusal_of_name("10.0.0.1") == "10.0.0.1 is a private address"
    assert AddressPolicy(("10.0.0.0/8",)).refusal_of_name("10.0.0.1") is None
    assert AddressPolicy().refusal_of_name("weights.example") is None


def test_exceptions_that_mean_nothing_are_found() -> None:
    assert faults(["store.lan", "*.lan", "10.0.0.0/8", "fd00::/8", "[fd00::1]", "10.1.2.3", "store"]) == []
    wrong = ["10.0.0.0/99", " ", "https://store.lan", "store.lan:9000", "*", "store lan"]
    assert faults(wrong) == wrong
