"""The header by which clients choose models by their labels. Pure.

The model list is filtered here; requests that name a model are judged by `labels.lua`, which follows the same rules.
"""

from __future__ import annotations

from collections.abc import Mapping

from slipway.serving.routing.selector import KEY, VALUE

HEADER = "X-Label-Selector"


def label_text(labels: Mapping[str, str]) -> str:
    """Labels as HAProxy's map holds them, sorted; what is no label is left out."""
    return ",".join(
        f"{key}={value}" for key, value in sorted(labels.items()) if KEY.fullmatch(key) and VALUE.fullmatch(value)
    )
