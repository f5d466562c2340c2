"""Checks: whether the source of a sleeping model has its weights, before the first request. Pure.

A Job queries the source and downloads nothing. The result is recorded on the resource, so each version of the source
is checked once. A check without success is repeated at growing intervals.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec

from slipway.artifacts.report import Fault, fault
from slipway.decoding import DecodingError, decode_json
from slipway.kube.conditions import Condition
from slipway.kube.objects import JOB, Object, annotations_of, deleting, key, labels, uid
from slipway.serving.api import World
from slipway.serving.diagnosis import Diagnosis, sentence
from slipway.serving.job import ended, last_error, pods_of, refused, without_pods
from slipway.serving.unready import SOURCE_FOUND
from slipway.weights.jobs import Run

RECORD = "slipway.inference/source"
"""Annotation of the resource with the result, and label of the Job with the digest of its query."""
RECORD_BYTES = 4096
MESSAGE_LENGTH = 600
RUNNING = "running-checks"
"""Index of Jobs: running checks, by namespace."""
MAX_RUNNING = 4
"""Checks that run in a namespace at a time."""
TURN_SECONDS = 30.0
"""The shortest interval at which a resource looks for a free turn."""
DEADLINE_SECONDS = 120
ATTEMPTS = 3
FIRST_PAUSE, MAX_PAUSE = 300.0, 6 * 3600.0
"""Seconds until the next check of a source without the weights, or without an answer."""
ANSWERS: tuple[Fault | None, ...] = (None, "SourceNotFound")
"""Faults that the source reported. With the other ones, which the loader found, an engine may be able to read it."""
CHECKING, NOT_CHECKED, MISSING = "CheckingSource", "SourceNotChecked", "SourceNotFound"
PASSED_THROUGH = frozenset({CHECKING, NOT_CHECKED, SOURCE_FOUND})
"""Reasons without an Event."""


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of the last check. The resource's author may forge it, to no one else's harm."""

    of: str
    """Digest of the query."""
    found: Literal["yes", "no", "unknown"]
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

    def result(self) -> Record | None:
        """The record to write. None: there is no result."""
        if self.answered or self.run.complete_since is not None:
            proven = self.record is not None and self.record.found == "yes"
            return self.record if proven else Record(of=labels(self.job)[RECORD], found="yes")
        since = self.run.failed_since
        if since is None or not self.sleeps or (self.record is not None and self.record.at >= since):
            return self.record
        return self._failure(since)

    def _failure(self, since: float) -> Record:
        code, message = fault(last_error(self.run.pods))
        missing = refused(self.run.made) and code in ANSWERS
        failures = min(self.record.failures if self.record else 0, 999) + 1
        silence = f"The Job {self.run.name} reported nothing within {DEADLINE_SECONDS} s"
        text = sentence((message or silence)[:MESSAGE_LENGTH])
        digest = labels(self.job)[RECORD]
        return Record(of=digest, found="no" if missing else "unknown", at=since, failures=failures, message=text)

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
        running = world.listers.count(JOB, RUNNING, key(world.resource).namespace)
        return (self.job,) if due and running < MAX_RUNNING else ()

    def recheck_seconds(self, world: World) -> float | None:
        """Seconds until the plan or the condition may change without another event."""
        if not self.sleeps or self.run.made is not None:
            return self._without_pods(world).recheck_seconds
        result = self.result()
        due = world.now if result is None else result.due
        return None if due is None else max(due - world.now, turn_seconds(world.resource))

    def condition(self, world: World) -> Condition | None:
        """None: the model starts, and its pods report more."""
        result = self.result()
        if result is not None and result.found == "yes":
            return Condition(SOURCE_FOUND, "True", SOURCE_FOUND, "The source has the weights.")
        if not self.sleeps:
            return None
        if result is None:
            return self._pending(world)
        retry = "The controller checks again at growing intervals, and at once if the spec changes"
        retry += f" or the annotation {RECORD} is removed."
        if result.found == "no":
            return Condition(SOURCE_FOUND, "False", MISSING, f"{result.message} {retry}")
        return Condition(SOURCE_FOUND, "Unknown", NOT_CHECKED, f"{result.message} {retry}")

    def _pending(self, world: World) -> Condition:
        if failure := self._without_pods(world).failure:
            return Condition(SOURCE_FOUND, "Unknown", NOT_CHECKED, failure.message)
        if self.run.made is not None:
            return Condition(SOURCE_FOUND, "Unknown", CHECKING, "A Job checks whether the source has the weights.")
        return Condition(SOURCE_FOUND, "Unknown", NOT_CHECKED, "The source is not checked yet.")

    def _without_pods(self, world: World) -> Diagnosis:
        """What is wrong with a running Job that has no pod."""
        return Diagnosis() if self.run.pods else without_pods(self.run.made, "checks the source", world.now)


def check(world: World, job: Object, *, sleeps: bool, answered: bool) -> Check:
    """``job``: from :func:`identified`."""
    live, digest = world.children.get((JOB, key(job))), labels(job)[RECORD]
    current = live if live is not None and not deleting(live) and labels(live).get(RECORD) == digest else None
    run = Run(name=key(job).name, made=current, pods=pods_of(current, world.pods))
    record = _read(annotations_of(world.resource).get(RECORD, ""))
    current_record = record if record is not None and record.of == digest else None
    return Check(job=job, run=run, record=current_record, sleeps=sleeps, answered=answered)


def turn_seconds(resource: Object) -> float:
    """Seconds until a resource looks for a turn again, spread so that few resources do at the same time."""
    return TURN_SECONDS * (1 + zlib.crc32(uid(resource).encode()) / 2**32)


def identified(job: Object) -> Object:
    """The Job with the digest of its query: the arguments and variables of its container. The contents of Secrets are
    not part of it."""
    container = job["spec"]["template"]["spec"]["containers"][0]
    query = [container.get(field) for field in ("args", "env", "envFrom")]
    digest = hashlib.sha256(msgspec.json.encode(query, order="sorted")).hexdigest()[:16]
    metadata = job["metadata"]
    return {**job, "metadata": {**metadata, "labels": {**metadata["labels"], RECORD: digest}}}


def by_running(job: Object) -> Iterable[str]:
    """Index function for :data:`RUNNING`. A forged Job takes turns only in its namespace."""
    over = deleting(job) or any(ended(job, how) is not None for how in ("Complete", "Failed"))
    return (key(job).namespace,) if RECORD in labels(job) and not over else ()


def _read(text: str) -> Record | None:
    try:
        return decode_json(text, Record, most=RECORD_BYTES) if text else None
    except DecodingError:
        return None
