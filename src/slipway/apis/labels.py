"""Labels that a spec must not set on pods. Services select pods by these labels, so a pod with one of them could
receive another model's requests."""

from __future__ import annotations

from slipway.serving.containers.freedoms import Labels
from slipway.serving.wire.agent import SERVING_LABEL

RESERVED = Labels(
    names=frozenset({"app", "model", "control-plane", "app.kubernetes.io/name", "app.kubernetes.io/instance"}),
    prefixes=(
        "slipway.inference/",
        SERVING_LABEL,
        "krypton.ai/",
        "kubeai.org/",
        "adapter.kubeai.org/",
        "inference.llmkube.dev/",
        "ome.io/",
        "ai.deckhouse.io/",
    ),
)
