"""Krypton's description for installers and clients."""

from __future__ import annotations

from slipway.apis.description import Description, Resource, Scrape
from slipway.apis.krypton.readiness import READINESS
from slipway.apis.krypton.types import MODEL

DESCRIPTION = Description(
    name="krypton",
    resources=(
        Resource(
            kind=MODEL.kind,
            module="model",
            readiness=READINESS,
            pods=("krypton.ai/model={name}",),
        ),
    ),
    scrape=Scrape(
        expressions=({"key": "krypton.ai/model", "operator": "Exists"},),
        labels={"model": {"from": "krypton.ai/model"}, "runtime": {"value": "llamacpp"}},
    ),
    pod_labels=("krypton.ai/model",),
)
