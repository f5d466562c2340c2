"""What a role's variables become, by Ansible's own templating and without a play."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROLES = Path(__file__).parents[3] / "roles"


@cache
def variables(role: str) -> dict[str, Any]:
    """Those in its files, unrendered."""
    folder, loader = ROLES / role, DataLoader()
    role_vars: dict[str, Any] = {}
    for file in [folder / "defaults/main.yml", *sorted((folder / "vars").rglob("*.yml"))]:
        role_vars |= loader.load_from_file(str(file), trusted_as_template=True) or {}
    return role_vars


class Rendered:
    """Variables of a role: its defaults and own ones, under those that are given."""

    def __init__(self, role: str, **given: Any) -> None:
        self._known: dict[str, Any] = {"ansible_check_mode": False, "groups": {}, "hostvars": {}, **variables(role)}
        self._known |= {"ansible_search_path": [str(ROLES / role)], **given}
        self._templar = Templar(loader=DataLoader(), variables=self._known)
        self._values: dict[str, str] = {}

    def __getitem__(self, name: str) -> Any:
        """In plain types, as it would be written into a file."""
        if name not in self._values:
            self._values[name] = json.dumps(self._templar.template(self._known[name]))
        return json.loads(self._values[name])

    def text(self, template: str) -> str:
        """What a file among the role's templates becomes."""
        lookup = trust_as_template("{{ lookup('ansible.builtin.template', asked_template) }}")
        self._known["asked_template"] = template
        return str(self._templar.template(lookup))
