"""Events: their names are valid, whatever the object is called."""

from __future__ import annotations

import re
from typing import Any

import pytest

from slipway.kube.events import Recorder
from slipway.kube.metrics import Metrics
from slipway.kube.objects import POD

SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
LONGEST = 253
"""Characters of a name, as the API server takes them."""


@pytest.mark.parametrize(
    "name",
    [
        "a",
        "a.b-c",
        "a" * 229,
        "a" * 230,
        "a" * 253,
        f"{'a' * 229}-{'b' * 20}",
        f"{'a' * 229}.{'b' * 20}",
        f"{'a' * 227}---{'b' * 20}",
        f"{'a' * 228}.b.{'c' * 20}",
        ("a-" * 120) + "b",
        ("a." * 120) + "b",
    ],
    ids=len,
)
def test_the_name_of_an_event_is_valid(name: str) -> None:
    client: Any = None
    recorder = Recorder(client, "test", metrics=Metrics())
    metadata = {"namespace": "models", "name": name, "uid": "u", "resourceVersion": "1"}
    event = recorder._event(POD, {"metadata": metadata}, "Normal", "Ready", "It answers.")
    assert SUBDOMAIN.fullmatch(name), "a name that an object may have"
    assert SUBDOMAIN.fullmatch(event["metadata"]["name"])
    assert len(event["metadata"]["name"]) <= LONGEST
