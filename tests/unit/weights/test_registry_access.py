"""Access to the cluster's registry by the pod's own account."""

from __future__ import annotations

from slipway.weights.sources.registry_access import of_registry


def test_a_token_for_the_depot_alone_is_a_file_that_the_kubelet_keeps_new() -> None:
    access = of_registry("PEM")
    (volume,) = access.volumes
    claim = {"audience": "slipway-depot", "expirationSeconds": 3600, "path": "token"}
    assert volume["projected"] == {"sources": [{"serviceAccountToken": claim}]}
    (mount,) = access.mounts
    assert (mount.path, mount.read_only) == ("/var/run/secrets/slipway.inference/depot", True)
    assert list(access.env) == [
        {"name": "SLIPWAY_DEPOT_TOKEN_FILE", "value": "/var/run/secrets/slipway.inference/depot/token"},
        {"name": "SLIPWAY_REGISTRY_CA", "value": "PEM"},
    ]
    assert of_registry("").env == access.env[:1]
