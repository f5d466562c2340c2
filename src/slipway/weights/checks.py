"""Checks: whether the source of a sleeping model has its weights, before the first request. Pure.

A Job queries the source and downloads nothing. The result is recorded on the resource, so each version of the source
is checked once. If the source does not have the weights, the check is repeated at growing intervals.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec

from slipway.artifacts.report import Fault, fault
from slipway.decoding import DecodingError, decode_json
from slipway.kube.conditions import RECONCILING, Condition
from slipway.kube.objects import JOB, Kind, Object, annotations_of, deleting, generation, key, labels, uid
from slipway.serving.api import World
from slipway.serving.diagnosis import Diagnosis, sentence
from slipway.serving.job import ended, last_error, pods_of, refused, without_pods
from slipway.serving.unready import SOURCE_FOUND
from slipway.weights.jobs import Run

RECORD = "slipway.inference/source"
"""Annotation of the resource with the result, and label of the Job with the digest of its query."""
RECORD_BYTES = 4096
MESSAGE_LENGTH = 600
RUNNING, EVERYWHERE = "running-checks", ""
"""Index of Jobs: running checks, by their namespace and in total."""
UNCHECKED = "unchecked-sources"
"""Index of resources whose source is not known to have the weights, in total."""
MAX_RUNNING, MAX_RUNNING_IN_NAMESPACE = 8, 2
"""Several workers decide at once and each namespace may always have one Job, so slightly more may run."""
TURN_SECONDS, MAX_TURN_SECONDS = 30.0, 3600.0
"""The shortest and the longest interval at which a resource looks for a free turn."""
TURNS_PER_SECOND = 5
"""How many resources look for a turn per second, whatever their number, unless the longest interval prevents it."""
DEADLINE_SECONDS = 120
ATTEMPTS = "3"
FIRST_PAUSE, MAX_PAUSE = 300.0, 6 * 3600.0
"""Seconds until the next check of a source without the weights, or without an answer."""
INCONCLUSIVE: tuple[Fault, ...] = ("SourceNotAllowed",)
"""Faults of the loader's own restrictions: an engine may still be able to read the source."""
CHECKING, NOT_CHECKED, UNREACHABLE, MISSING = (
    "CheckingSource",
    "SourceNotChecked",
    "SourceUnreachable",
    "SourceNotFound",
)
PASSED_THROUGH = frozenset({CHECKING, NOT_CHECKED, SOURCE_FOUND})
"""Reasons without an Event."""


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of the last check. The resource's author may forge it, to no one else's harm."""

    of: str
    """Digest of the query."""
    found: Literal["yes", "no", "unknown", "unchecked"]
    """``unchecked``: no pod reported a result."""
    at: Annotated[float, msgspec.Meta(ge=0, le=1e10)] = 0.0
    """Unix seconds."""
    failures: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 0
    """Failed checks in a row."""
    message: str = ""

    @property
    def due(self) -> float | None:
        """Unix seconds of the next check. None: there is none."""
        if self.found == "yes":
            return None
        return self.at + min(FIRST_PAUSE * 2.0 ** min(max(self.failures - 1, 0), 10), MAX_PAUSE)


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """The check of one source, and its result."""

    job: Object
    """The Job that queries the source, from :func:`identified`."""
    run: Run
    record: Record | None
    """None: this version of the source has no result yet."""
    sleeps: bool
    """Whether the model has no replicas. Otherwise its pods report more than a Job would."""
    answered: bool
    """Whether a replica answers, which proves that the source has the weights."""
    kind: Kind
    """Kind of the resource."""

    @property
    def digest(self) -> str:
        return labels(self.job)[RECORD]

    @property
    def has_condition(self) -> bool:
        """Whether the resource has the condition. While a model starts, its pods report more."""
        result = self.result()
        return self.sleeps or (result is not None and result.found == "yes")

    def result(self) -> Record | None:
        """The record to write. None: there is no result."""
        if self.answered:
            proven = self.record is not None and self.record.found == "yes"
            return self.record if proven else Record(of=self.digest, found="yes")
        if self.run.complete_since is not None:
            return Record(of=self.digest, found="yes")
        since = self.run.failed_since
        if since is None or not self.sleeps or (self.record is not None and self.record.at >= since):
            return self.record
        return self._failure(since)

    def _failure(self, since: float) -> Record:
        word, message = fault(last_error(self.run.pods))
        final = refused(self.run.made) and word not in INCONCLUSIVE
        outcome: Literal["no", "unknown", "unchecked"] = "no" if final else "unknown" if message else "unchecked"
        failures = min(self.record.failures if self.record else 0, 999) + 1
        text = sentence((message or self._silence())[:MESSAGE_LENGTH])
        return Record(of=self.digest, found=outcome, at=since, failures=failures, message=text)

    def _silence(self) -> str:
        """Why a failed Job reported nothing. Its pods are deleted when its deadline passes."""
        job = self.run.made or {}
        if not self.run.pods and not (job.get("status") or {}).get("failed"):
            return f"The cluster created no pod for the Job {self.run.name}. A quota or policy may reject it"
        return f"The Job {self.run.name} reported nothing within {DEADLINE_SECONDS} s. Check its node and image"

    def _without_pods(self, world: World) -> Diagnosis:
        """What is wrong with a running Job that has no pod."""
        return Diagnosis() if self.run.pods else without_pods(self.run.made, "checks the source", world.now)

    def annotations(self) -> Object:
        """Annotations of the resource."""
        result = self.result()
        return {RECORD: msgspec.json.encode(result).decode()} if result else {}

    def jobs(self, world: World) -> tuple[Object, ...]:
        """The Job, if it runs, or if it is due and has a turn."""
        if not self.sleeps or self.run.over or self.answered:
            return ()
        if self.run.made is not None:
            return (self.job,)
        due = self.record is None or (self.record.due is not None and self.record.due <= world.now)
        return (self.job,) if due and _has_turn(world) else ()

    def recheck_seconds(self, world: World) -> float | None:
        """Seconds until the plan or the condition may change without another event."""
        if not self.sleeps or self.run.made is not None:
            return self._without_pods(world).recheck_seconds
        result = self.result()
        due = world.now if result is None else result.due
        waiting = world.listers.count(self.kind, UNCHECKED, EVERYWHERE)
        return None if due is None else max(due - world.now, turn_seconds(world.resource, waiting))

    def condition(self, world: World) -> Condition:
        result = self.result()
        if result is None:
            return self._pending(world)
        if result.found == "yes":
            return Condition(SOURCE_FOUND, "True", SOURCE_FOUND, "The source has the weights.")
        retry = "The controller checks again at growing intervals, and at once if the spec changes"
        if result.found == "no":
            retry += f" or the annotation {RECORD} is removed"
            return Condition(SOURCE_FOUND, "False", MISSING, f"{result.message} {retry}.")
        reason = NOT_CHECKED if result.found == "unchecked" else UNREACHABLE
        return Condition(SOURCE_FOUND, "Unknown", reason, f"{result.message} {retry}.")

    def _pending(self, world: World) -> Condition:
        """Without a result. A resource that was reconciled before the check stays so."""
        if failure := self._without_pods(world).failure:
            return Condition(SOURCE_FOUND, "Unknown", NOT_CHECKED, failure.message)
        if self.run.made is not None and not _was_reconciled(world.resource):
            return Condition(SOURCE_FOUND, "Unknown", CHECKING, "A Job checks whether the source has the weights.")
        return Condition(SOURCE_FOUND, "Unknown", NOT_CHECKED, "The source is not checked yet.")


def check(world: World, kind: Kind, job: Object, *, sleeps: bool, answered: bool) -> Check:
    """``kind``: of the resource; ``job``: from :func:`identified`."""
    live = world.children.get((JOB, key(job)))
    is_current = live is not None and not deleting(live) and labels(live).get(RECORD) == labels(job)[RECORD]
    current = live if is_current else None
    run = Run(name=key(job).name, made=current, pods=pods_of(current, world.pods))
    record = _read(annotations_of(world.resource).get(RECORD, ""))
    if record is not None and record.of != labels(job)[RECORD]:
        record = None
    return Check(job=job, run=run, record=record, sleeps=sleeps, answered=answered, kind=kind)


def turn_seconds(resource: Object, waiting: int) -> float:
    """Seconds until one of ``waiting`` resources looks for a turn again, spread so that few do at the same time."""
    spread = 1 + zlib.crc32(uid(resource).encode()) / 2**32
    return min(max(TURN_SECONDS, waiting / TURNS_PER_SECOND), MAX_TURN_SECONDS) * spread


def identified(job: Object) -> Object:
    """The Job with the digest of its query: the arguments and variables of its container. The contents of Secrets are
    not part of it."""
    container = job["spec"]["template"]["spec"]["containers"][0]
    query = [container.get(field) for field in ("args", "env", "envFrom")]
    digest = hashlib.sha256(msgspec.json.encode(query, order="sorted")).hexdigest()[:16]
    metadata = job["metadata"]
    return {**job, "metadata": {**metadata, "labels": {**metadata["labels"], RECORD: digest}}}


def by_running(job: Object) -> Iterable[str]:
    """Index function for :data:`RUNNING`. A forged Job counts only if the cluster ends it within our deadline."""
    spec = job["spec"]
    over = deleting(job) or any(ended(job, how) is not None for how in ("Complete", "Failed"))
    limited = 0 < spec.get("activeDeadlineSeconds", 0) <= DEADLINE_SECONDS
    ends = limited and not spec.get("suspend") and not spec.get("managedBy")
    return (key(job).namespace, EVERYWHERE) if RECORD in labels(job) and ends and not over else ()


def by_unchecked(resource: Object) -> Iterable[str]:
    """Index function for :data:`UNCHECKED`."""
    conditions: list[Object] = (resource.get("status") or {}).get("conditions") or []
    waits = any(one["type"] == SOURCE_FOUND and one["status"] != "True" for one in conditions)
    return (EVERYWHERE,) if waits and not deleting(resource) else ()


def _has_turn(world: World) -> bool:
    """Whether another Job may run. Each namespace may run one even if other namespaces forge Jobs."""
    namespace = key(world.resource).namespace
    own, total = (world.listers.count(JOB, RUNNING, value) for value in (namespace, EVERYWHERE))
    return own == 0 or (own < MAX_RUNNING_IN_NAMESPACE and total < MAX_RUNNING)


def _was_reconciled(resource: Object) -> bool:
    """Whether the status of this generation says that the resource is reconciled."""
    conditions: list[Object] = (resource.get("status") or {}).get("conditions") or []
    reconciling = next((one for one in conditions if one["type"] == RECONCILING), {})
    return reconciling.get("reason") == "Complete" and reconciling.get("observedGeneration") == generation(resource)


def _read(text: str) -> Record | None:
    try:
        return decode_json(text, Record, most=RECORD_BYTES) if text else None
    except DecodingError:
        return None
