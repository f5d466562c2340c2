"""Loads: Jobs that load, inspect, check or remove weights with the loader. Pure.

A Job counts only if it does what is needed now. A Job for an earlier spec is deleted before a new one is created.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from slipway.artifacts.documents.report import Fault, Report, fault
from slipway.artifacts.documents.report import parse_report as read_report
from slipway.kube.objects import JOB, MANAGED_BY, Key, Kind, Object, controller_owner, deleting, key
from slipway.kube.values.times import unix_time
from slipway.serving.contract.api import World
from slipway.serving.pods.job import Task, ended, exceeded, job, last_error, pods_of, termination_message
from slipway.serving.pods.loader import with_controller_key
from slipway.serving.pods.server import Container
from slipway.serving.wire import agent
from slipway.weights.place import Place
from slipway.weights.sources.credentials import Access

RETRIES = 4
RETRY_SECONDS = 300
"""Seconds after which a failed load is retried, because the cause may be outside of the objects that the controller
watches."""
LOAD_SECONDS = 24 * 3600
"""Maximum seconds for a load onto a node. After that, the load fails so that others get their turn, and the next load
resumes it."""
ANSWER_SECONDS = 600
"""Maximum seconds to query a source, including the start of the pod. A pod that mounts a missing file of a node never
starts."""
REPORT_SECONDS = 60
"""Seconds to wait for the pod's last message after a Job is complete. After that, the Job is repeated, which costs
little."""
EVICTION_SECONDS = 600
"""Maximum seconds that the deletion of a resource waits for its Jobs. After that, the resource is deleted, and its
weights stay on the volume."""
LASTING: tuple[Fault, ...] = ("IntegrityCheckFailed", "SourceNotAllowed", "InvalidFileSet", "UnsupportedSource")
"""Failures that a retry would only repeat, after transferring as many bytes again. A change of the spec or the deletion
of the Job starts a new attempt."""
NAME_LABEL, INSTANCE_LABEL = "app.kubernetes.io/name", "app.kubernetes.io/instance"
EVERYWHERE: Object = {"operator": "Exists"}


class Runner(msgspec.Struct, frozen=True, kw_only=True):
    """The image, labels and security settings with which an API runs the loader."""

    image: str
    manager: str
    """Value of the label ``managed-by`` of Jobs and pods."""
    labels: Mapping[str, str] = {}
    """Further labels of Jobs and pods."""
    security: Object = {}
    """Security context of the loader's container."""
    pod_security: Object = {}
    service_account: str = ""
    image_pull_secrets: tuple[str, ...] = ()
    controller_key: str = ""
    """Public key with which the loader verifies the controller's requests; empty: the loader's port stays closed."""


def container(
    runner: Runner,
    arguments: Sequence[str],
    access: Access,
    *,
    name: str = agent.CONTAINER,
    env_from: Sequence[Object] = (),
) -> Container:
    """Return a container that runs a command of the loader. With the default ``name``, the loader opens its port, on
    which the controller reads the progress."""
    loader_container = Container(
        name=name,
        image=runner.image,
        args=("loader", *arguments),
        env=access.env,
        env_from=tuple(env_from),
        mounts=access.mounts,
        security=runner.security,
    )
    return with_controller_key(loader_container, runner.controller_key) if name == agent.CONTAINER else loader_container


def task(
    runner: Runner, name: str, namespace: str, container: Container, volumes: tuple[Object, ...], **others: object
) -> Object:
    """Return a Job with this container. ``others`` are further fields of ``slipway.serving.pods.job.Task``."""
    loader_task = Task(
        name=name,
        namespace=namespace,
        labels={NAME_LABEL: "model-loader", INSTANCE_LABEL: name, **runner.labels, MANAGED_BY: runner.manager},
        container=container,
        volumes=volumes,
        retries=RETRIES,
        image_pull_secrets=runner.image_pull_secrets,
        service_account=runner.service_account,
        security=runner.pod_security,
    )
    return job(msgspec.structs.replace(loader_task, **others))


