"""Checks: whether the source of a model that sleeps has its weights, asked before the first customer comes. Pure.

A Job asks the source and fetches nothing. What came of it is written to the resource, so that each version of the
source is asked once; where nothing was found it is asked again, at longer and longer intervals.
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
"""Annotation of the resource with what is known of its source, and label of the Job with what it asks for."""
RECORD_BYTES = 4096
MESSAGE_LENGTH = 600
ASKING, EVERYWHERE = "asking", ""
"""Index of Jobs: those that ask a source now, by their namespace and all together."""
WAITING = "waiting"
"""Index of resources: those whose source is not known to have the weights, all together."""
AT_ONCE, AT_ONCE_IN_A_NAMESPACE = 8, 2
"""Jobs that ask at a time. A few more may run, as several workers decide at once, and each namespace has one."""
TURN_SECONDS, LONGEST_TURN_SECONDS = 30.0, 3600.0
"""When a resource without a turn looks again whether it has one, at the earliest and at the latest."""
TURNS_PER_SECOND = 5
"""How many of all that wait look at a time, however many they are, as far as the latest allows it."""
DEADLINE_SECONDS = 120
ATTEMPTS = "3"
FIRST_PAUSE, LONGEST_PAUSE = 300.0, 6 * 3600.0
"""Seconds until a source is asked again that did not have the weights, or did not answer."""
UNDECIDED: tuple[Fault, ...] = ("SourceNotAllowed",)
"""Faults of the loader's own: an engine may well read what it may not."""
CHECKING, NOT_CHECKED, UNREACHABLE, MISSING = (
    "CheckingSource",
    "SourceNotChecked",
    "SourceUnreachable",
    "SourceNotFound",
)
PASSED_THROUGH = frozenset({CHECKING, NOT_CHECKED, SOURCE_FOUND})
"""Reasons that are no news."""


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of the last question. It lies where the resource's author may write; what he writes misleads him."""

    of: str
    """Digest of what was asked for."""
    found: Literal["yes", "no", "unknown", "unasked"]
    """``unasked``: no pod lived to tell."""
    at: Annotated[float, msgspec.Meta(ge=0, le=1e10)] = 0.0
    """Unix seconds."""
    failures: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 0
    """In a row."""
    message: str = ""

    @property
    def due(self) -> float | None:
        """Unix seconds at which the source is asked again; None: it is not."""
        if self.found == "yes":
            return None
        return self.at + min(FIRST_PAUSE * 2.0 ** min(max(self.failures - 1, 0), 10), LONGEST_PAUSE)


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A source that is to be asked, and what is known of it."""

    job: Object
    """Which asks it, as :func:`named` makes it."""
    run: Run
    record: Record | None
    """Of this version of the source."""
    sleeps: bool
    """Whether no replica is wanted: else the pods tell more than a Job would."""
    answered: bool
    """Whether a replica answers, which settles it."""
    kind: Kind
    """Of the resource."""

    @property
    def digest(self) -> str:
        return labels(self.job)[RECORD]

    @property
    def tells(self) -> bool:
        """Whether the condition says something: of a model that starts, its pods say more."""
        record = self.known()
        return self.sleeps or (record is not None and record.found == "yes")

    def known(self) -> Record | None:
        """The record as it is to be written: None where nothing is known."""
        if self.answered:
            settled = self.record is not None and self.record.found == "yes"
            return self.record if settled else Record(of=self.digest, found="yes")
        if self.run.complete_since is not None:
            return Record(of=self.digest, found="yes")
        since = self.run.failed_since
        if since is None or not self.sleeps or (self.record is not None and self.record.at >= since):
            return self.record
        word, message = fault(last_error(self.run.pods))
        final = refused(self.run.made) and word not in UNDECIDED
        failures = min(self.record.failures if self.record else 0, 999) + 1
        told = sentence((message or self._silent())[:MESSAGE_LENGTH])
        found: Literal["no", "unknown", "unasked"] = "no" if final else "unknown" if message else "unasked"
        return Record(of=self.digest, found=found, at=since, failures=failures, message=told)

    def _silent(self) -> str:
        """Why a Job that failed told nothing. Its pods go with it when its time is over."""
        name, made = self.run.name, self.run.made or {}
        if not self.run.pods and not (made.get("status") or {}).get("failed"):
            return f"The cluster made no pod for the Job {name}: a quota or a policy may refuse it"
        text = f"The Job {name} ended after {DEADLINE_SECONDS} seconds, and its pod reported nothing"
        return f"{text}: there may have been no node for it, or no image"

    def _podless(self, world: World) -> Diagnosis:
        """What is wrong with a Job at work that has no pod."""
        return Diagnosis() if self.run.pods else without_pods(self.run.made, "asks for the weights", world.now)

    def annotations(self) -> Object:
        """Of the resource; nothing while nothing is known."""
        record = self.known()
        return {RECORD: msgspec.json.encode(record).decode()} if record else {}

    def jobs(self, world: World) -> tuple[Object, ...]:
        """The Job, while it is at work or it is time for it and its turn."""
        if not self.sleeps or self.run.over or self.answered:
            return ()
        if self.run.made is not None:
            return (self.job,)
        due = self.record is None or (self.record.due is not None and self.record.due <= world.now)
        return (self.job,) if due and _has_turn(world) else ()

    def recheck(self, world: World) -> float | None:
        """Seconds after which time alone may change something."""
        record = self.known()
        if not self.sleeps or self.run.made is not None:
            return self._podless(world).recheck_seconds
        due = world.now if record is None else record.due
        waiting = world.listers.count(self.kind, WAITING, EVERYWHERE)
        return None if due is None else max(due - world.now, turn_seconds(world.resource, waiting))

    def condition(self, world: World) -> Condition:
        record = self.known()
        if record is None:
            return self._unasked(world)
        if record.found == "yes":
            return Condition(SOURCE_FOUND, "True", SOURCE_FOUND, "The source has the weights.")
        again = "It is asked again by itself, at longer and longer intervals, and at once when the spec changes"
        if record.found == "no":
            again += f" or the annotation {RECORD} is removed, as after a change of the Secret"
            return Condition(SOURCE_FOUND, "False", MISSING, f"{record.message} {again}.")
        if record.found == "unasked":
            return Condition(
                SOURCE_FOUND, "Unknown", NOT_CHECKED, f"The source was not checked: {record.message} {again}."
            )
        text = f"Whether the source has the weights is not known: {record.message} {again}."
        return Condition(SOURCE_FOUND, "Unknown", UNREACHABLE, text)

    def _unasked(self, world: World) -> Condition:
        """What was ready with this spec before anybody asked stays so meanwhile."""
        if failure := self._podless(world).failure:
            return Condition(SOURCE_FOUND, "Unknown", NOT_CHECKED, failure.message)
        if self.run.made is not None and not _was_settled(world.resource):
            return Condition(SOURCE_FOUND, "Unknown", CHECKING, "The source is being asked for the weights.")
        text = "The source has not been asked for the weights yet."
        return Condition(SOURCE_FOUND, "Unknown", NOT_CHECKED, text)


def check(world: World, kind: Kind, job: Object, *, sleeps: bool, answered: bool) -> Check:
    """``kind``: of the resource; ``job``: as :func:`named` makes it."""
    made = world.children.get((JOB, key(job)))
    fits = made is not None and not deleting(made) and labels(made).get(RECORD) == labels(job)[RECORD]
    own = made if fits else None
    run = Run(name=key(job).name, made=own, pods=pods_of(own, world.pods))
    record = _read(annotations_of(world.resource).get(RECORD, ""))
    current = record if record is not None and record.of == labels(job)[RECORD] else None
    return Check(job=job, run=run, record=current, sleeps=sleeps, answered=answered, kind=kind)


def turn_seconds(resource: Object, waiting: int) -> float:
    """Until a resource that is one of so many looks again for a turn: later the more there are that do, and not all of
    them at once."""
    spread = 1 + zlib.crc32(uid(resource).encode()) / 2**32
    return min(max(TURN_SECONDS, waiting / TURNS_PER_SECOND), LONGEST_TURN_SECONDS) * spread


def named(job: Object) -> Object:
    """The Job with the digest of what it asks for: the words and variables of its container, where credentials come
    from among them. What a Secret has is not known here."""
    container = job["spec"]["template"]["spec"]["containers"][0]
    asked = [container.get(field) for field in ("args", "env", "envFrom")]
    digest = hashlib.sha256(msgspec.json.encode(asked, order="sorted")).hexdigest()[:16]
    metadata = job["metadata"]
    return {**job, "metadata": {**metadata, "labels": {**metadata["labels"], RECORD: digest}}}


def by_asking(job: Object) -> Iterable[str]:
    """Index function for :data:`ASKING`. What asks for ever is none of ours: a Job that counts has a deadline, and
    nothing keeps the cluster from holding it to that."""
    spec = job["spec"]
    over = deleting(job) or any(ended(job, how) is not None for how in ("Complete", "Failed"))
    limited = 0 < spec.get("activeDeadlineSeconds", 0) <= DEADLINE_SECONDS
    ends = limited and not spec.get("suspend") and not spec.get("managedBy")
    return (key(job).namespace, EVERYWHERE) if RECORD in labels(job) and ends and not over else ()


def by_waiting(resource: Object) -> Iterable[str]:
    """Index function for :data:`WAITING`."""
    conditions: list[Object] = (resource.get("status") or {}).get("conditions") or []
    waits = any(one["type"] == SOURCE_FOUND and one["status"] != "True" for one in conditions)
    return (EVERYWHERE,) if waits and not deleting(resource) else ()


def _has_turn(world: World) -> bool:
    """Whether there is room for another Job. Each namespace has room for one, whatever Jobs there are in others, whose
    authors may forge them; the rest goes to who comes first."""
    mine, all_ = (world.listers.count(JOB, ASKING, value) for value in (key(world.resource).namespace, EVERYWHERE))
    return mine == 0 or (mine < AT_ONCE_IN_A_NAMESPACE and all_ < AT_ONCE)


def _was_settled(resource: Object) -> bool:
    """Whether nothing was under way for this spec when the status was written."""
    conditions: list[Object] = (resource.get("status") or {}).get("conditions") or []
    told = next((one for one in conditions if one["type"] == RECONCILING), {})
    return told.get("reason") == "Complete" and told.get("observedGeneration") == generation(resource)


def _read(text: str) -> Record | None:
    try:
        return decode_json(text, Record, most=RECORD_BYTES) if text else None
    except DecodingError:
        return None
