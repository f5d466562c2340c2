"""APIs: one folder for each, with data types and pure functions (see ``serving.contract.api.Api``)."""

from __future__ import annotations

from typing import Any

from slipway.apis import deckhouse, krypton, kubeai, llmkube, ome
from slipway.apis.description import Description
from slipway.serving.contract.api import Api
from slipway.serving.contract.delivery import Delivery

SERVED = (krypton, kubeai, llmkube, ome, deckhouse)
"""Every API that Slipway implements. The first is the default of the Ansible modules."""
APIS: tuple[Api[Any], ...] = tuple(api for served in SERVED for api in served.APIS)
"""One object for each kind of the APIs."""
DELIVERIES: tuple[Delivery, ...] = tuple(served.DELIVERY for served in SERVED if hasattr(served, "DELIVERY"))
"""The deliveries of APIs that add models to workloads of other owners."""
DESCRIPTIONS: tuple[Description, ...] = tuple(served.DESCRIPTION for served in SERVED)
