"""Agent: what controller and loader say to each other. The loader runs beside an engine, or alone in a Job that fills a
cache; it answers HTTP on :data:`PORT`.

``GET /v1/state`` gives an :class:`AgentReport`. ``PUT /v1/adapters`` takes a list of :class:`Adapter`, the complete
wish, and gives the report too: the work goes on after the answer.
"""

from __future__ import annotations

from typing import Literal

import msgspec

PORT = 8001
CONTAINER = "loader"
ADAPTER_LABEL = "adapter.kubeai.org/"
"""Prefix of the label that a pod has for each adapter that it serves, as the original has it; the value is the digest
of the adapter's url. What comes after is the adapter's own name, without its model's."""
SERVING_LABEL = "adapter.slipway.inference/"
"""Prefix of a second label, with the value ``SERVING`` whatever the version: Services select by it, so that pods can go
over to another version one after another while all of them serve."""
SERVING = "true"


class Adapter(msgspec.Struct, frozen=True, rename="camel"):
    """A LoRA adapter that an engine shall have loaded."""

    name: str
    """Its name at the engine, which is the model id of requests: ``model_adapter``."""
    url: str
    digest: str
    """Of the url; tells two versions under one name apart."""
    replace: bool = True
    """Whether another version under this name may be taken out for it now; else it is only fetched."""


class AdapterState(msgspec.Struct, frozen=True, rename="camel"):
    """How far an adapter is. ``Fetched`` waits for ``replace``."""

    name: str
    digest: str
    """Of the version that ``phase`` speaks of."""
    phase: Literal["Fetching", "Fetched", "Loaded", "Failed"]
    message: str = ""
    loaded: str = ""
    """Digest of the version that the engine answers with now; empty: none."""


class Progress(msgspec.Struct, frozen=True, rename="camel"):
    """How much of a download is done. ``total_bytes`` is 0 while it is not known."""

    done_bytes: int = 0
    total_bytes: int = 0
    message: str = ""


class AgentReport(msgspec.Struct, frozen=True, rename="camel"):
    """Everything that a loader tells."""

    adapters: tuple[AdapterState, ...] = ()
    progress: Progress | None = None
