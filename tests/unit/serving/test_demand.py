"""Demand: what one more look at the gateways says of a Service."""

from __future__ import annotations

import pytest

from slipway.serving.demand import Demand, observe

BUSY, IDLE = Demand(busy=True, since=10), Demand(busy=False, since=10)


@pytest.mark.parametrize(
    ("before", "requests", "complete", "after"),
    [
        pytest.param(None, 0, True, Demand(busy=False, since=20), id="the first look finds nothing"),
        pytest.param(None, 2, True, Demand(busy=True, since=20), id="the first look finds requests"),
        pytest.param(IDLE, 1, True, Demand(busy=True, since=20), id="requests begin"),
        pytest.param(BUSY, 7, True, BUSY, id="more requests are as busy as one"),
        pytest.param(BUSY, 0, True, Demand(busy=False, since=20), id="requests end"),
        pytest.param(BUSY, 0, False, BUSY, id="a gateway that is silent may have the requests"),
        pytest.param(None, 0, False, None, id="nothing is known while a gateway is silent"),
        pytest.param(IDLE, 1, False, Demand(busy=True, since=20), id="one gateway that has requests is enough"),
    ],
)
def test_a_look_changes_what_is_known(before, requests, complete, after):
    assert observe(before, requests, 20, complete=complete) == after
