"""The exporter stand-in shows what its file says, and lets counters grow."""

from __future__ import annotations

from pathlib import Path

from .conftest import Start, ask

TEXT = """\
# HELP running Requests.
# TYPE running gauge
running{model="a"} 3
# TYPE tokens_total counter
tokens_total{model="a"} 10
"""


def test_gauges_stay_and_counters_grow(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "metrics.txt"
    file.write_text(TEXT)
    url = start("standin.exporter", "--port", "{port}", str(file))

    first, second = (values(ask(f"{url}/metrics").body.decode()) for _unused in range(2))
    assert first['running{model="a"}'] == second['running{model="a"}'] == 3
    assert second['tokens_total{model="a"}'] > first['tokens_total{model="a"}']
    assert ask(f"{url}/metrics").headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert ask(f"{url}/other").status == 404


def values(text: str) -> dict[str, float]:
    lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {series: float(value) for series, _space, value in lines}
