# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.

"""The run of a module, from its options to its JSON result. This is the only module utility that depends on Ansible,
and modules are thin wrappers around it."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.slipway.inference.plugins.module_utils import _apply, _auth, _bulk, _manifest, _rules
from ansible_collections.slipway.inference.plugins.module_utils._apis import Kind
from ansible_collections.slipway.inference.plugins.module_utils._client import Client, Object
from ansible_collections.slipway.inference.plugins.module_utils._errors import InferenceError
from ansible_collections.slipway.inference.plugins.module_utils._readiness import summary
from ansible_collections.slipway.inference.plugins.module_utils._secrets import MASK, mask, secrets_in
from ansible_collections.slipway.inference.plugins.module_utils._spelling import did_you_mean

Spec = dict[str, Any]
Kinds: TypeAlias = Mapping[str, Sequence[Kind]]

_ACTS = {"present": _bulk.present, "patched": _bulk.patched, "absent": _bulk.absent}

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


# Fields of objects that a failed task does not show without -v: of all objects, and also of those that failed.
LONG = frozenset({"conditions", "events", "log"})
MINOR = frozenset({"drift", "phase", "url", "waited"})


class Module(AnsibleModule):
    """An Ansible module that keeps secrets out of its output: results, errors about arguments, warnings and the
    target's system log."""

    def _load_params(self) -> None:
        super()._load_params()
        # Do this first, because an error about an argument shows all arguments unchanged.
        self._keep_secrets()

    def _log_invocation(self) -> None:
        self._keep_secrets()  # In the meantime, texts have become dictionaries.
        super()._log_invocation()

    def _keep_secrets(self) -> None:
        secrets = secrets_in([self.params, _auth.options({}, os.environ)])
        secrets += _auth.secrets_of(self.params.get("kubeconfig"))
        # Short values are masked only in their fields. Masking them everywhere would garble the output.
        self.no_log_values.update(secret for secret in secrets if len(secret) >= 6)

    def _hide_arguments(self) -> None:
        self.params = {
            name: _shown_argument(mask(value), self.argument_spec.get(name, {})) for name, value in self.params.items()
        }

    def _unknown(self, msg: str) -> str:
        """Return the arguments that do not exist, with suggestions. The result is empty if there are none or Ansible's
        message already names them."""
        arguments = [
            name for argument, spec in self.argument_spec.items() for name in (argument, *spec.get("aliases", ()))
        ]
        unknown = sorted(name for name in self.params if name not in arguments and not name.startswith("_"))
        if not unknown or msg.startswith("Unsupported parameters"):
            return ""
        return " ".join(filter(None, (f"Unsupported: {', '.join(unknown)}.", did_you_mean(unknown[0], arguments))))

    def exit_json(self, **result: Any) -> NoReturn:
        self._hide_arguments()
        super().exit_json(**result)
        raise AssertionError("exit_json ends the module")

    def fail_json(self, msg: str, **result: Any) -> NoReturn:
        """End the module with a failure. Without ``error_code``, the failure comes from Ansible and is about the
        arguments."""
        if "error_code" not in result:
            msg = ". ".join(filter(None, (msg, self._unknown(msg))))
        self._hide_arguments()
        super().fail_json(msg=msg, **{"error_code": "invalid_input", "hint": "", "status": 0, **result})
        raise AssertionError("fail_json ends the module")


def _shown_argument(value: Any, spec: Mapping[str, Any]) -> Any:
    """Return an argument with masked secrets. Text in place of a dictionary or list is masked as a whole, because it
    cannot be searched for secrets."""
    if isinstance(value, str) and spec.get("type") in ("dict", "list"):
        return MASK
    if isinstance(value, list):
        return [_shown_argument(part, {**spec, "type": spec.get("elements")}) for part in value]
    if isinstance(value, dict):
        return {name: _shown_argument(part, spec.get("options", {}).get(name, {})) for name, part in value.items()}
    return value


def state_arguments(*plurals: str) -> Spec:
    """Return the arguments of a module that creates and deletes objects. ``plurals`` are the options with lists of
    objects."""
    return {
        **_auth.ARGUMENTS,
        **_OBJECT,
        **{name: {"type": "list", "elements": "dict", "options": {**_OBJECT, **_MANIFEST}} for name in plurals},
        "state": {"type": "str", "choices": [*_ACTS], "default": "present"},
        "force_conflicts": {"type": "bool", "default": False},
        "api_timeout": {"type": "int", "default": 60},
        **_wait_arguments(wait=True),
    }


