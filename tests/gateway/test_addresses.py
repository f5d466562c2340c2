"""Without a host in their addresses, HAProxy and the control process answer on every address of both families."""

from __future__ import annotations

from collections.abc import Callable

import requests

from tests.gateway.conftest import loopbacks
from tests.gateway.standalone import PATIENCE, Standalone
from tests.ports import quiet_port


def test_both_families_are_answered(make_gateway: Callable[..., Standalone]) -> None:
    public, control = quiet_port(), quiet_port()
    gateway = make_gateway(listen=f":{public}", controlListen=f":{control}")
    gateway.url, gateway.control_url = f"http://127.0.0.1:{public}", f"http://127.0.0.1:{control}"
    with gateway:
        for host in loopbacks():
            for port, path in ((public, "/readyz"), (public, "/v1/models"), (control, "/healthz")):
                assert requests.get(f"http://{host}:{port}{path}", timeout=PATIENCE).status_code == 200, (host, path)
