"""The header with which clients select models by labels. Pure.

The control process filters the model list. ``labels.lua`` applies the same rules to requests for a model.
"""

from __future__ import annotations

from collections.abc import Mapping

from slipway.serving.routing.selector import KEY, VALUE

HEADER = "X-Label-Selector"


def label_text(labels: Mapping[str, str]) -> str:
    """Returns the labels in the format of HAProxy's map, sorted. Invalid labels are omitted."""
    return ",".join(
        f"{key}={value}" for key, value in sorted(labels.items()) if KEY.fullmatch(key) and VALUE.fullmatch(value)
    )
