"""Messages about the progress and the failure of a load. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from slipway.kube.objects import Object, uid
from slipway.serving.containers.diagnosis import Diagnosis, Limits, diagnose, sentence
from slipway.serving.contract.api import World
from slipway.serving.pods.job import without_pods
from slipway.serving.wire.agent import Progress
from slipway.weights.jobs.loads import Run

LOADING = "The weights are being loaded into the cache"
AGAIN = "It is retried automatically."


class Moving(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a load that has not ended."""

    message: str
    progress: Progress | None
    """Last progress that the loader reported; None: it has not reported any."""
    diagnosis: Diagnosis
    """Diagnosis of the Job's pods, with their problem if there is one."""
    running: Sequence[Object]
    """Pods of the Job that have not ended."""


def moving(run: Run, world: World, without: Diagnosis | None = None, *, does: str = LOADING) -> Moving:
    """Return the state of a load that has not ended. ``without`` is the diagnosis of a Job without pods; None: the
    usual one. ``does`` is a clause that describes what the Job does."""
    running = [pod for pod in run.pods if pod.get("status", {}).get("phase") not in ("Failed", "Succeeded")]
    reports = (world.agents.get(uid(pod)) for pod in running)
    progress = next((report.progress for report in reports if report and report.progress), None)
    parts = [f"{does}."]
    if progress and progress.message:
        parts = [sentence(f"{does}: {progress.message}")]
    attempts = len(run.pods) - len(running) - (run.complete_since is not None)
    if attempts > 0:
        parts.append(f"{attempts} attempt{'s' * (attempts != 1)} failed: {_last_sentence(run)}")
    if run.pods:
        diagnosis = _diagnosis(running, world)
    else:
        diagnosis = without_pods(run.job, "loads the weights", world.now) if without is None else without
    return Moving(message=" ".join(parts), progress=progress, diagnosis=diagnosis, running=running)


def _last_sentence(run: Run) -> str:
    """Return the reason why the newest failed pod failed, as a sentence."""
    return sentence(run.fault[1] or "no reason is given")


def failed(does: str, run: Run) -> str:
    """Return a message about a failed load, including whether the load is retried. ``does`` is the failed action, such
    as ``be read``."""
    again = AGAIN if run.retried_at() is not None else f"Change the spec, or delete the Job {run.name} to try again."
    return f"The weights could not {does}: {_last_sentence(run)} {again}"


def _diagnosis(running: Sequence[Object], world: World) -> Diagnosis:
    """Return the diagnosis of pods that run the loader instead of an engine."""
    patience = Limits(
        startup_seconds=0,
        unschedulable_grace_seconds=world.settings.unschedulable_grace_seconds,
        container="",
    )
    return diagnose(None, running, patience, world.now, lambda _log: None)
