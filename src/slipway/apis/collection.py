"""The command ``slipway apis``, which generates files of the Ansible collection from the descriptions of the APIs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from slipway.apis import DESCRIPTIONS
from slipway.apis.description import Description, Resource, Scrape, rule
from slipway.kube.objects import Kind, Object
from slipway.serving.routing.scaling import WAKE

TABLE = "plugins/module_utils/_apis_data.py"
AUTHOR = "roles/models/files/model-author.yml"
LINE = 120
"""Maximum number of characters in a line of generated Python."""
WATCHED = ("get", "list", "watch", "patch")
"""Verbs of the controller on the kinds of an API. It patches resources to set defaults and annotations, and to add and
remove finalizers."""

HEADER = """\
# Copyright: (c) 2026, The slipway.inference authors
# {license}

# Private to this collection: it may change in any release.
# Written by `slipway apis` from src/slipway/apis; do not edit.

\"\"\"{purpose}\"\"\"

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

"""
# REUSE-IgnoreStart  # these are the headers of the generated files
BSD = """\
Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause"""
GPL = """\
GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later"""
# REUSE-IgnoreEnd
AUTHOR_ROLE = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: model-author
rules:
  - apiGroups: [{groups}]
    resources: [{resources}]
    verbs: [get, list, watch, create, patch, delete]
{reading}  - apiGroups: [""]
    resources: [events, pods, pods/log]
    verbs: [get, list, watch]
"""
READING = """\
  # Only the operator writes these kinds, because they affect every namespace.
  - apiGroups: [{groups}]
    resources: [{resources}]
    verbs: [get, list, watch]
"""


def files(descriptions: Iterable[Description] = DESCRIPTIONS) -> dict[str, str]:
    """Return the text of each generated file, by its path in the collection."""
    apis = tuple(descriptions)
    schemas = {name: schema for api in apis for name, schema in api.documents.items()}
    return {
        TABLE: python("The serving APIs, as plain data.", BSD, "APIS", {api.name: entry(api) for api in apis}),
        AUTHOR: author_role(apis),
        **{
            f"plugins/plugin_utils/_{name}_schema.py": python(f"JSON Schema of {name}.", GPL, "SCHEMA", schema)
            for name, schema in schemas.items()
        },
    }


def entry(api: Description) -> Object:
    """Return the data about an API that the collection's plugins and roles read."""
    kinds = [resource.kind for resource in api.resources]
    optional = {
        "adapter_label": api.adapter_label,
        "original": api.original,
        "pod_manager": api.pod_manager,
        "secrets": dict(api.secrets),
    }
    return {
        "definitions": [definition(kind) for kind in kinds],
        # APIs without engines provide models for the workloads of others.
        "models": {**modules(api.resources), **({} if api.scrape else {"unserved": True})},
        "pod_labels": [*api.pod_labels],
        "resources": [described(resource) for resource in api.resources],
        "rules": rules(api),
        **({"scrape": scrape(api.name, api.scrape)} if api.scrape else {}),
        **{name: value for name, value in optional.items() if value},
    }


def definition(kind: Kind) -> str:
    """Return the name of the kind's CustomResourceDefinition."""
    return f"{kind.plural}.{kind.group}"


def modules(resources: Iterable[Resource]) -> Object:
    """Return the names of the CustomResourceDefinitions of the namespaced kinds that the Ansible modules ``model`` and
    ``inference_service`` handle, and the apiVersion of models. Raise ValueError if ``model`` handles no namespaced
    kind."""
    by_module = {resource.module: resource.kind for resource in resources if resource.kind.namespaced}
    model, service = by_module.get("model"), by_module.get("inference_service")
    if model is None:
        raise ValueError('describe.py: say module="model" of one kind that has a namespace')
    services = {"services": definition(service)} if service else {}
    return {"definition": definition(model), **services, "version": model.api_version}


def described(resource: Resource) -> Object:
    """Return a kind as plain data: its path on the API server, its status fields, and the rules by which the Ansible
    modules decide whether a resource is ready."""
    fields = msgspec.to_builtins(resource)
    rules = fields.pop("readiness")
    rules.pop("answering", None)
    fields.pop("scaled", None)
    fields.pop("authored", None)
    place = msgspec.to_builtins(resource.kind)
    place.pop("metadata_only")  # only the controller needs to know how it reads objects
    return {**place, **fields, **rules, "kind": resource.kind.kind}


