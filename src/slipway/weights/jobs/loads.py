"""Loads: Jobs of the loader that load, inspect, check or remove weights. Pure.

A Job counts only if it does what is needed now. A Job of an earlier spec is deleted first.
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
"""Interval after which a failed load is retried, because the cause may not be an object that is watched."""
LOAD_SECONDS = 24 * 3600
"""Time limit of a load onto a node. It then fails, so that others get their turn, and the next one resumes it."""
ANSWER_SECONDS = 600
"""Time limit for querying a source, including the start of the pod; a pod does not start on a node without the file."""
REPORT_SECONDS = 60
"""How long to wait for the pod's last message after a Job is complete. After that the Job is repeated, which costs
little."""
EVICTION_SECONDS = 600
"""How long the deletion of a resource waits for its Jobs. After that it is deleted, and its weights stay on the
volume."""
LASTING: tuple[Fault, ...] = ("IntegrityCheckFailed", "SourceNotAllowed", "InvalidFileSet", "UnsupportedSource")
"""Failures that a retry would only repeat, after transferring as many bytes. Changing the spec or deleting the Job
starts a new attempt."""
NAME_LABEL, INSTANCE_LABEL = "app.kubernetes.io/name", "app.kubernetes.io/instance"
EVERYWHERE: Object = {"operator": "Exists"}


class Runner(msgspec.Struct, frozen=True, kw_only=True):
    """The user and the image with which an API runs the loader."""

    image: str
    manager: str
    """Value of the managed-by label of Jobs and pods."""
    labels: Mapping[str, str] = {}
    """Further labels of Jobs and pods."""
    security: Object = {}
    """Security context of the container."""
    pod_security: Object = {}
    service_account: str = ""
    image_pull_secrets: tuple[str, ...] = ()
    controller_key: str = ""
    """The controller's public key; see World."""


def container(
    runner: Runner,
    arguments: Sequence[str],
    access: Access,
    *,
    name: str = agent.CONTAINER,
    env_from: Sequence[Object] = (),
) -> Container:
    """Returns a container that runs a command of the loader. With the loader's own ``name`` the controller reads its
    progress; other containers do not open the port."""
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
    """Returns a Job with this container. ``others``: further fields of :class:`slipway.serving.pods.job.Task`."""
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
    """Returns a Job that removes a place's directory, on any node that can mount its claim."""
    access = place.access_to_all(volume)
    arguments = ("evict", place.path, *options)
    evictor = container(runner, arguments, access, name="evictor")
    return task(runner, name, namespace, evictor, access.volumes, tolerations=(EVERYWHERE,))


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A Job and its observed state."""

    name: str
    job: Object | None = None
    """None: there is none, or it does something other than what is needed now."""
    pods: Sequence[Object] = ()
    """Pods of this Job, newest first."""

    @property
    def complete_since(self) -> float | None:
        """Unix time at which it completed; None: it has not."""
        return ended(self.job, "Complete")

    @property
    def failed_since(self) -> float | None:
        """Unix time at which it failed; None: it has not."""
        return ended(self.job, "Failed")

    @property
    def over(self) -> bool:
        return self.complete_since is not None or self.failed_since is not None

    @property
    def report(self) -> Report | None:
        return read_report(termination_message(self.pods)) if self.complete_since is not None else None

    @property
    def fault(self) -> tuple[Fault | None, str]:
        """Returns why its last pod failed: a code, if there is one, and a sentence."""
        if (limit := exceeded(self.job)) is not None:
            return None, f"it did not finish within {limit // 60} min"
        return fault(last_error(self.pods))

    def retried_at(self) -> float | None:
        """Returns the Unix time of the next Job; None: this one has not ended, or another one would not help."""
        if self.complete_since is not None and self.report is None:
            return self.complete_since + REPORT_SECONDS
        if self.complete_since is not None and self.report is not None and self.report.fault:
            return self.complete_since + RETRY_SECONDS  # users may replace files on a claim or a node
        if self.failed_since is not None and self.fault[0] not in LASTING:
            return self.failed_since + RETRY_SECONDS
        return None

    def outlived(self, now: float) -> bool:
        """Whether it is time for another Job; this one is then deleted first."""
        retried = self.retried_at()
        return retried is not None and now >= retried

    def children(self, child: Object, now: float) -> tuple[Object, ...]:
        """Returns the Job ``child``, unless it is time for another one."""
        return () if self.outlived(now) else (child,)


def observe_run(world: World, name: Key, arguments: Sequence[str]) -> Run:
    """Returns the state of the Job with this name, if its program has these arguments."""
    existing = world.children.get((JOB, name))
    if existing is None or deleting(existing) or arguments_of(existing) != [*arguments]:
        return Run(name=name.name)
    return Run(name=name.name, job=existing, pods=pods_of(existing, world.pods))


def arguments_of(manifest: Object) -> list[str]:
    """Returns the program's arguments, which distinguish a Job from another one with the same name."""
    arguments: list[str] = manifest["spec"]["template"]["spec"]["containers"][0].get("args", [])
    return arguments


def in_place(manifest: Object, owners: Iterable[Kind], namespace: str) -> bool:
    """Whether a Job is one of ours for a resource of these kinds. Ours run in ``namespace``; Jobs elsewhere may only
    claim such an owner."""
    named = controller_owner(manifest)
    group = named.api_version.partition("/")[0] if named else ""
    kind = next((one for one in owners if named and (one.group, one.kind) == (group, named.kind)), None)
    return kind is not None and key(manifest).namespace == namespace


def is_late(since: str | None, now: float) -> bool:
    """Whether the Jobs have had enough time since ``since``, a time in Kubernetes' format."""
    return since is not None and now - unix_time(since) > EVICTION_SECONDS
