"""What LLMKube's page tells Prometheus and its adapter leads to the metrics of every runtime, under their own names."""

from __future__ import annotations

import re

import pytest

from slipway.apis.llmkube import names
from slipway.apis.llmkube.rules.engines import ENGINES, scaling_metric
from tests import documents

from ...docs.pages import ROOT, blocks

MONITOR, VALUES = (
    documents.load(block.text)
    for block in blocks(ROOT / "docs/reference/apis/llmkube.md")
    if block.language == "yaml" and block.marks.get("elsewhere") == "tests/unit/docs/test_adapter.py"
)
RULES = VALUES["rules"]["custom"]


def test_prometheus_finds_the_pods_of_every_service() -> None:
    assert MONITOR["spec"]["selector"]["matchExpressions"] == [{"key": names.SERVICE_LABEL, "operator": "Exists"}]
    assert MONITOR["spec"]["namespaceSelector"] == {"any": True}
    assert [endpoint["port"] for endpoint in MONITOR["spec"]["podMetricsEndpoints"]] == ["http"]


@pytest.mark.parametrize("runtime", ENGINES)
def test_the_metric_of_each_runtime_has_one_rule(runtime: str) -> None:
    series = [rule for rule in RULES if f'__name__="{scaling_metric(ENGINES[runtime])}"' in rule["seriesQuery"]]

    assert len(series) == 1


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["seriesQuery"]))
def test_a_rule_gives_the_metric_of_each_pod_under_its_own_name(rule: dict[str, object]) -> None:
    assert "name" not in rule
    assert re.findall(r'(\w+)!=""', str(rule["seriesQuery"])) == ["namespace", "pod"]
    assert rule["resources"] == {"overrides": {label: {"resource": label} for label in ("namespace", "pod")}}
    assert rule["metricsQuery"] == "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"
