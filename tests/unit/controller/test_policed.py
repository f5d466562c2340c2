"""Whether a namespace has network policies of others is known at once, as ours would open what theirs close."""

from __future__ import annotations

from slipway.kube.objects import NETWORK_POLICY, Key

OURS = {"labels": {"app.kubernetes.io/managed-by": "slipway"}}


async def test_policies_of_others_in_the_namespace_come_and_go(server, cluster, parts, eventually, rest) -> None:
    def policed(name: str = "a") -> bool | None:
        return cluster.get_status(name).get("policed")

    one, two = (cluster.path(NETWORK_POLICY, name) for name in ("default-deny", "further"))
    await server.put(cluster.path(NETWORK_POLICY, "elsewhere", "other"), kind="NetworkPolicy")
    await server.put(cluster.path(NETWORK_POLICY, "a-ingress"), kind="NetworkPolicy", metadata=OURS)
    await cluster.config()
    await cluster.toy()
    await eventually(lambda: policed() is False)
    await server.put(one, kind="NetworkPolicy", spec={"podSelector": {}})
    await eventually(lambda: policed() is True)
    await rest(lambda: parts.api.planned["a"])
    planned = parts.api.planned["a"]
    await server.put(two, kind="NetworkPolicy")
    await server.remove(one)
    await eventually(lambda: parts.caches.store(NETWORK_POLICY).get(Key("models", "default-deny")) is None)
    await rest(lambda: parts.api.planned["a"])
    assert (policed(), parts.api.planned["a"]) == (True, planned)
    await server.remove(two)
    await eventually(lambda: policed() is False)


async def test_no_large_field_of_a_policy_is_kept(server, cluster, parts, eventually) -> None:
    spec = {"podSelector": {"matchExpressions": [{"key": "x" * 1000, "operator": "Exists"}] * 100}}
    notes = {"annotations": {"note": "y" * 100_000}, "labels": {"z" * 60: "z"}}
    await server.put(cluster.path(NETWORK_POLICY, "large"), kind="NetworkPolicy", spec=spec, metadata=notes)
    await eventually(parts.caches.store(NETWORK_POLICY).all)
    [kept] = parts.caches.store(NETWORK_POLICY).all()
    assert len(str(kept)) < 500
