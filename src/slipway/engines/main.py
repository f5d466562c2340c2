"""``slipway engines FILE``: writes the engines' metrics as Ansible variables for the role ``monitoring``."""

from __future__ import annotations

import argparse
from pathlib import Path

import yaml

from slipway.engines import ENGINES
from slipway.engines.definition.engine import Metrics

HEADER = "# Written by `make generate` from src/slipway/engines.\n"
MEANINGS = tuple(field for field in Metrics.__struct_fields__ if field != "scaled_by")
"""Meanings of an engine's metrics. ``scaled_by`` is excluded, because it repeats the name of another metric."""


def table() -> dict[str, list[str]]:
    """Return the names of the metrics of all engines, by the meaning of the metrics."""
    engine_metrics = [engine.metrics for engine in ENGINES.values() if engine.metrics is not None]
    return {meaning: [name for metrics in engine_metrics for name in _names(metrics, meaning)] for meaning in MEANINGS}


def _names(metrics: Metrics, meaning: str) -> tuple[str, ...]:
    named: str | tuple[str, ...] = getattr(metrics, meaning)
    return named if isinstance(named, tuple) else (named,) if named else ()


def text() -> str:
    """Return the content of the file with Ansible variables as YAML."""
    return HEADER + yaml.safe_dump(
        {"__monitoring_engine_metrics": table()}, sort_keys=False, default_flow_style=None, width=1000
    )


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="slipway engines", description="Write the monitoring queries of the engines as Ansible variables."
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="the file to write")
    parser.parse_args(argv).file.write_text(text())
    return 0
