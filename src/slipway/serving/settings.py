"""Settings: the operator's choices for every serving API, from the controller's settings file (YAML, camelCase)."""

from __future__ import annotations

import msgspec


class Settings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What an API's plan may need to know of the cluster's operator. Unknown keys are refused, naming the key."""

    hugging_face_endpoint: str = ""
    """URL of a mirror of the Hugging Face hub; empty: the public one."""
    images: dict[str, str] = {}
    """Engine name -> container image, where it is not to be the engine's own default."""
    run_as_user: int = 65532
    """User and group of the engines' containers; not root, as the restricted Pod Security Standard asks."""
    drain_seconds: int = 15
    """How long a pod that is to go keeps answering."""
    unschedulable_grace_seconds: int = 30
    """How long a pod may wait for a node, as one may be on its way, before its model is called Failed."""
    loader_image: str = "slipway/slipway:0.2.0"
    """Image of the program that fetches weights, in Jobs and beside engines that load adapters."""
    system_namespace: str = ""
    """Where the configuration that resources refer to lies; empty: the namespace of the controller's Lease."""