def evict(
    runner: Runner, name: str, namespace: str, place: Place, volume: str, *, options: Sequence[str] = ()
) -> Object:
    """Return a Job that removes the directory of a place, on any node that can mount the claim."""
    access = place.access_to_all(volume)
    arguments = ("evict", place.path, *options)
    evictor = container(runner, arguments, access, name="evictor")
    return task(runner, name, namespace, evictor, access.volumes, tolerations=(EVERYWHERE,))


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A Job and its observed state."""

    name: str
    job: Object | None = None
    """Manifest of the Job; None: there is no Job, or it does something other than what is needed now."""
    pods: Sequence[Object] = ()
    """Pods of the Job, newest first."""

    @property
    def complete_since(self) -> float | None:
        """Unix time at which the Job completed; None: it has not."""
        return ended(self.job, "Complete")

    @property
    def failed_since(self) -> float | None:
        """Unix time at which the Job failed; None: it has not."""
        return ended(self.job, "Failed")

    @property
    def over(self) -> bool:
        return self.complete_since is not None or self.failed_since is not None

    @property
    def report(self) -> Report | None:
        """Report of the loader; None: the Job is not complete, or its message is lost or invalid."""
        return read_report(termination_message(self.pods)) if self.complete_since is not None else None

    @property
    def fault(self) -> tuple[Fault | None, str]:
        """Reason why the Job or its newest failed pod failed: a code, or None if there is none, and a sentence, which
        is empty if the reason is unknown."""
        if (limit := exceeded(self.job)) is not None:
            return None, f"it did not finish within {limit // 60} min"
        return fault(last_error(self.pods))

    def retried_at(self) -> float | None:
        """Return the Unix time at which a new Job replaces this one, or None if this one has not ended, has a report
        without a fault, or failed in a way that a new one would repeat."""
        if self.complete_since is not None and self.report is None:
            return self.complete_since + REPORT_SECONDS
        if self.complete_since is not None and self.report is not None and self.report.fault:
            return self.complete_since + RETRY_SECONDS  # users may replace files on a claim or a node
        if self.failed_since is not None and self.fault[0] not in LASTING:
            return self.failed_since + RETRY_SECONDS
        return None

    def outlived(self, now: float) -> bool:
        """Whether it is time for a new Job, which requires that this one is deleted first."""
        retried = self.retried_at()
        return retried is not None and now >= retried

    def children(self, child: Object, now: float) -> tuple[Object, ...]:
        """Return the Job ``child``, or nothing if it is time for a new Job."""
        return () if self.outlived(now) else (child,)


def observe_run(world: World, name: Key, arguments: Sequence[str]) -> Run:
    """Return the state of the Job with this name. A Job that is being deleted, or whose program has other arguments,
    counts as missing."""
    existing = world.children.get((JOB, name))
    if existing is None or deleting(existing) or arguments_of(existing) != [*arguments]:
        return Run(name=name.name)
    return Run(name=name.name, job=existing, pods=pods_of(existing, world.pods))


def arguments_of(manifest: Object) -> list[str]:
    """Return the arguments of a Job's program, which distinguish it from other Jobs with the same name."""
    arguments: list[str] = manifest["spec"]["template"]["spec"]["containers"][0].get("args", [])
    return arguments


def in_place(manifest: Object, owners: Iterable[Kind], namespace: str) -> bool:
    """Whether a Job belongs to a resource of one of these kinds. Jobs outside of ``namespace`` do not count, because
    users could have created them with a forged owner."""
    named = controller_owner(manifest)
    group = named.api_version.partition("/")[0] if named else ""
    kind = next((one for one in owners if named and (one.group, one.kind) == (group, named.kind)), None)
    return kind is not None and key(manifest).namespace == namespace


def is_late(since: str | None, now: float) -> bool:
    """Whether Jobs have had more than ``EVICTION_SECONDS`` since ``since``, a time in Kubernetes' format. False if
    ``since`` is None."""
    return since is not None and now - unix_time(since) > EVICTION_SECONDS
