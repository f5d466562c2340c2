"""Publications: the Jobs that add a model to the cluster's registry or remove it. Pure.

Each Job has one pod and resumes what the previous Job began. The API stores a record with the number of attempts on the
model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from slipway.artifacts.documents import publication
from slipway.artifacts.documents.publication import Publication
from slipway.decoding import DecodingError, decode_json
from slipway.kube.objects import JOB, Key, Object, deleting, key, uid
from slipway.serving.containers.diagnosis import sentence
from slipway.serving.contract.api import World
from slipway.serving.pods.job import pods_of, termination_message, without_pods
from slipway.serving.pods.workload import MANAGER, UNPRIVILEGED, restricted
from slipway.serving.wire.agent import LONGEST_RESUME, AgentReport
from slipway.serving.wire.publishers import job_name
from slipway.weights.jobs import loads as jobs
from slipway.weights.jobs import progress
from slipway.weights.jobs.loads import LASTING, REPORT_SECONDS, RETRIES, RETRY_SECONDS, Run, Runner
from slipway.weights.sources.credentials import Access

FIRST_PAUSE = 10.0
"""Seconds before the second attempt, and before a retry after an attempt with progress. The pause doubles with each
further consecutive attempt without progress, up to ``RETRY_SECONDS``."""
MOST_BYTES = 7 * LONGEST_RESUME
"""Maximum size of a record in bytes. JSON may encode one character of ``resume`` as six."""
Count = Annotated[int, Meta(ge=0)]


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of a publication that outlives its pods."""

    attempt: Count = 0
    """Number of Jobs that have been created."""
    failures: Count = 0
    """Number of consecutive Jobs without progress."""
    percent: Annotated[int, Meta(ge=0, le=100)] = 0
    """Progress in percent at the time when the latest Job was created."""
    total: Count = 0
    """Expected total number of bytes; 0: it is unknown."""
    resume: Annotated[str, Meta(max_length=LONGEST_RESUME)] = ""
    """State from the last loader with which the next one resumes; empty: there is none."""

    def text(self) -> str:
        return msgspec.json.encode(self).decode()


FIRST = Record(attempt=1)


def parse_record(text: str | None) -> Record:
    """Parse a record. Return an empty record if the text is missing or invalid."""
    try:
        return decode_json(text or "", Record, most=MOST_BYTES)
    except DecodingError:
        return Record()


def name(model: Object, what: str, attempt: int = 0) -> str:
    """Return the name of the Job that publishes or removes a model. ``what`` is ``PUBLISH`` or ``UNPUBLISH``, and
    ``attempt`` is the number of the Job."""
    return job_name(key(model).name, uid(model), what, attempt)


def observe_run(world: World, place: Key) -> Run:
    """Return the state of the Job with this name. A Job that is being deleted counts as missing."""
    existing = world.children.get((JOB, place))
    if existing is None or deleting(existing):
        return Run(name=place.name)
    return Run(name=place.name, job=existing, pods=pods_of(existing, world.pods))


def job(
    world: World,
    run: Run,
    namespace: str,
    labels: Mapping[str, str],
    arguments: Sequence[str],
    access: Access,
    *,
    retries: int = 0,
) -> Object:
    """Return the Job of a run, which publishes or deletes an artifact. A Job that exists keeps its arguments, because
    the pod template of a Job cannot be changed."""
    settings = world.settings
    command = arguments if run.job is None else jobs.arguments_of(run.job)[1:]
    runner = Runner(
        image=settings.loader_image,
        manager=MANAGER,
        labels=labels,
        security=UNPRIVILEGED,
        pod_security=restricted(settings.user(settings.run_as_user)),
        controller_key=world.controller_key,
    )
    loader_container = jobs.container(runner, command, access)
    return jobs.task(runner, run.name, namespace, loader_container, access.volumes, retries=retries)


def result(run: Run) -> Publication | None:
    """Return the publication that a run reports, or None if the run is not complete or its message is lost or
    invalid."""
    return publication.parse_publication(termination_message(run.pods)) if run.complete_since is not None else None


