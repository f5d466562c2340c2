"""What a role's variables become, by Ansible's own templating and without a play."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROLES = Path(__file__).parents[3] / "roles"


class Rendered:
    """Variables of a role: its defaults and own ones, under those that are given."""

    def __init__(self, role: str, **given: Any) -> None:
        folder = ROLES / role
        loader = DataLoader()
        files = [folder / "defaults/main.yml", *sorted((folder / "vars").rglob("*.yml"))]
        self._known: dict[str, Any] = {"ansible_check_mode": False, "groups": {}, "hostvars": {}}
        for file in files:
            self._known |= loader.load_from_file(str(file), trusted_as_template=True) or {}
        self._known |= {"ansible_search_path": [str(folder)], **given}
        self._templar = Templar(loader=loader, variables=self._known)

    def __getitem__(self, name: str) -> Any:
        """In plain types, as it would be written into a file."""
        return json.loads(json.dumps(self._templar.template(self._known[name])))

    def text(self, template: str) -> str:
        """What a file among the role's templates becomes."""
        asked = trust_as_template("{{ lookup('ansible.builtin.template', asked_template) }}")
        self._known["asked_template"] = template
        return str(self._templar.template(asked))
