"""Later fields: what LLMKube has gained since the version that we serve, as far as we know it by name. Pure.

The API server keeps these fields and nothing follows from them, which the condition FieldsIgnored tells. The names are
data, ``later_fields.json``, which ``scripts/later_fields.py`` makes from the definitions of a later version; a field
that becomes one of our types has to leave them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files

from slipway.kube.conditions import Condition
from slipway.kube.crd import set_fields
from slipway.kube.objects import Object

LATER: Mapping[str, Mapping[str, Object]] = json.loads(
    files("slipway.apis.llmkube").joinpath("later_fields.json").read_text()
)
"""Kind -> path of a field in its spec -> its schema."""


def given(kind: str, spec: Object) -> list[str]:
    """Those that a spec sets."""
    return set_fields(spec, LATER[kind])


def ignored(kind: str, spec: Object) -> list[Condition]:
    """Told only where there is something to tell."""
    names = [f"spec.{name}" for name in given(kind, spec)]
    if not names:
        return []
    text = f"These are fields of later versions of LLMKube and have no effect here: {', '.join(names)}."
    return [Condition("FieldsIgnored", "True", "UnsupportedFields", text)]
