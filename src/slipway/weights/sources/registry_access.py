"""Access to the cluster's own registry with the pod's service account, for which the depot signs tokens. Pure.

The service account's token is valid only for the depot and changes while the pod runs. Therefore it is in a file that
the kubelet updates.
"""

from __future__ import annotations

from slipway.kube.objects import Object
from slipway.serving.pods.server import variables
from slipway.weights.sources.credentials import Access, mounted

AUDIENCE = "slipway-depot"
FOLDER, FILE, VOLUME = "/var/run/secrets/slipway.inference/depot", "token", "depot-token"
TOKEN_VARIABLE, CA_VARIABLE = "SLIPWAY_DEPOT_TOKEN_FILE", "SLIPWAY_REGISTRY_CA"
TOKEN_SECONDS = 3600


def of_registry(ca: str) -> Access:
    """Return the access of a pod to the registry: a service account token and a CA certificate. ``ca`` is the
    certificate of the CA of registry and depot in PEM format; empty: a public CA."""
    claim = {"audience": AUDIENCE, "expirationSeconds": TOKEN_SECONDS, "path": FILE}
    volume: Object = {"name": VOLUME, "projected": {"sources": [{"serviceAccountToken": claim}]}}
    environment = {TOKEN_VARIABLE: f"{FOLDER}/{FILE}"} | ({CA_VARIABLE: ca} if ca else {})
    return mounted(volume, FOLDER, read_only=True) + Access(env=variables(environment))
