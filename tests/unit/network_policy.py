"""What a NetworkPolicy lets through, decided as a cluster's network does it."""

from __future__ import annotations

from typing import Any

Pod = tuple[str, str]
"""Namespace, and value of the label app.kubernetes.io/name."""
SPACES: dict[str, dict[str, str]] = {"slipway-system": {}, "monitoring": {}, "models": {}, "tenant": {"team": "blue"}}
"""Namespace -> its further labels."""
CONTROLLER, GATEWAY, HUB = (("slipway-system", f"slipway-{part}") for part in ("controller", "gateway", "hub"))
PROMETHEUS, STRANGER, FORGED = ("monitoring", "prometheus"), ("tenant", "any"), ("tenant", "slipway-controller")
NEIGHBOUR = ("models", "any")
OUTSIDE = ("", "")
"""No pod of the cluster."""
PODS = frozenset({CONTROLLER, GATEWAY, HUB, PROMETHEUS, STRANGER, FORGED, NEIGHBOUR})
ALL = PODS | {OUTSIDE}


def who(policy: dict[str, Any], port: int, protocol: str = "TCP") -> set[Pod]:
    """Those of ``ALL`` who reach a port of the pods that the policy selects."""
    return {source for source in ALL if _reaches(policy, source, port, protocol)}


def _reaches(policy: dict[str, Any], source: Pod, port: int, protocol: str) -> bool:
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    own = policy["metadata"]["namespace"]
    return any(
        (not rule.get("from") or any(_is(peer, source, own) for peer in rule["from"]))
        and any(_leads_to(given, port, protocol) for given in rule["ports"])
        for rule in policy["spec"]["ingress"]
    )


def _is(peer: dict[str, Any], source: Pod, own: str) -> bool:
    assert peer, "a peer that says nothing is invalid"
    assert "ipBlock" not in peer
    if source == OUTSIDE:
        return False
    space = SPACES[source[0]] | {"kubernetes.io/metadata.name": source[0]}
    inside = _matches(peer["namespaceSelector"], space) if "namespaceSelector" in peer else source[0] == own
    return inside and _matches(peer.get("podSelector", {}), {"app.kubernetes.io/name": source[1]})


def _matches(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    assert selector.keys() <= {"matchLabels", "matchExpressions"}
    terms = selector.get("matchExpressions", [])
    assert all(term["operator"] == "In" and term["values"] for term in terms)
    named = all(labels.get(name) == value for name, value in selector.get("matchLabels", {}).items())
    return named and all(labels.get(term["key"]) in term["values"] for term in terms)


def _leads_to(given: dict[str, Any], port: int, protocol: str) -> bool:
    return given["protocol"] == protocol and given["port"] <= port <= given.get("endPort", given["port"])