def _wait_arguments(*, wait: bool) -> Spec:
    """Return the arguments about waiting. ``wait`` is the default of the argument ``wait``."""
    rule = {**_RULE, "any": {"type": "list", "elements": "dict", "options": _RULE, **_one_of("condition", "field")}}
    return {
        "wait": {"type": "bool", "default": wait},
        "wait_timeout": {"type": "int", "default": 900},
        "wait_for": {"type": "list", "elements": "dict", "options": rule, **_one_of("condition", "field", "any")},
    }


def _one_of(*names: str) -> Spec:
    return {
        "mutually_exclusive": [names, ("equals", "in", "matches", "exists")],
        "required_one_of": [names],
        **_RULE_LIMITS,
    }


def info_arguments() -> Spec:
    """Return the arguments of a module that reads objects."""
    return {
        **_auth.ARGUMENTS,
        "name": {"type": "str"},
        "namespace": {"type": "str"},
        "label_selectors": {"type": "list", "elements": "str", "default": []},
        **_wait_arguments(wait=False),
    }


def run_state(module: Module, kinds: Kinds) -> None:
    """Create, change or delete the objects in the task, and end the module.

    ``kinds`` maps each option to the kinds that its objects may have, one for each API. Options that others need come
    first. The kinds of the last option also apply to the single object and to ``wait_for``.
    """
    run(module, lambda: _change(module, kinds))


def run_info(
    module: Module, kind: Kind, plural: str, extra_fields: Callable[[Object], Mapping[str, Any]] | None = None
) -> None:
    """Read the objects of a kind and of the kinds that belong to it, and end the module.

    ``extra_fields`` returns fields to add to the summary of an object.
    """
    run(module, lambda: _look(module, kind, plural, extra_fields))


def run(module: Module, work: Callable[[], dict[str, Any]]) -> None:
    """End the module with the result of ``work``, or with the error that it raises."""
    try:
        result = work()
    except InferenceError as error:
        _fail(module, error, {"changed": False})
    except Exception as error:  # noqa: BLE001  (a play can branch on whatever went wrong)
        failure = InferenceError("internal_error", f"{type(error).__name__}: {error}.")
        _fail(module, failure, {"changed": False, "exception": traceback.format_exc()})
    module.exit_json(**result)


# Ansible prints the message twice, and long advice would be printed a third time.
HINT_IN_MESSAGE = "See the end of msg."


def _fail(module: Module, error: InferenceError, result: dict[str, Any]) -> NoReturn:
    hint = error.hint
    if module._verbosity < 1:  # noqa: SLF001  (Ansible has no other way to read it)
        result, hint = in_brief(result), HINT_IN_MESSAGE if error.advice else hint
    module.fail_json(msg=error.text, error_code=error.code, hint=hint, status=error.status, **result)


