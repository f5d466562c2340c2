"""`make cold` ends with a table that tells where the time went."""

from __future__ import annotations

import io
import sys

from .conftest import IMAGES

sys.path.insert(0, str(IMAGES.parent / "scripts"))

from step_times import follow, table

PRINTED = """\
Installing the Python packages into .venv (a minute)
haproxy:3.4: building
  bootstrap Debian sid: 26 s
haproxy:3.4: built in 35 s
PLAY [Install Slipway] ****
TASK [Wait] ****
"""


def test_every_line_is_passed_on_and_each_step_has_its_time() -> None:
    clock = iter(range(0, 1000, 10))
    echo = io.StringIO()

    steps = follow(io.StringIO(PRINTED), echo, lambda: float(next(clock)))

    assert echo.getvalue() == PRINTED
    assert table(steps).splitlines() == [
        "    10 s  Start",
        "    10 s  Installing the Python packages",
        "    10 s  haproxy:3.4",
        "    26 s    bootstrap Debian sid",
        "    10 s  Install Slipway",
        "    40 s  in all (0.7 min)",
    ]
