"""The page shows what the playbook uninstall prints at its end."""

from __future__ import annotations

import yaml
from jinja2 import Environment

from ...docs.pages import ROOT, blocks

PLAYBOOK = ROOT / "playbooks/uninstall.yml"
PAGE = ROOT / "docs/how-to/uninstall.md"


def report(kinds: list[str], claims: list[str]) -> str:
    """What the last task prints if models were in the namespace ``models``."""
    (play,) = yaml.safe_load(PLAYBOOK.read_text())
    (task,) = [task for task in play["tasks"] if task["name"] == "Report the remaining objects"]
    template = Environment(trim_blocks=True).from_string(task["ansible.builtin.debug"]["msg"])  # noqa: S701 - no HTML
    return template.render(
        slipway_kinds=kinds,
        slipway_claims=claims,
        models_left={"namespaces": ["models"], "claims_known": True},
        slipway_definitions_left={"resources": kinds},
    )


def test_the_page_shows_what_the_playbook_prints() -> None:
    shown = [block.text.strip() for block in blocks(PAGE) if block.language == "text"]

    assert shown == [
        report(["models.krypton.ai", "models.kubeai.org", "..."], ["models/shared-model-cache-efs (10Gi)"]).strip(),
        report([], []).strip(),
    ]
