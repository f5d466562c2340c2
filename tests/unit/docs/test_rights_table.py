"""The page on rights lists those of each account, as the roles grant them.

SLIPWAY_WRITE_RIGHTS=1 writes the list into the page.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import product
from typing import Any

from slipway.apis import DESCRIPTIONS
from slipway.apis.ome.services.plan import POD_READER

from ...docs.pages import ROOT
from ..plugins.importable import make_importable
from ..roles.rendering import Rendered

make_importable()
PAGE = ROOT / "docs/reference/cluster/rights.md"
HEAD = ["| account | scope | verbs | resources |", "| --- | --- | --- | --- |"]
APIS = [api.name for api in DESCRIPTIONS]
OF_ROUTER = "namespace of its InferenceService"
SOMEWHERE, OWN, EVERYWHERE = "model namespaces", "own namespace", "whole cluster"


def granted() -> dict[tuple[str, str], list[dict[str, Any]]]:
    """(account, where) -> rules, of an installation that serves all APIs."""
    controller, gateway = Rendered("controller", controller_apis=APIS), Rendered("gateway", gateway_apis=APIS)
    narrow, depot = Rendered("controller", controller_apis=APIS, controller_namespaces=["a"]), Rendered("depot")
    registry = Rendered("model_registry")
    collector = registry["__model_registry_collector"]
    return {
        ("controller", EVERYWHERE): narrow["__controller_cluster_rules"],
        ("controller", SOMEWHERE): controller["__controller_work_rules"],
        ("controller", OWN): controller["__controller_own_rules"],
        ("gateway", EVERYWHERE): gateway["__gateway_cluster_rules"] + gateway["__gateway_ui_rules"],
        ("gateway", SOMEWHERE): gateway["__gateway_wake_rules"],
        ("gateway", OWN): Rendered("gateway", gateway_api_keys={"a": "b"})["__gateway_keys_rules"],
        ("depot", EVERYWHERE): depot["__depot_cluster_rules"],
        ("depot", SOMEWHERE): depot["__depot_tenant_rules"],
        ("depot", OWN): depot["__depot_namespace_rules"],
        ("registry collector", OWN): [rule for one in collector if one["kind"] == "Role" for rule in one["rules"]],
        ("registry key Job", OWN): registry["__model_registry_keys_rules"],
        ("OME router", OF_ROUTER): [POD_READER],
    }


def resources(rule: dict[str, Any]) -> Iterable[str]:
    names = f" named {', '.join(rule['resourceNames'])}" if rule.get("resourceNames") else ""
    for group, resource in product(rule["apiGroups"], rule["resources"]):
        kind, slash, part = resource.partition("/")
        yield f"`{kind}{'.' if group else ''}{group}{slash}{part}`{names}"


def table() -> list[str]:
    rows = []
    for (account, where), rules in granted().items():
        verbs: dict[str, set[str]] = {}
        for rule in rules:
            for resource in resources(rule):
                verbs.setdefault(resource, set()).update(rule["verbs"])
        merged: dict[str, list[str]] = {}
        for resource, allowed in sorted(verbs.items()):
            merged.setdefault(", ".join(sorted(allowed)), []).append(resource)
        rows += [
            f"| {account} | {where} | {verb_list} | {', '.join(names)} |" for verb_list, names in sorted(merged.items())
        ]
    return [*HEAD, *rows]


def test_the_page_has_the_rights_that_the_roles_grant() -> None:
    text = PAGE.read_text()
    shown = [line for line in text.splitlines() if line.startswith("|")]
    if os.environ.get("SLIPWAY_WRITE_RIGHTS"):
        PAGE.write_text("\n".join([text.partition("\n| ")[0].rstrip(), "", *table(), ""]))
        return
    assert shown == table()
