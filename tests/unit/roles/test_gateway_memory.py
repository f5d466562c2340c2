"""HAProxy's memory limit is three quarters of its container's limit."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.roles.rendering import Rendered


@pytest.mark.parametrize(
    ("resources", "mebibytes"),
    [
        ({"limits": {"memory": "1Gi"}}, 768),
        ({"limits": {"memory": "512Mi", "cpu": 2}}, 384),
        ({"limits": {"memory": "1G"}}, 715),
        ({"limits": {"memory": "1.5Gi"}}, 1152),
        ({"limits": {"memory": 1073741824}}, 768),
        ({"limits": {"memory": "1e9"}}, 715),
        ({"limits": {"memory": "1048576Ki"}}, 768),
        ({"limits": {"cpu": 1}}, 0),
        ({"limits": None}, 0),
        ({}, 0),
    ],
)
def test_haproxy_may_reserve_three_quarters_of_its_limit(resources: dict[str, Any], mebibytes: int) -> None:
    role = Rendered("gateway", gateway_resources=resources)
    arguments = role["__gateway_haproxy"]["args"]
    assert ("-m" in arguments) == (mebibytes > 0)
    if mebibytes:
        assert arguments[-2:] == ["-m", str(mebibytes)]
    assert int(role["__gateway_settings"]["memoryBytes"]) == mebibytes << 20


def test_the_defaults_bear_the_largest_bodies() -> None:
    role = Rendered("gateway")
    assert role["__gateway_haproxy"]["args"][-2:] == ["-m", "768"]
    assert role["__gateway_settings"]["trustedProxies"] == []
