# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.

"""A module's run, from its options to its JSON: the only util that knows Ansible. Modules are thin around it."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.slipway.inference.plugins.module_utils import _auth, _bulk, _manifest, _rules
from ansible_collections.slipway.inference.plugins.module_utils._apis import Kind
from ansible_collections.slipway.inference.plugins.module_utils._client import Client, Object, Request
from ansible_collections.slipway.inference.plugins.module_utils._errors import InferenceError
from ansible_collections.slipway.inference.plugins.module_utils._readiness import summary
from ansible_collections.slipway.inference.plugins.module_utils._secrets import MASK, mask, secrets_in

Spec = dict[str, Any]

_RULE: Spec = {
    "condition": {"type": "str"},
    "status": {"type": "str", "choices": ["True", "False", "Unknown"]},
    "reason": {"type": "list", "elements": "str"},
    "field": {"type": "str"},
    "equals": {"type": "raw"},
    "in": {"type": "list", "elements": "raw"},
    "matches": {"type": "str"},
    "exists": {"type": "bool"},
}
_RULE_LIMITS: Spec = {
    "required_by": {"status": ["condition"], "reason": ["condition"]}
    | {test: ["field"] for test in ("equals", "in", "matches", "exists")},
}

_OBJECT: Spec = {
    "name": {"type": "str"},
    "namespace": {"type": "str"},
    "labels": {"type": "dict"},
    "annotations": {"type": "dict"},
    "spec": {"type": "dict"},
}

_MANIFEST: Spec = {
    "api_version": {"type": "str", "aliases": ["apiVersion"]},
    "kind": {"type": "str"},
    "metadata": {"type": "dict"},
    "status": {"type": "dict"},
}


class Module(AnsibleModule):
    """Keeps secrets out of all that it says: results, errors in its arguments, warnings, the target's system log."""

    def _load_params(self) -> None:
        super()._load_params()
        # At once: an error in the arguments shows all of them as they came.
        self._keep_secrets()

    def _log_invocation(self) -> None:
        self._keep_secrets()  # Texts have become dictionaries meanwhile.
        super()._log_invocation()

    def _keep_secrets(self) -> None:
        found = secrets_in([self.params, _auth.options({}, os.environ)])
        found += _auth.secrets_of(self.params.get("kubeconfig"))
        # Short values are masked where they stand; masked everywhere they would garble the output.
        self.no_log_values.update(secret for secret in found if len(secret) >= 6)

    def _hide_arguments(self) -> None:
        self.params = {
            name: _shown_argument(mask(value), self.argument_spec.get(name, {})) for name, value in self.params.items()
        }

    def exit_json(self, **result: Any) -> NoReturn:
        self._hide_arguments()
        super().exit_json(**result)
        raise AssertionError("exit_json ends the module")

    def fail_json(self, msg: str, **result: Any) -> NoReturn:
        """Without ``error_code`` it is Ansible that finds the arguments wrong."""
        self._hide_arguments()
        super().fail_json(msg=msg, **{"error_code": "invalid_input", "hint": "", "status": 0, **result})
        raise AssertionError("fail_json ends the module")


def _shown_argument(value: Any, spec: Mapping[str, Any]) -> Any:
    """An argument as it may be shown. A text where a dictionary belongs could not be searched for secrets."""
    if isinstance(value, str) and spec.get("type") in ("dict", "list"):
        return MASK
    if isinstance(value, list):
        return [_shown_argument(part, {**spec, "type": spec.get("elements")}) for part in value]
    if isinstance(value, dict):
        return {name: _shown_argument(part, spec.get("options", {}).get(name, {})) for name, part in value.items()}
    return value


def state_arguments(*plurals: str) -> Spec:
    """Arguments of a module that makes and deletes objects; ``plurals`` name the options with many of them."""
    rule = {**_RULE, "any": {"type": "list", "elements": "dict", "options": _RULE, **_one_of("condition", "field")}}
    return {
        **_auth.ARGUMENTS,
        **_OBJECT,
        **{name: {"type": "list", "elements": "dict", "options": {**_OBJECT, **_MANIFEST}} for name in plurals},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "force_conflicts": {"type": "bool", "default": False},
        "wait": {"type": "bool", "default": True},
        "wait_timeout": {"type": "int", "default": 900},
        "wait_for": {
            "type": "list",
            "elements": "dict",
            "options": rule,
            **_one_of("condition", "field", "any"),
        },
    }


def _one_of(*names: str) -> Spec:
    return {
        "mutually_exclusive": [names, ("equals", "in", "matches", "exists")],
        "required_one_of": [names],
        **_RULE_LIMITS,
    }


