"""8, 12 and 18: the tenant takes requests of others at the gateway, or reaches their engines without it."""

from __future__ import annotations

import json

from tests.cluster.cluster import PATIENCE, Object, wait
from tests.cluster.kubeai import Reply, ask

from .campaign import Attack
from .proofs import require_no_right, require_status
from .scene import Scene
from .second_tenant import card_of

ROUTE = "slipway.inference/route"
REACH_SCRIPT = """
import sys, urllib.error, urllib.request
method, url, body = sys.argv[1:]
request = urllib.request.Request(url, body.encode() or None, {"Content-Type": "application/json"}, method=method)
try:
    print(urllib.request.urlopen(request, timeout=5).status)
except urllib.error.HTTPError as error:
    print(error.code)
except OSError:
    print("unreachable")
"""


def claim_the_ids_of_others(scene: Scene, turn: int) -> None:
    """The gateway serves the Service under its own id only, and tells its owner why."""
    name, mine = f"thief-{turn}", f"thief-{scene.home}-{turn}"
    stolen = [*scene.second.ids, scene.second.plain_id]
    route = json.dumps({"models": [mine, *stolen], "name": name})
    ports = {"spec": {"ports": [{"name": "http", "port": 80}]}}
    scene.create("Service", scene.home, name, ports, labels={ROUTE: "true"}, annotations={ROUTE: route})
    wait("the gateway knows the forged Service", PATIENCE, lambda: card_of(scene.gateway, mine))
    owners = {model: card_of(scene.gateway, model).get("namespace") for model in stolen}
    assert owners == dict.fromkeys(stolen, scene.second.namespace)

    def messages() -> str:
        about = f"involvedObject.kind=Service,involvedObject.name={name},type=Warning"
        return " ".join(event["message"] for event in scene.tenant.list("Event", scene.home, fields=about))

    message = f"belongs to namespace {scene.second.namespace}"
    wait("an Event names the owner", PATIENCE, messages, lambda text: message in text)
    scene.tenant.delete("Service", scene.home, name)


def forge_endpoints(scene: Scene, turn: int) -> None:
    """An EndpointSlice whose addresses claim to be pods."""
    for namespace in (scene.home, scene.second.namespace):
        body: Object = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": f"forged-{turn}", "labels": {"kubernetes.io/service-name": "bank-krypton"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["203.0.113.1"], "targetRef": {"kind": "Pod", "namespace": namespace}}],
        }
        answer = scene.tenant.send("POST", f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices", body)
        require_no_right(answer, "create", "endpointslices")
        endpoints = {"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": f"forged-{turn}"}}
        answer = scene.tenant.send("POST", f"/api/v1/namespaces/{namespace}/endpoints", endpoints)
        require_no_right(answer, "create", "endpoints")


def hide_the_model_behind_a_twin(scene: Scene, turn: int) -> None:
    """An engine in Go reads `Model` as `model`. The twin stands behind 9 KB, where a first look ends."""
    mine, padding = f"mallory-{turn}", "x" * 9216
    chat = {"messages": [{"role": "user", "content": padding}]}
    bodies = [
        {"model": scene.second.ids[0], "Model": mine, **chat},
        {"model": scene.second.ids[0], **chat, "Model": mine},
        {"MODEL": mine, **chat, "model": scene.second.ids[0]},
    ]
    for body in bodies:
        require_status(_answer(ask(f"{scene.gateway}/v1/chat/completions", body)), [400])
    twice = json.dumps({"model": scene.second.ids[0], **chat}).removesuffix("}") + f', "model": "{mine}"}}'
    require_status(_answer(ask(f"{scene.gateway}/v1/chat/completions", twice.encode())), [400])


def _answer(reply: Reply) -> tuple[int, str]:
    return reply.status, reply.body.decode("utf-8", "replace")


def reach_an_engine_without_the_gateway(scene: Scene, turn: int) -> None:
    """Its NetworkPolicy admits the gateway and Prometheus. Where the network enforces policies, which a policy of the
    tenant's own shows, the engine cannot be reached from a pod."""
    namespace = scene.second.namespace
    for model, path in ((f"{scene.second.name}-krypton", "/slots"), (f"{scene.second.name}-kubeai", "/lora-adapters")):
        pods = [pod for pod in scene.cluster.list("Pod", namespace) if _is_engine(pod, model)]
        assert pods, f"no engine of {model}"
        selecting = [
            one["spec"]
            for one in scene.cluster.list("NetworkPolicy", namespace)
            if one["spec"]["podSelector"].get("matchLabels", {}).items() <= pods[0]["metadata"]["labels"].items()
        ]
        assert selecting, f"no NetworkPolicy protects the engine of {model}"
        for spec in selecting:
            assert spec["policyTypes"] == ["Ingress"]
            for rule in spec["ingress"]:
                assert rule.get("from"), f"the policy admits all pods: {rule}"
        if scene.enforced:
            address = f"http://{pods[0]['status']['podIP']}:{_port(pods[0])}{path}"
            reached = scene.run_in_pod(REACH_SCRIPT, "GET", address, "").strip()
            assert reached == "unreachable", f"the engine of {model} answered with {reached} in turn {turn}"


def _is_engine(pod: Object, model: str) -> bool:
    return pod["metadata"]["name"].removeprefix("model-").startswith(model) and bool(pod["status"].get("podIP"))


def _port(pod: Object) -> int:
    ports = [port for container in pod["spec"]["containers"] for port in container.get("ports", [])]
    return int(ports[0]["containerPort"])


def reach_the_inside_of_slipway(scene: Scene, _turn: int) -> None:
    """Metrics and the state of the routing table. The API server's own proxy is not the tenant's to use either."""
    for pod in scene.cluster.gateways():
        path = f"/api/v1/namespaces/slipway-system/pods/{pod}:8081/proxy/metrics"
        require_no_right(scene.tenant.send("GET", path, None), "get", "pods/proxy")
    policies = {one["metadata"]["name"] for one in scene.cluster.list("NetworkPolicy", "slipway-system")}
    assert {"slipway-controller", "slipway-gateway", "slipway-depot"} <= policies
    if scene.enforced:
        for pod in scene.cluster.list("Pod", "slipway-system", "app.kubernetes.io/name=slipway-controller"):
            address = f"http://{pod['status']['podIP']}:{_port(pod)}/metrics"
            assert scene.run_in_pod(REACH_SCRIPT, "GET", address, "").strip() == "unreachable"


ATTACKS: list[Attack[Scene]] = [
    Attack("8", claim_the_ids_of_others),
    Attack("8", forge_endpoints),
    Attack("12", reach_an_engine_without_the_gateway),
    Attack("12", reach_the_inside_of_slipway),
    Attack("18", hide_the_model_behind_a_twin),
]
