"""What `kubectl get slipway -A -o wide` shows of a failed change: the column Change has the reason."""

from __future__ import annotations

import re
from typing import Any

import yaml

from slipway.apis.crds import manifests
from slipway.serving.contract import readiness
from slipway.serving.contract.readiness import COMPLETE, FAILED, ROLLED_OUT, Condition, Readiness, summarize

RULES = Readiness(ready=ROLLED_OUT, answering=Condition("Available"), failed=FAILED, telling=(COMPLETE,))
PATH = re.compile(r'\.status\.conditions\[\?\(@\.type=="(\w+)"\)\]\.reason')


def columns() -> dict[str, dict[str, dict[str, Any]]]:
    """Kind that the gateway serves -> name -> column."""
    kinds = {}
    for text in manifests().values():
        spec = yaml.safe_load(text)["spec"]
        version = spec["versions"][0]
        if "modelId" in version["schema"]["openAPIV3Schema"]["properties"].get("status", {}).get("properties", {}):
            named = {column["name"]: column for column in version["additionalPrinterColumns"]}
            kinds[f"{spec['names']['kind']}.{spec['group']}"] = named
    return kinds


def cell(column: dict[str, Any], status: dict[str, Any], *, newest_answers: bool) -> str:
    conditions = summarize(status, RULES, 1, newest_answers=newest_answers)
    match = PATH.fullmatch(column["jsonPath"])
    assert match
    return next(one.reason for one in conditions if one.type == match[1])


def test_a_failed_change_is_shown_with_its_reason() -> None:
    failed = {
        "phase": "Failed",
        "conditions": [
            {"type": "Available", "status": "True", "reason": "Ready"},
            {"type": "Progressing", "status": "False", "reason": "DownloadFailed"},
        ],
    }
    done = {
        "phase": "Ready",
        "conditions": [
            {"type": "Accepted", "status": "True", "reason": "Accepted"},
            {"type": "Available", "status": "True", "reason": "Ready"},
            {"type": "Progressing", "status": "False", "reason": "Complete"},
        ],
    }
    shown = columns()
    assert "Model.krypton.ai" in shown
    for named in shown.values():
        state, change = named["State"], named["Change"]
        assert change["priority"] == 1
        assert cell(state, failed, newest_answers=False) == readiness.CHANGE_FAILED
        assert cell(change, failed, newest_answers=False) == "DownloadFailed"
        assert cell(change, done, newest_answers=True) == "Complete"