def info_arguments() -> Spec:
    """Arguments of a module that reads objects."""
    return {
        **_auth.ARGUMENTS,
        "name": {"type": "str"},
        "namespace": {"type": "str"},
        "label_selectors": {"type": "list", "elements": "str", "default": []},
    }


def run_state(module: Module, kinds: Mapping[str, Kind]) -> None:
    """Makes or deletes the objects that the task names, and ends the module.

    ``kinds``: of the objects in each option, those that others need first. The last is also that of a single object,
    and what ``wait_for`` speaks of.
    """
    run(module, lambda: _change(module, kinds))


def run_info(
    module: Module, kind: Kind, plural: str, told: Callable[[Object], Mapping[str, Any]] | None = None
) -> None:
    """Reads objects of a kind and of those that belong to it, and ends the module. ``told``: what the summary of an
    object shows beyond the usual."""
    run(module, lambda: _look(module, kind, plural, told))


def run(module: Module, work: Callable[[], dict[str, Any]]) -> None:
    """Ends the module with the result of ``work``, or with the error that it raises."""
    try:
        result = work()
    except InferenceError as error:
        _fail(module, error, {"changed": False})
    except Exception as error:  # noqa: BLE001  (a play can branch on whatever went wrong)
        told = InferenceError("internal_error", f"{type(error).__name__}: {error}.")
        _fail(module, told, {"changed": False, "exception": traceback.format_exc()})
    module.exit_json(**result)


def _fail(module: Module, error: InferenceError, result: dict[str, Any]) -> NoReturn:
    module.fail_json(msg=error.text, error_code=error.code, hint=error.hint, status=error.status, **result)


def _change(module: Module, kinds: Mapping[str, Kind]) -> dict[str, Any]:
    params = module.params
    is_present = params["state"] == "present"
    wanted = _manifest.parse(_items(params, kinds), params["namespace"], is_present)
    options = _bulk.Options(
        check_mode=module.check_mode,
        wait=params["wait"],
        wait_timeout=params["wait_timeout"],
        wait_for=dict.fromkeys(_main(kinds).all, _rules.parse(params["wait_for"])) if params["wait_for"] else {},
        force_conflicts=params["force_conflicts"],
    )
    if not wanted:
        return {"changed": False, "results": []}
    act = _bulk.present if is_present else _bulk.absent
    report = act(Client(_auth.connect(params), module.warn), wanted, options)
    for warning in report.warnings:
        module.warn(warning)
    results = [report.results[item.key] for item in wanted if item.key in report.results]
    result = {"changed": report.changed, "results": mask(results), "diff": report.diff}
    if report.error is not None:
        _fail(module, report.error, result)
    return result


def _items(params: Mapping[str, Any], kinds: Mapping[str, Kind]) -> Iterator[tuple[Kind, Mapping[str, Any]]]:
    for option, kind in kinds.items():
        for item in params[option] or ():
            yield kind, item
    if params["name"] is not None:
        yield _main(kinds), {name: params.get(name) for name in (*_OBJECT, "kind")}


def _main(kinds: Mapping[str, Kind]) -> Kind:
    """The kind that the module is about."""
    return [*kinds.values()][-1]


def _look(
    module: Module, kind: Kind, plural: str, told: Callable[[Object], Mapping[str, Any]] | None
) -> dict[str, Any]:
    params = module.params
    query = {
        "fieldSelector": f"metadata.name={params['name']}" if params["name"] else "",
        "labelSelector": ",".join(params["label_selectors"]),
    }
    client, until = Client(_auth.connect(params), module.warn), time.monotonic() + _bulk.API_SECONDS
    # What is of the whole cluster is in no namespace.
    asked = [one for one in kind.all if one.namespaced or not params["namespace"]]
    lists = [_listed(client, Request("list", one, params["namespace"] or "", query=query), until) for one in asked]
    found = [(one, resource) for one, listed in zip(asked, lists, strict=True) for resource in listed or ()]
    return {
        "changed": False,
        "api_found": not asked or any(listed is not None for listed in lists),
        plural: [mask({**summary(one, resource), **(told(resource) if told else {})}) for one, resource in found],
        "resources": [_shown(one, resource) for one, resource in found],
    }


def _listed(client: Client, request: Request, until: float) -> list[Object] | None:
    """All objects that a request asks for; None where the cluster does not know their kind."""
    try:
        return client.pages(request, until)[0]
    except InferenceError as error:
        if error.code == "definition_missing":
            return None
        raise


def _shown(kind: Kind, resource: Object) -> Object:
    """A whole object without what only the API server cares for, and without secrets."""
    metadata = {key: value for key, value in resource["metadata"].items() if key != "managedFields"}
    # Items of a list name neither apiVersion nor kind.
    named = {"apiVersion": kind.api_version, "kind": kind.kind}
    shown: Object = mask({**named, **resource, "metadata": metadata})
    return shown