def update_record(record: Record, run: Run, world: World, progress: str) -> Record:
    """Return the record with the values from the loader's last report, if there is one. After progress, the number of
    failures is 0. ``progress`` is the percentage in the status, such as ``17%``."""
    if percent_of(progress) > record.percent:
        record = msgspec.structs.replace(record, failures=0)
    report = _report(run, world)
    if report is None:
        return record
    usable = len(report.resume) <= LONGEST_RESUME and report.resume.isprintable()
    resume = report.resume if usable else ""
    total = size(run, world) or record.total
    has_progressed = bool(resume) and resume != record.resume
    return msgspec.structs.replace(
        record, total=total, resume=resume or record.resume, failures=0 if has_progressed else record.failures
    )


def size(run: Run, world: World) -> int:
    """Return the total number of bytes to send, according to the loader's current report, or 0 if it is unknown."""
    report = _report(run, world)
    return max(report.progress.total_bytes, 0) if report and report.progress else 0


def _report(run: Run, world: World) -> AgentReport | None:
    reports = (world.agents.get(uid(pod)) for pod in run.pods)
    return next((report for report in reports if report and report.progress), None)


def has_given_up(record: Record, run: Run) -> bool:
    """Whether the attempt has failed, either for a known cause or as the last of several quick retries."""
    return run.failed_since is not None and (run.fault[0] is not None or record.failures >= RETRIES)


def retried_at(record: Record, run: Run) -> float | None:
    """Return the Unix time of the next attempt, or None if this one has not ended, has a result, or failed in a way
    that another one would repeat."""
    if run.complete_since is not None and result(run) is None:
        return run.complete_since + REPORT_SECONDS
    if run.failed_since is None or run.fault[0] in LASTING:
        return None
    pause = RETRY_SECONDS if has_given_up(record, run) else FIRST_PAUSE * 2**record.failures
    return run.failed_since + min(pause, RETRY_SECONDS)


def is_time(record: Record, run: Run, now: float) -> bool:
    """Whether it is time for the next attempt."""
    at = retried_at(record, run)
    return at is not None and now >= at


def next_attempt(record: Record, progress: str) -> Record:
    """Return the record for the next attempt, which counts as a failure until it makes progress. ``progress`` is the
    percentage in the status, such as ``17%``."""
    attempt, failures = record.attempt + 1, record.failures + 1
    return msgspec.structs.replace(record, attempt=attempt, failures=failures, percent=percent_of(progress))


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a publication that has no result yet."""

    message: str
    failed: bool = False
    fault: str | None = None
    """Code of the failure; None: there is none."""
    done: int = 0
    """Number of bytes sent."""
    recheck: float | None = None
    """Seconds after which the state may change without an event; None: only an event changes it."""


def state(record: Record, run: Run, world: World) -> State:
    at = retried_at(record, run)
    seconds = [max(at - world.now, 1.0)] if at is not None else []
    if has_given_up(record, run):
        again = progress.AGAIN if at is not None else "Delete the model and create it again to retry."
        text = f"The model could not be published: {sentence(run.fault[1] or 'no reason is given')} {again}"
        return State(message=text, failed=True, fault=run.fault[0], recheck=min(seconds, default=None))
    without = without_pods(run.job, "publishes the model", world.now)
    moving = progress.moving(run, world, without, does="The model is being published")
    failure, checked = moving.diagnosis.failure, moving.diagnosis.recheck_seconds
    return State(
        message=failure.message if failure else moving.message,
        failed=failure is not None,
        done=moving.progress.done_bytes if moving.progress else 0,
        recheck=min((*seconds, *([checked] if checked is not None else [])), default=None),
    )


def percent(done: int, total: int, before: str) -> str:
    """Return the progress as a percentage such as ``17%``. ``done`` and ``total`` are numbers of bytes; a ``total`` of
    0 means that it is unknown. The percentage is never lower than ``before``, because a new attempt must first detect
    the stored bytes. Only a complete publication has 100%, so 99% is the maximum."""
    return f"{min(max(percent_of(before), done * 100 // total if total > 0 else 0), 99)}%"


def percent_of(text: str) -> int:
    """Parse a percentage such as ``17%``, at most 100. Return 0 for any other text."""
    number = text.removesuffix("%")
    return min(int(number), 100) if number.isascii() and number.isdecimal() and len(number) < 4 else 0
