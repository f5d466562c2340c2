"""Labels of pods that belong to the systems and not to whoever writes a spec: Services, ours and the originals', select
by them, so that a pod that has one takes part of another's requests."""

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
