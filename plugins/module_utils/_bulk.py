# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.

"""What a module does with its objects: read, check, apply or delete, wait, and say what came of each.

    wanted -> read -> those that differ -> dry run of all -> apply all -> wait for all -> outcome

They may be of several kinds, those that others need first. Knows nothing of Ansible: the outcome is what a module
returns.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.slipway.inference.plugins.module_utils import _diff, _messages
from ansible_collections.slipway.inference.plugins.module_utils._apis import Kind
from ansible_collections.slipway.inference.plugins.module_utils._apply import Found, Outcome, apply, delete, read
from ansible_collections.slipway.inference.plugins.module_utils._client import FIELD_MANAGER, Client, Object
from ansible_collections.slipway.inference.plugins.module_utils._diagnose import diagnose
from ansible_collections.slipway.inference.plugins.module_utils._errors import InferenceError
from ansible_collections.slipway.inference.plugins.module_utils._manifest import Key, Place, Wanted
from ansible_collections.slipway.inference.plugins.module_utils._readiness import FAILED, READY, WAITING, summary
from ansible_collections.slipway.inference.plugins.module_utils._rules import Rule
from ansible_collections.slipway.inference.plugins.module_utils._wait import Board, follow

# How long reading and applying may take, restarts of the API server included.
API_SECONDS = 60.0
# Of how many objects that are not ready the events and logs are fetched.
DIAGNOSED = 3
# How long that may take in all.
DIAGNOSIS_SECONDS = 5.0


@dataclass(frozen=True)
class Options:
    """How a module was called. ``wait_timeout`` in seconds; ``wait_for`` replaces the readiness rules of kinds."""

    check_mode: bool = False
    wait: bool = True
    wait_timeout: float = 900.0
    wait_for: Mapping[Kind, Rule] = field(default_factory=dict)
    force_conflicts: bool = False


@dataclass
class Report:
    """What came of all objects. ``error`` is set when the module has to fail."""

    results: dict[Key, dict[str, Any]] = field(default_factory=dict)
    diff: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    error: InferenceError | None = None

    @property
    def changed(self) -> bool:
        return any(result["changed"] for result in self.results.values())


def present(client: Client, wanted: Sequence[Wanted], options: Options) -> Report:
    """Makes the objects as wanted and waits until they are ready."""
    report = Report()
    until = time.monotonic() + API_SECONDS
    found = read(client, [item.key for item in wanted], until, predict=options.check_mode)
    after = dict(found.objects)
    differ = [item for item in wanted if not _diff.unchanged(after.get(item.key), item.manifest, FIELD_MANAGER)]
    sent: dict[Key, Outcome] = {}
    if differ and (options.check_mode or len(differ) > 1):
        sent = apply(client, differ, until, force=options.force_conflicts, dry_run=True)
        if options.check_mode:
            sent = _predicted(sent, differ, report)
        if _refused(sent, differ, report, "refused"):
            return report
    if differ and not options.check_mode:
        sent = apply(client, differ, until, force=options.force_conflicts, dry_run=False)
    after.update({key: outcome for key, outcome in sent.items() if not isinstance(outcome, InferenceError)})
    for key, label in _messages.shown(item.key for item in wanted).items():
        if key in after:
            _note(report, key, label, found.objects.get(key), after[key])
    if _refused(sent, differ, report, "not applied" if len(differ) > 1 else "refused"):
        return report
    if options.wait and not options.check_mode:
        _wait(client, {item.key: after[item.key] for item in wanted}, found, options, report)
    return report


def absent(client: Client, wanted: Sequence[Wanted], options: Options) -> Report:
    """Deletes the objects and waits until they, and what belongs to them, are gone."""
    report = Report()
    until = time.monotonic() + API_SECONDS
    found = read(client, [item.key for item in wanted], until, predict=True)
    there = [item for item in wanted if item.key in found.objects]
    outcomes = delete(client, found.objects, there, until, dry_run=options.check_mode)
    for key, label in _messages.shown(item.key for item in wanted).items():
        before, outcome = found.objects.get(key), outcomes.get(key)
        if isinstance(outcome, InferenceError):
            continue
        # One that is going already is waited for, but its going is not this task's doing. Neither is that of one that
        # had gone when its deletion was asked for.
        changed = bool(before and outcome) and not (before or {})["metadata"].get("deletionTimestamp")
        report.results[key] = {**_named(key), "changed": changed, "waited": 0.0}
        if changed:
            # The whole spec goes, whoever owned the fields.
            spec = {"spec": before.get("spec")} if before else {}
            report.diff.append(_diff.entry(label, spec, {}))
    if _refused(outcomes, there, report, "not deleted"):
        return report
    if options.wait and not options.check_mode:
        _wait(client, {item.key: found.objects[item.key] for item in there}, found, options, report, gone=True)
    return report


def _predicted(outcomes: Mapping[Key, Outcome], wanted: Iterable[Wanted], report: Report) -> dict[Key, Outcome]:
    """In check mode, what is missing may be made by a task before this one: the object is predicted, with a warning."""
    manifests = {item.key: item.manifest for item in wanted}
    result: dict[Key, Outcome] = {}
    unchecked: dict[str, list[str]] = {}
    for key, outcome in outcomes.items():
        result[key] = outcome
        if isinstance(outcome, InferenceError) and outcome.code in ("definition_missing", "namespace_missing"):
            unchecked.setdefault(outcome.message, []).append(key.label)
            result[key] = {**manifests[key]}
    report.warnings += [
        f"{message} {_messages.names(labels)} cannot be checked by the server yet."
        for message, labels in unchecked.items()
    ]
    return result


def _refused(outcomes: Mapping[Key, Outcome], asked: Iterable[Wanted], report: Report, word: str) -> bool:
    """Whether the server refused something; then the report says what."""
    errors = {key: outcome for key, outcome in outcomes.items() if isinstance(outcome, InferenceError)}
    for key, error in errors.items():
        result = report.results.setdefault(key, _named(key))
        result.update(changed=False, error_code=error.code, message=error.message)
    if errors:
        report.error = _messages.refused(errors, outcomes, [item.key for item in asked], word)
    return bool(errors)


def _named(key: Key) -> dict[str, Any]:
    return {"kind": key.kind.kind, "name": key.name, "namespace": key.namespace}


def _note(report: Report, key: Key, label: str, before: Object | None, after: Object) -> None:
    """Takes an object into the report, with what has changed of it."""
    if "managedFields" in after["metadata"]:
        was, now = _diff.compare(before, after, FIELD_MANAGER, key.kind.api_version)
    else:
        was, now = {}, _diff.content(after)  # Predicted without the server.
    changed = before is None or was != now
    report.results[key] = {**summary(key.kind, after), "changed": changed, "waited": 0.0}
    if changed:
        report.diff.append(_diff.entry(label, was, now))


def _wait(
    client: Client,
    resources: Mapping[Key, Object],
    found: Found,
    options: Options,
    report: Report,
    *,
    gone: bool = False,
) -> None:
    started = time.monotonic()
    until = started + options.wait_timeout
    board = Board(options.wait_for, gone=gone)
    versions = dict(found.versions)
    for key, resource in resources.items():
        board.add(key, resource)
        place = Place(key.kind, key.namespace)
        # A single object was not listed: its watch continues from the object's own version.
        versions[place] = versions.get(place) or resource["metadata"]["resourceVersion"]
    follow(client, board, versions, until)
    done = board.wait(until)
    for key, item in board.items.items():
        result = report.results[key]
        if not gone and item.resource is not None:
            result.update(summary(key.kind, item.resource))
        if item.verdict.state != READY:
            result.update(reason=item.verdict.reason, message=item.verdict.message)
        waited = time.monotonic() - started if item.verdict.state == WAITING else item.waited
        result["waited"] = round(waited, 1)
    if not done:
        _explain(client, board, options, report, gone=gone)


def _explain(client: Client, board: Board, options: Options, report: Report, *, gone: bool) -> None:
    """Says what kept the wait from its end. Failures come before those that were still on their way."""
    failed = {key: item for key, item in board.items.items() if item.verdict.state == FAILED}
    late = {key: item for key, item in board.items.items() if item.verdict.state == WAITING}
    until = time.monotonic() + DIAGNOSIS_SECONDS
    for key, item in [*(failed or late).items()][:DIAGNOSED]:
        if item.resource is not None:
            report.results[key].update(diagnose(client, key.kind, item.resource, until))
    for key, item in failed.items():
        report.results[key]["error_code"] = "deleted" if item.verdict.reason == "Deleted" else "failed"
    if failed:
        report.error = _messages.failed({key: report.results[key] for key in failed}, board.items)
        return
    if board.error is not None:
        report.error = board.error
        return
    told = {key: report.results[key] for key in late}
    report.error = _messages.late(told, board.items, options.wait_timeout, board.trouble, gone=gone)
    for key in late:
        report.results[key]["error_code"] = report.error.code