def rules(api: Description) -> Object:
    """Return the RBAC rules for an API, by where they apply. ``resources`` and ``work`` apply to namespaces with the
    API's resources, ``cluster`` to the whole cluster, and ``own`` to the controller's namespace. ``wake`` contains the
    gateway's rules, and the others are the controller's."""
    kinds = [resource.kind for resource in api.resources]
    woken = [resource.kind for resource in api.resources if resource.wakes]
    children = [kind for resource in api.resources for kind in resource.scaled]
    return {
        "resources": own_rules(kind for kind in kinds if kind.namespaced),
        "work": [
            *(rule(kind.group, [f"{kind.plural}/scale"], ("patch",)) for kind in woken),
            # The API server lets the controller grant only permissions that it has itself.
            *(rule(kind.group, [f"{kind.plural}/scale"], WAKE) for kind in children),
            *(grant.rule() for grant in api.grants.work),
        ],
        "cluster": [
            *own_rules(kind for kind in kinds if not kind.namespaced),
            *(grant.rule() for grant in api.grants.cluster),
        ],
        "own": [grant.rule() for grant in api.grants.own],
        "wake": [rule(kind.group, [f"{kind.plural}/scale"], WAKE) for kind in woken],
    }


def own_rules(kinds: Iterable[Kind]) -> list[Object]:
    """Return the RBAC rules for the controller's permissions on an API's own ``kinds``."""
    return [
        rule(group, [f"{plural}{suffix}" for plural in plurals], verbs)
        for group, plurals in by_group(kinds).items()
        # The last one is needed to own children if the API server enforces permissions of owner references.
        for suffix, verbs in (("", WATCHED), ("/status", ("patch",)), ("/finalizers", ("update",)))
    ]


def by_group(kinds: Iterable[Kind]) -> dict[str, list[str]]:
    """Return the plurals of the kinds, by API group. Duplicate kinds are listed once."""
    groups: dict[str, list[str]] = {}
    for kind in dict.fromkeys(kinds):
        groups.setdefault(kind.group, []).append(kind.plural)
    return groups


def scrape(name: str, engines: Scrape) -> Object:
    """Return an API's engines as a scrape target of the role ``monitoring``."""
    fields: Object = msgspec.to_builtins(engines)
    return {"name": f"slipway-engines-{name}", "job": "slipway-engines", "ports": [*engines.ports], **fields}


def author_role(apis: Iterable[Description]) -> str:
    """Return the YAML manifest of a ClusterRole with the minimum permissions for authors of models."""
    resources = [resource for api in apis for resource in api.resources]
    own = [one.kind for one in resources if one.kind.namespaced and one.authored]
    operators = listed(one.kind for one in resources if one.kind not in own)
    reading = READING.format(**operators) if operators["groups"] else ""
    return AUTHOR_ROLE.format(**listed(own), reading=reading)


def listed(kinds: Iterable[Kind]) -> dict[str, str]:
    """Return the ``groups`` and ``resources`` of an RBAC rule for these kinds, each as a comma-separated string."""
    groups = by_group(kinds)
    plurals = dict.fromkeys(plural for group in groups.values() for plural in group)
    return {"groups": ", ".join(groups), "resources": ", ".join(plurals)}


def python(purpose: str, license_: str, name: str, value: Mapping[str, Any]) -> str:
    """Return the source of a Python module that defines one constant, ``name``."""
    return HEADER.format(purpose=purpose, license=license_) + f"{name}: Mapping[str, Any] = {literal(value)}\n"


def literal(value: object, indent: int = 0, taken: int = 0) -> str:
    """Format plain data as a Python literal, as ruff would. ``indent`` is the number of spaces before the line, and
    ``taken`` is the number of its other characters outside of the literal, such as those of a key."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if not isinstance(value, (dict, list, tuple)):
        return repr(value)
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    parts = [*value.items()] if isinstance(value, dict) else [("", part) for part in value]
    named = [(f"{json.dumps(name)}: " if isinstance(value, dict) else "", part) for name, part in parts]
    line = opening + ", ".join(name + literal(part, -LINE * LINE) for name, part in named) + closing
    if indent + taken + len(line) <= LINE:
        return line
    inner = " " * (indent + 4)
    lines = (f"{inner}{name}{literal(part, indent + 4, len(name) + 1)},\n" for name, part in named)
    return f"{opening}\n{''.join(lines)}{' ' * indent}{closing}"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="slipway apis", description="Write the collection's data about the APIs.")
    parser.add_argument("collection", type=Path, metavar="DIR", help="directory of the collection")
    folder: Path = parser.parse_args(argv).collection
    for path, text in files().items():
        (folder / path).write_text(text)
    return 0
