"""Long answers outlive the pods, nodes and processes that carry them: of all streams, not one is broken."""

from __future__ import annotations

from collections import Counter

from tests.cluster.cluster import Cluster, unique, wait

from . import record
from .clients import LONG, Clients
from .disturbances import REPLICAS, Scene
from .engine import PATIENCE, engine

STREAMS = 200
CONTEXT = 192
"""Tokens of a stream with its prompt: more than the clients ask for."""


def test_long_answers_outlive_everything_that_carries_them(cluster: Cluster, namespace: str, gateway_url: str) -> None:
    name = unique("lasting")
    # After a scale-down, a single pod has the streams of all clients.
    cluster.make_model(namespace, name, **engine(STREAMS, CONTEXT), minReplicas=REPLICAS)
    cluster.wait_ready(namespace, name, PATIENCE)
    cluster.wait_routed(namespace, name)
    clients = Clients(gateway_url, name, STREAMS)
    scene = Scene(cluster, namespace, name, clients)
    try:
        with clients:
            wait("all clients stream", PATIENCE, lambda: clients.streaming, lambda number: number == STREAMS)
            disturb(scene)
            wait(f"{STREAMS} streams of {LONG:.0f} s", PATIENCE, lambda: len(clients.long), lambda n: n >= STREAMS)
    finally:
        counts = record.figures(clients, scene.disturbances)
        record.write(counts)
        print(counts)

    assert [stream for stream in clients.ended if not stream.whole] == []
    numbers = {"rollout": 5, "scale-down": 5, "drain": 2, "gateway rollout": 2, "controller kill": 1}
    assert Counter(one.kind for one in scene.disturbances) == numbers
    assert all(one.held for one in scene.disturbances if one.kind != "controller kill")


def disturb(scene: Scene) -> None:
    """A drain lasts as long as the streams of its node, so other things happen meanwhile, as they would anywhere."""
    with scene.drained(scene.node()):
        for _number in range(3):
            scene.roll_out()
        scene.kill_controller()
        for _number in range(2):
            scene.roll_out()
    with scene.drained(scene.node()):
        for _number in range(5):
            scene.scale_down()
        for _number in range(2):
            scene.roll_out_gateway()
