"""The serving APIs: one package for each, with data types and pure functions. ``serving.contract.api.Api`` is their
contract."""

from __future__ import annotations

from typing import Any

from slipway.apis import deckhouse, krypton, kubeai, llmkube, ome
from slipway.apis.description import Description
from slipway.serving.contract.api import Api
from slipway.serving.contract.delivery import Delivery

SERVED = (krypton, kubeai, llmkube, ome, deckhouse)
"""Every API that Slipway implements. The first is the default of the Ansible modules."""
APIS: tuple[Api[Any], ...] = tuple(api for served in SERVED for api in served.APIS)
"""The kinds of all APIs, each with the functions that reconcile it."""
DELIVERIES: tuple[Delivery, ...] = tuple(served.DELIVERY for served in SERVED if hasattr(served, "DELIVERY"))
"""The deliveries of the APIs that add model files to workloads that Slipway does not own."""
DESCRIPTIONS: tuple[Description, ...] = tuple(served.DESCRIPTION for served in SERVED)
