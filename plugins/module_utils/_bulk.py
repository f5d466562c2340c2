# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.

"""The work of a module on its objects: read, check, apply or delete, wait, and report the result of each.

    desired objects -> read -> those that differ -> dry run of all -> apply all -> wait for all -> report

The objects may be of several kinds, with kinds that others need first. This module does not depend on Ansible: a report
contains what an Ansible module returns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.slipway.inference.plugins.module_utils import _diff, _messages
from ansible_collections.slipway.inference.plugins.module_utils._apis import Kind
from ansible_collections.slipway.inference.plugins.module_utils._apply import (
    Found,
    Listed,
    Outcome,
    apply,
    delete,
    listed,
    read,
)
from ansible_collections.slipway.inference.plugins.module_utils._client import FIELD_MANAGER, Client, Object
from ansible_collections.slipway.inference.plugins.module_utils._diagnose import diagnose
from ansible_collections.slipway.inference.plugins.module_utils._errors import InferenceError
from ansible_collections.slipway.inference.plugins.module_utils._manifest import Key, Place, Wanted
from ansible_collections.slipway.inference.plugins.module_utils._readiness import (
    DONE,
    FAILED,
    READY,
    WAITING,
    judge,
    summary,
    warning,
)
from ansible_collections.slipway.inference.plugins.module_utils._rules import Rule
from ansible_collections.slipway.inference.plugins.module_utils._wait import Board, follow

# Seconds that reading may take, including restarts of the API server.
API_SECONDS = 60.0
# Seconds between two checks for objects to wait for.
POLL_SECONDS = 2.0
# Number of objects that are not ready for which events and logs are fetched.
DIAGNOSED = 3
# Seconds that fetching them may take in total.
DIAGNOSIS_SECONDS = 5.0


@dataclass(frozen=True)
class Prune:
    """Objects to delete unless they are desired: all that a label selector matches in these kinds and namespaces."""

    selector: str
    places: tuple[Place, ...]


@dataclass(frozen=True)
class Options:
    """Options of a module. Times are in seconds.

    ``wait_for`` replaces the readiness rules of kinds. ``api_timeout`` limits reading and writing, and ``wait_timeout``
    the wait after that.
    """

    check_mode: bool = False
    wait: bool = True
    wait_timeout: float = 900.0
    wait_for: Mapping[Kind, Rule] = field(default_factory=dict)
    force_conflicts: bool = False
    api_timeout: float = API_SECONDS
    prune: Prune | None = None


@dataclass
class Report:
    """The results of a module for all of its objects.

    ``error`` is set if the module must fail. ``drift`` lists, for each object, the fields that other managers have
    changed. ``pruned`` lists the deleted objects that are not desired.
    """

    results: dict[Key, dict[str, Any]] = field(default_factory=dict)
    drift: dict[Key, list[dict[str, Any]]] = field(default_factory=dict)
    pruned: list[Key] = field(default_factory=list)
    diff: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    error: InferenceError | None = None

    @property
    def changed(self) -> bool:
        return any(result["changed"] for result in self.results.values())


def present(client: Client, desired: Sequence[Wanted], options: Options) -> Report:
    """Create or change the objects until they match, prune others, and wait until the desired objects are ready and the
    others gone."""
    until = time.monotonic() + options.api_timeout
    snapshot = read(client, [item.key for item in desired], until, predict=options.check_mode)
    # Read these before any write, so that an account without permission to list them changes nothing.
    excess = _excess(client, options.prune, {item.key for item in desired}, until) if options.prune else {}
    return _make(client, desired, snapshot, options, until, excess)


def _excess(client: Client, prune: Prune, desired: Collection[Key], until: float) -> dict[Key, Object]:
    """Return the objects that the selector of ``prune`` matches and that are not desired, except objects that a
    controller owns."""
    query = {"labelSelector": prune.selector}
    listings = [listed(client, [kind], namespace, query, until).objects for kind, namespace in prune.places]
    objects = [(key, resource) for some in listings for key, resource in some.items()]
    return {key: resource for key, resource in objects if key not in desired and not _is_controlled(resource)}


def _is_controlled(resource: Object) -> bool:
    return any(owner.get("controller") for owner in resource["metadata"].get("ownerReferences") or ())


def patched(client: Client, desired: Sequence[Wanted], options: Options) -> Report:
    """Set the fields in the manifests on existing objects, keep our other fields, and wait until the objects are
    ready."""
    until = time.monotonic() + options.api_timeout
    snapshot = read(client, [item.key for item in desired], until, predict=options.check_mode)
    missing = [item for item in desired if item.key not in snapshot.objects]
    if missing and not options.check_mode:
        report = Report()
        error = InferenceError("not_found", "It does not exist, and state=patched does not create it.")
        _refused({item.key: error for item in missing}, desired, report, "refused")
        return report
    there = [
        Wanted(item.key, _diff.patched(snapshot.objects[item.key], item.manifest, FIELD_MANAGER))
        for item in desired
        if item.key in snapshot.objects
    ]
    report = _make(client, there, snapshot, options, until)
    if missing:
        _foretell(report, missing)
    return report


def followed(client: Client, kind: Kind, reading: Callable[[float], Listed], options: Options) -> tuple[Listed, Report]:
    """Wait until there is at least one matching object and all matching objects are ready. Return the objects and a
    report, which is empty if the wait succeeded.

    ``reading`` lists the matching objects; its argument is the time limit on the monotonic clock.
    """
    until = time.monotonic() + options.wait_timeout
    while True:
        # The additional time is for the diagnosis of objects that are not ready.
        listing = reading(until + DIAGNOSIS_SECONDS)
        if not listing.api_found:
            error = InferenceError("definition_missing", f"The cluster has no resource type {kind.resource}.", 404)
            return listing, Report(error=error)
        if listing.objects and all(_is_done(key, one, options) for key, one in listing.objects.items()):
            return listing, Report()
        if listing.objects:
            report = Report({key: summary(key.kind, resource) for key, resource in listing.objects.items()})
            listing.objects |= _wait(client, listing.objects, listing, options, report, until)
            if report.error is not None:
                return listing, report
        elif time.monotonic() >= until:
            text = f"No matching {kind.kind} was found within {options.wait_timeout:g} s."
            return listing, Report(error=InferenceError("timeout", text))
        else:
            time.sleep(max(0.0, min(POLL_SECONDS, until - time.monotonic())))


def _is_done(key: Key, resource: Object, options: Options) -> bool:
    return judge(key.kind, resource, options.wait_for.get(key.kind)).state in DONE


def _make(
    client: Client,
    desired: Sequence[Wanted],
    snapshot: Found,
    options: Options,
    until: float,
    excess: Mapping[Key, Object] | None = None,
) -> Report:
    """Apply the objects that differ from ``snapshot``, delete ``excess``, and wait until all are ready or gone."""
    report = Report(pruned=[*(excess or {})])
    after = dict(snapshot.objects)
    differ = [item for item in desired if not _diff.unchanged(after.get(item.key), item.manifest, FIELD_MANAGER)]
    report.drift = {item.key: _diff.drift(after.get(item.key), item.manifest, FIELD_MANAGER) for item in differ}
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
    labels = _messages.shown([*(item.key for item in desired), *report.pruned])
    for item in desired:
        if item.key in after:
            _note(report, item.key, labels[item.key], snapshot.objects.get(item.key), after[item.key])
    if _refused(sent, differ, report, "not applied" if len(differ) > 1 else "refused"):
        return report
    # Delete before waiting, because the desired objects may need the GPUs of the deleted ones.
    if excess and _delete(client, excess, labels, options, report, until):
        return report
    if options.wait and not options.check_mode:
        ends = time.monotonic() + options.wait_timeout
        _wait(client, {item.key: after[item.key] for item in desired}, snapshot, options, report, ends)
        if excess and report.error is None:
            ends = max(ends, time.monotonic() + DIAGNOSIS_SECONDS)
            _wait(client, excess, Found(), options, report, ends, gone=True)
    return report


def absent(client: Client, targets: Sequence[Wanted], options: Options) -> Report:
    """Delete the objects, and wait until they and their dependents are gone."""
    report = Report()
    until = time.monotonic() + options.api_timeout
    snapshot = read(client, [item.key for item in targets], until, predict=True)
    there = {item.key: snapshot.objects[item.key] for item in targets if item.key in snapshot.objects}
    report.results = {item.key: _left(item.key) for item in targets if item.key not in there}
    if _delete(client, there, _messages.shown(item.key for item in targets), options, report, until):
        return report
    if options.wait and not options.check_mode:
        ends = time.monotonic() + options.wait_timeout
        _wait(client, there, snapshot, options, report, ends, gone=True)
    return report


def _delete(
    client: Client,
    objects: Mapping[Key, Object],
    labels: Mapping[Key, str],
    options: Options,
    report: Report,
    until: float,
) -> bool:
    """Delete objects, and record the results. Return whether the server rejected a deletion."""
    targets = [Wanted(key, resource) for key, resource in objects.items()]
    outcomes = delete(client, objects, targets, until, dry_run=options.check_mode)
    for key, before in objects.items():
        outcome = outcomes.get(key)
        if isinstance(outcome, InferenceError):
            continue
        # An object that is already terminating is waited for, but this task did not change it. The same holds for an
        # object that no longer existed when its deletion was requested.
        changed = bool(outcome) and not before["metadata"].get("deletionTimestamp")
        report.results[key] = {**_left(key), "changed": changed}
        if changed:
            # The whole spec goes, whoever owned the fields.
            report.diff.append(_diff.entry(labels[key], {"spec": before.get("spec")}, {}))
    return _refused(outcomes, targets, report, "not deleted")


def _left(key: Key) -> dict[str, Any]:
    """Return the result for an object that needs no change."""
    return {**_named(key), "changed": False, "waited": 0.0}


def _predicted(outcomes: Mapping[Key, Outcome], desired: Iterable[Wanted], report: Report) -> dict[Key, Outcome]:
    """Return the outcomes of a dry run, with the manifest in place of an error if a definition or namespace is missing.

    In check mode, an earlier task may create it, so this is only a warning.
    """
    manifests = {item.key: item.manifest for item in desired}
    result: dict[Key, Outcome] = {}
    unchecked: dict[str, list[str]] = {}
    for key, outcome in outcomes.items():
        result[key] = outcome
        if isinstance(outcome, InferenceError) and outcome.code in ("definition_missing", "namespace_missing"):
            unchecked.setdefault(outcome.message, []).append(key.label)
            result[key] = {**manifests[key]}
    report.warnings += [
        f"{message} The API server cannot check {_messages.names(labels)} yet." for message, labels in unchecked.items()
    ]
    return result


def _foretell(report: Report, missing: Sequence[Wanted]) -> None:
    """Record, in check mode, that missing objects would be patched. An earlier task may create them, so this is only a
    warning."""
    labels = _messages.shown(item.key for item in missing)
    for item in missing:
        _note(report, item.key, labels[item.key], None, item.manifest)
    report.warnings.append(f"{_messages.names([*labels.values()])} cannot be patched yet, because it does not exist.")


def _refused(outcomes: Mapping[Key, Outcome], requests: Iterable[Wanted], report: Report, word: str) -> bool:
    """Whether the server rejected a request. If so, the errors are recorded in the report."""
    errors = {key: outcome for key, outcome in outcomes.items() if isinstance(outcome, InferenceError)}
    for key, error in errors.items():
        result = report.results.setdefault(key, _named(key))
        result.update(changed=False, error_code=error.code, message=error.message)
    if errors:
        report.error = _messages.refused(errors, outcomes, [item.key for item in requests], word)
    return bool(errors)


def _named(key: Key) -> dict[str, Any]:
    return {"kind": key.kind.kind, "name": key.name, "namespace": key.namespace}


def _note(report: Report, key: Key, label: str, before: Object | None, after: Object) -> None:
    """Record the result of an object in the report, with the changed fields."""
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
    snapshot: Found,
    options: Options,
    report: Report,
    until: float,
    *,
    gone: bool = False,
) -> dict[Key, Object]:
    """Wait until all objects are ready, or gone, and record their states in the report. Return the objects as last
    seen."""
    started = time.monotonic()
    board = Board(options.wait_for, gone=gone)
    versions = dict(snapshot.versions)
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
        doubt = warning(item.resource) if item.resource is not None and not gone else ""
        if doubt:
            report.warnings.append(f"{key.kind.kind} {key.label}: {doubt}")
        if item.verdict.state != READY:
            result.update(reason=item.verdict.reason, message=item.verdict.message)
        waited = time.monotonic() - started if item.verdict.state == WAITING else item.waited
        result["waited"] = round(waited, 1)
    if not done:
        _explain(client, board, options, report, gone=gone)
    return {key: item.resource for key, item in board.items.items() if item.resource is not None}


def _explain(client: Client, board: Board, options: Options, report: Report, *, gone: bool) -> None:
    """Set the report's error to the reason why the wait did not succeed. Failures take precedence over objects that are
    not ready yet."""
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
    late_results = {key: report.results[key] for key in late}
    report.error = _messages.late(late_results, board.items, options.wait_timeout, board.trouble, gone=gone)
    for key in late:
        report.results[key]["error_code"] = report.error.code
