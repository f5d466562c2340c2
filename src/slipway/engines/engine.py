"""What every engine can say of itself, and what it is told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from slipway.artifacts.huggingface import HuggingFaceFile
from slipway.kube.objects import Object
from slipway.serving.diagnosis import Failure


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """One model to be served by one engine process."""

    weights: HuggingFaceFile
    served_name: str
    """The public model id, so that request bodies pass to the engine unchanged."""
    port: int
    extra_args: tuple[str, ...] = ()
    """Come last, so that they can tune everything that the engine's own flags do not decide."""


class Engine(Protocol):
    """Flags, places and words of one engine. All pure."""

    name: str
    """As in the operator's settings: ``llamacpp``."""
    image: str
    """Default container image."""
    health_path: str
    cache_path: str
    """Home folder of the process: a volume is mounted here."""

    def args(self, launch: Launch) -> tuple[str, ...]:
        """The command line after the image's entrypoint."""

    def owned_flags(self, args: Sequence[str]) -> tuple[str, ...]:
        """Those of ``args`` that set what slipway itself decides."""

    def env(self, endpoint: str) -> tuple[Object, ...]:
        """Environment variables; ``endpoint`` is a mirror of the hub, or empty."""

    def explain(self, log: str) -> Failure | None:
        """What the last log lines of a process that ended mean; None: nothing known."""
