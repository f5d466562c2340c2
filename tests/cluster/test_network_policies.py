"""Who may tell loaders what to do, and who reaches what. The network of the test cluster need not enforce policies."""

from __future__ import annotations

import json

from .cluster import GATEWAY, PATIENCE, SYSTEM, Cluster, Object, condition, observed, unique, wait
from .kubeai import KubeAI, chat

ADAPTER = {"name": "wiki", "url": "hf://acme/adapter-one"}
OTHER = [{"name": "wiki", "url": "hf://acme/adapter-two", "digest": "x"}]
ASK = """
import sys, urllib.error, urllib.request
method, url, body = sys.argv[1:]
request = urllib.request.Request(url, data=body.encode() or None, method=method)
try:
    print(urllib.request.urlopen(request, timeout=5).status)
except urllib.error.HTTPError as error:
    print(error.code)
except OSError:
    print("unreachable")
"""


def request_from_pod(cluster: Cluster, method: str, url: str, body: str = "") -> str:
    """The status that another pod gets, or that it gets no answer."""
    asker = cluster.gateways()[0]
    command = ("exec", "--namespace", SYSTEM, asker, "--container", "control", "--", "python3", "-c", ASK)
    return cluster.kubectl(*command, method, url, body).strip()


def loaded(model: Object) -> bool:
    return observed(model) and condition(model, "AdaptersLoaded").get("status") == "True"


def test_another_pod_can_neither_read_nor_replace_what_a_loader_has(
    kubeai: KubeAI, free_namespace: str, gateway_url: str
) -> None:
    name = unique("guarded")
    kubeai.make_model(free_namespace, name, adapters=[ADAPTER])
    kubeai.wait_routed(free_namespace, f"{name}_wiki")
    wait("the adapter is loaded", PATIENCE, lambda: kubeai.model(free_namespace, name), loaded, kubeai._say)
    before = chat(gateway_url, f"{name}_wiki").words[1]
    [pod] = kubeai.pods(free_namespace, name)
    address = f"http://{pod['status']['podIP']}:8001"
    attempts = [
        ("GET", "/v1/state", ""),
        ("PUT", "/v1/adapters", "[]"),
        ("PUT", "/v1/adapters", json.dumps([{**one, "name": f"{name}_wiki"} for one in OTHER])),
    ]
    answers = {request_from_pod(kubeai, method, address + path, body) for method, path, body in attempts}
    assert answers <= {"401", "unreachable"}
    assert chat(gateway_url, f"{name}_wiki").words[1] == before
    assert loaded(kubeai.model(free_namespace, name))


def test_a_policy_guards_a_loader_until_the_namespace_has_its_own(kubeai: KubeAI, free_namespace: str) -> None:
    name = unique("policed")
    kubeai.make_model(free_namespace, name, adapters=[ADAPTER])

    def ours() -> Object | None:
        return kubeai.get("NetworkPolicy", free_namespace, f"model-{name}-ingress")

    network_policy = wait("the policy is there", PATIENCE, ours)
    assert network_policy
    orders, others = network_policy["spec"]["ingress"]
    assert [port["port"] for port in orders["ports"]] == [8001]
    assert orders["from"][0]["podSelector"] == {"matchLabels": {"app.kubernetes.io/name": "slipway-controller"}}
    assert "from" not in others
    open_ports = [range(port["port"], port.get("endPort", port["port"]) + 1) for port in others["ports"]]
    tcp = [ports for port, ports in zip(others["ports"], open_ports, strict=True) if port["protocol"] == "TCP"]
    assert not any(8001 in ports for ports in tcp)
    assert all(any(port in ports for ports in tcp) for port in (1, 8000, 8002, 65535))
    kubeai.wait_ready(free_namespace, name)

    spec = {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{}]}
    metadata = {"name": "own", "namespace": free_namespace}
    kubeai.create({"kind": "NetworkPolicy", "metadata": metadata, "spec": spec})
    wait("it makes way", PATIENCE, ours, lambda policy: policy is None)
    kubeai.delete("NetworkPolicy", free_namespace, "own")
    wait("it is there again", PATIENCE, ours)


def test_our_own_parts_are_guarded_and_still_reached(cluster: Cluster) -> None:
    policies = {policy["metadata"]["name"]: policy["spec"] for policy in cluster.list("NetworkPolicy", SYSTEM)}
    assert {"slipway-controller", "slipway-gateway"} <= policies.keys()
    for name, spec in policies.items():
        assert spec["policyTypes"] == ["Ingress"]
        assert spec["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": name}
    assert cluster.list("Pod", SYSTEM, GATEWAY)
    assert request_from_pod(cluster, "GET", f"http://slipway-gateway.{SYSTEM}.svc/healthz") == "200"