def in_brief(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result that a failed task shows without ``-v``: all objects, but without their long fields."""
    return {
        name: [_in_brief(name, one) for one in value] if isinstance(value, list) and name != "diff" else value
        for name, value in result.items()
    }


def _in_brief(of: str, one: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry of a result without its long fields. ``of`` is the name of the list that contains the entry."""
    if of != "resources":
        left_out = LONG | MINOR if "error_code" in one else LONG
        return {name: value for name, value in one.items() if name not in left_out}
    metadata = {name: value for name, value in one["metadata"].items() if name in ("name", "namespace")}
    return {"apiVersion": one["apiVersion"], "kind": one["kind"], "metadata": metadata}


def _change(module: Module, kinds: Kinds) -> dict[str, Any]:
    params = module.params
    desired = _manifest.parse(_items(params, kinds), params["namespace"], params["state"] == "present")
    options = _bulk.Options(
        check_mode=module.check_mode,
        wait=params["wait"],
        wait_timeout=params["wait_timeout"],
        wait_for=_wait_for(params, _main(kinds)),
        force_conflicts=params["force_conflicts"],
        api_timeout=params["api_timeout"],
        prune=_prune(params, _main(kinds), desired),
    )
    if not desired and not options.prune:
        return {"changed": False, "results": []}
    report = _ACTS[params["state"]](Client(_auth.connect(params), module.warn), desired, options)
    for warning in report.warnings:
        module.warn(warning)
    results = [_result(item.key, report, params["state"]) for item in desired if item.key in report.results]
    result: dict[str, Any] = {"changed": report.changed, "results": results, "diff": report.diff}
    if options.prune:
        result["pruned"] = [mask(report.results[key]) for key in report.pruned if key in report.results]
    if report.error is not None:
        _fail(module, report.error, result)
    return result


def _result(key: _manifest.Key, report: _bulk.Report, state: str) -> dict[str, Any]:
    """Return the result for an object, with masked secrets. Secrets in its drift are already masked, because detecting
    them needs the field names."""
    shown: dict[str, Any] = mask(report.results[key])
    return shown if state == "absent" else {**shown, "drift": report.drift.get(key, [])}


def _prune(params: Mapping[str, Any], kinds: Sequence[Kind], desired: Sequence[_manifest.Wanted]) -> _bulk.Prune | None:
    """Return the objects that the task prunes: those of the APIs and namespaces that the task uses. The result is None
    without the option."""
    if params.get("prune") is None:
        return None
    if params["state"] != "present":
        raise InferenceError("invalid_input", "Nothing was changed. prune requires state=present.")
    selector = _manifest.selector(params["prune"])
    named = {item.key.kind for item in desired}
    apis = [kind for kind in kinds if len(kinds) == 1 or named.intersection(kind.all)]
    namespaces = dict.fromkeys(filter(None, [params["namespace"], *(item.key.namespace for item in desired)]))
    within = [one for kind in apis for one in kind.all if one.namespaced]
    beyond = [one for kind in apis for one in kind.all if not one.namespaced]
    places = [_manifest.Place(kind, namespace) for kind in within for namespace in namespaces]
    places += [_manifest.Place(kind, "") for kind in beyond if not params["namespace"] or kind in named]
    if not places:
        text = "Nothing was changed. prune needs a namespace. Set namespace, and api if no model sets it."
        raise InferenceError("invalid_input", text)
    return _bulk.Prune(selector, tuple(places))


def _items(params: Mapping[str, Any], kinds: Kinds) -> Iterator[tuple[Sequence[Kind], Mapping[str, Any]]]:
    for option, possible in kinds.items():
        for item in params[option] or ():
            yield possible, item
    if params["name"] is not None:
        yield _main(kinds), {name: params.get(name) for name in (*_OBJECT, "kind")}


def _main(kinds: Kinds) -> Sequence[Kind]:
    """Return the kinds that the module is named after, from the last option."""
    return [*kinds.values()][-1]


def _wait_for(params: Mapping[str, Any], kinds: Iterable[Kind]) -> dict[Kind, _rules.Rule]:
    """Return the rule of the option ``wait_for`` for each of these kinds. The result is empty if the option is not
    set."""
    if not params["wait_for"]:
        return {}
    return dict.fromkeys((one for kind in kinds for one in kind.all), _rules.parse(params["wait_for"]))


def _look(
    module: Module, kind: Kind, plural: str, extra_fields: Callable[[Object], Mapping[str, Any]] | None
) -> dict[str, Any]:
    params = module.params
    client = Client(_auth.connect(params), module.warn)
    # Cluster-scoped objects are in no namespace.
    kinds = [one for one in kind.all if one.namespaced or not params["namespace"]]
    wait_for = _wait_for(params, [kind])

    def read(until: float) -> _apply.Listed:
        return _apply.listed(client, kinds, params["namespace"] or "", _query(params), until)

    if params["wait"] and not module.check_mode:
        options = _bulk.Options(wait_timeout=params["wait_timeout"], wait_for=wait_for)
        listing, report = _bulk.followed(client, kind, read, options)
    else:
        listing, report = read(time.monotonic() + _bulk.API_SECONDS), _bulk.Report()
    result = {
        "changed": False,
        "api_found": listing.api_found,
        plural: [_shown_state(key, resource, extra_fields, report) for key, resource in listing.objects.items()],
        "resources": [_shown(key.kind, resource) for key, resource in listing.objects.items()],
    }
    if report.error is not None:
        _fail(module, report.error, result)
    return result


def _query(params: Mapping[str, Any]) -> dict[str, str]:
    return {
        "fieldSelector": f"metadata.name={params['name']}" if params["name"] else "",
        "labelSelector": ",".join(params["label_selectors"]),
    }


def _shown_state(
    key: _manifest.Key,
    resource: Object,
    extra_fields: Callable[[Object], Mapping[str, Any]] | None,
    report: _bulk.Report,
) -> dict[str, Any]:
    """Return the summary of an object that was read, with the results of a wait and with masked secrets."""
    waited = report.results.get(key, {})
    shown: dict[str, Any] = mask(
        {**summary(key.kind, resource), **waited, **(extra_fields(resource) if extra_fields else {})}
    )
    return shown


def _shown(kind: Kind, resource: Object) -> Object:
    """Return a whole object without ``managedFields`` and with masked secrets."""
    metadata = {key: value for key, value in resource["metadata"].items() if key != "managedFields"}
    # Items of a list name neither apiVersion nor kind.
    named = {"apiVersion": kind.api_version, "kind": kind.kind}
    shown: Object = mask({**named, **resource, "metadata": metadata})
    return shown
