"""The header with which clients select models by their labels. Pure.

The control process applies the selector to the model list, and ``labels.lua`` to requests for a model.
"""

from __future__ import annotations

from collections.abc import Mapping

from slipway.serving.routing.selector import KEY, VALUE

HEADER = "X-Label-Selector"


def label_text(labels: Mapping[str, str]) -> str:
    """Return labels in the format of ``labels.map``: ``key=value`` pairs, sorted and separated by commas. Omit
    invalid labels."""
    return ",".join(
        f"{key}={value}" for key, value in sorted(labels.items()) if KEY.fullmatch(key) and VALUE.fullmatch(value)
    )
