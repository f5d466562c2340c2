# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every module in every situation that its documentation speaks of. A new module gets an entry in SUBJECTS."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fake_depot as depot
import krypton_models as krypton
import llmkube_objects as llmkube
import ome_objects as ome
import pytest
from fake_api import Answer, FakeApi
from gpu_machines import Machine
from module_run import Result, Run

Object = dict[str, Any]
Controller = Callable[[FakeApi, Object], None]
Situations = Callable[[FakeApi, Run, Path], Iterator[tuple[str, Result]]]


@dataclass(frozen=True)
class Subject:
    """How to try out a module.

    ``changing``: tasks that a second run changes nothing of, by what they do; none for a module that only reads.
    ``prepare`` makes the world in which they run. ``situations`` yields a name and a result for each situation.
    """

    prepare: Callable[[FakeApi, Run, Path], None]
    situations: Situations
    reading: Callable[[Path], Object] | None = None
    changing: dict[str, Object] = field(default_factory=dict)


# ---- modules that make objects ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Family:
    """A module that makes objects, with its API. ``task`` gives its arguments for objects of these names."""

    module: str
    task: Callable[..., Object]
    ready: Controller
    pending: Controller
    failed: Controller
    pod_labels: dict[str, str]
    held: str  # path of an object that something holds while it is deleted


LISTS = {
    "model": ("models",),
    "inference_service": ("models", "inference_services"),
    "benchmark_job": ("benchmark_jobs",),
}
"""The options of each module with many objects."""


def _nothing(module: str) -> Object:
    return {option: [] for option in LISTS[module]}


def _of_ome(api: FakeApi, run: Run, module: str) -> Iterator[tuple[str, Result]]:
    """Models on nodes, whose status tells which."""
    if "models" in LISTS[module]:
        api.controller = ome.becomes()
        models = [{"name": "on-nodes", "namespace": "models", "spec": ome.MODEL_SPEC}]
        yield "on nodes", run(module, api="ome", **{**_nothing(module), "models": models})


def _of_deckhouse(api: FakeApi, run: Run, module: str) -> Iterator[tuple[str, Result]]:
    """Models in a registry, with their progress in the status."""
    if "models" in LISTS[module]:
        api.served.add(f"/apis/{depot.API}")
        upload = {"secretName": "late-upload", "secretNamespace": "models"}
        waiting = depot.waiting("Pending", "The Secret says where to upload.")
        api.controller = lambda api, model: api.set_status(
            depot.MODELS + model["metadata"]["name"], phase="WaitForUpload", progress="0%", upload=upload, **waiting
        )
        models = [{"name": "late", "namespace": "models", "spec": {"source": {"upload": {}}}}]
        yield (
            "waits for its upload",
            run(module, api="deckhouse", **{**_nothing(module), "models": models}, wait_timeout=1),
        )


def _pruned(api: FakeApi, run: Run, family: Family) -> Iterator[tuple[str, Result]]:
    """Obsolete objects are deleted, or a deletion is blocked."""

    def task(name: str, **more: Any) -> Result:
        return run("model", prune=["team=search"], **family.task(name), **more)

    api.controller = lambda _api, _resource: None
    run("model", **family.task("old"), wait=False)
    api.objects[krypton.PATH + "old"]["metadata"]["labels"] = {"team": "search"}
    yield "pruning predicted", task("a", check=True, wait=False)
    api.answers.append(Answer(lambda call: call.verb == "delete", 403, "Forbidden", "a rule"))
    yield "pruning refused", task("a", wait=False)
    api.finalizers.add(krypton.PATH + "old")
    _break_a_pod(api, {"krypton.ai/model": "old"})
    api.controller = family.ready
    yield "pruning held", task("b", wait_timeout=1)
    api.finalizers.clear()
    api.remove(krypton.PATH + "old")
    for name in ("a", "b"):
        api.remove(krypton.PATH + name)


def _otherwise(value: Any) -> Any:
    """The first field of a spec, with another value."""
    return {key: _otherwise(part) for key, part in [*value.items()][:1]} if isinstance(value, dict) else "changed"


def _drifted(api: FakeApi, run: Run, family: Family) -> Iterator[tuple[str, Result]]:
    """Another client has changed a field that the task sets."""
    resource = api.objects[family.held]
    identity = {key: resource[key] for key in ("apiVersion", "kind")}
    spec = family.task("a")[LISTS[family.module][-1]][0]["spec"]
    api.put(family.held, {**identity, "metadata": {"name": "a", "namespace": "models"}, "spec": _otherwise(spec)})
    yield "drifted", run(family.module, **family.task("a"))
    yield "taken back", run(family.module, **family.task("a"), force_conflicts=True)


def _situations(family: Family) -> Situations:
    def situations(api: FakeApi, run: Run, _folder: Path) -> Iterator[tuple[str, Result]]:
        module, task = family.module, family.task
        yield from _of_ome(api, run, module)
        if module == "model":
            yield from _of_deckhouse(api, run, module)
            yield from _pruned(api, run, family)
        yield "empty", run(module, **_nothing(module))
        api.controller = family.ready
        yield "predicted", run(module, check=True, **task("a", "b"))
        yield "predicted without a namespace", run(module, check=True, **{**task("a"), "namespace": "not-yet"})
        yield "made", run(module, **task("a", "b"))
        yield "left unchanged", run(module, **task("a", "b"))
        yield from _drifted(api, run, family)
        yield "patched", run(module, **task("a"), state="patched")
        yield "patch predicted", run(module, check=True, **task("never-there"), state="patched")
        yield "nothing to patch", run(module, **task("never-there"), state="patched")
        api.controller = family.pending
        yield "late", run(module, **task("c"), wait_timeout=1)
        _break_a_pod(api, family.pod_labels)
        api.controller = family.failed
        yield "failed", run(module, **task("bad", "c"))
        api.answers.append(Answer(lambda call: call.verb == "apply", 422, "Invalid", "spec: Invalid value: 0"))
        yield "refused", run(module, **task("d"))
        api.finalizers.add(family.held)
        yield "held", run(module, **task("a"), state="absent", wait_timeout=1)
        yield "removal predicted", run(module, check=True, **task("b"), state="absent")
        yield "removed", run(module, **task("b"), state="absent")
        yield "gone already", run(module, **task("b"), state="absent")
        yield "arguments that make no sense", run(module, **task("a"), wait_for=[{"equals": 1}])
        yield from _without_an_api(api, lambda: run(module, **task("e")))

    return situations


def _break_a_pod(api: FakeApi, labels: dict[str, str]) -> None:
    """A pod that does not start, with an event and a log that tell why."""
    api.objects["/api/v1/namespaces/models/pods/bad-1"] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "bad-1", "namespace": "models", "uid": "p", "labels": labels},
        "status": {"containerStatuses": [{"name": "engine", "restartCount": 2, "state": {"waiting": {}}}]},
    }
    api.objects["/api/v1/namespaces/models/events/e"] = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "models"},
        "involvedObject": {"kind": "Pod", "name": "bad-1", "uid": "p"},
        "type": "Warning",
        "reason": "BackOff",
        "message": "Back-off restarting failed container",
        "count": 4,
    }
    api.logs["bad-1"] = "loading\nerror: no such file\n"


def _without_an_api(api: FakeApi, call: Callable[[], Result]) -> Iterator[tuple[str, Result]]:
    api.answers.append(Answer(lambda _call: True, 401, "Unauthorized", "Unauthorized"))
    yield "unauthorized", call()
    api.served.clear()
    yield "without the definition", call()


def _dated(status: Object) -> Object:
    """A status as controllers write it: its conditions say since when, and of which generation."""
    dates = {"lastTransitionTime": "2026-01-02T03:04:05Z", "observedGeneration": 1}
    return {**status, "conditions": [{**condition, **dates} for condition in status["conditions"]]}


def _krypton_task(*names: str, **more: Any) -> Object:
    return {"namespace": "models", "models": [{"name": name, "spec": krypton.SPEC} for name in names], **more}


MODEL = Family(
    "model",
    _krypton_task,
    krypton.becomes(others=_dated(krypton.READY)),
    krypton.becomes(others=krypton.PENDING),
    krypton.becomes(bad=krypton.FAILED, others=krypton.PENDING),
    {"krypton.ai/model": "bad"},
    krypton.PATH + "a",
)


def _services_become(service: Object) -> Controller:
    return llmkube.becomes(llmkube.MODEL_READY, service)


SERVICE = Family(
    "inference_service",
    llmkube.task,
    _services_become(_dated(llmkube.SERVICE_READY)),
    _services_become(llmkube.WAITING_FOR_GPU),
    _services_become(llmkube.CRASHING),
    {"inference.llmkube.dev/service": "bad"},
    llmkube.SERVICES + "a",
)


BENCHMARK = Family(
    "benchmark_job",
    ome.benchmarks,
    ome.becomes(_dated(ome.COMPLETED)),
    ome.becomes(ome.WAITING),
    ome.becomes(ome.WAITING, bad=ome.FAILED),
    {"benchmark": "bad"},
    ome.BENCHMARKS + "a",
)


def _preparation(family: Family) -> Callable[[FakeApi, Run, Path], None]:
    def prepare(api: FakeApi, run: Run, _folder: Path) -> None:
        api.controller = family.ready
        assert not run(family.module, **family.task("there", "others")).failed

    return prepare


def _changing(family: Family, change: Object) -> dict[str, Object]:
    """``change``: other arguments for the object that is there."""
    return {
        "makes": family.task("new", "there"),
        "changes": change,
        "patches": {**change, "state": "patched"},
        "removes": {**family.task("there", "never-there"), "state": "absent"},
    }


# ---- modules that read objects ---------------------------------------------------------------------------------------


RUNTIMES: Object = {
    "runtime": {
        "name": "cpu",
        "kind": "ClusterServingRuntime",
        "score": 15,
        "chosen": "Selection",
        "next": [{"name": "other", "kind": "ServingRuntime", "score": 5}],
        "better": {"name": "new", "kind": "ClusterServingRuntime", "score": 25},
    },
    "excluded": [{"name": "gpu", "kind": "ClusterServingRuntime", "reason": "size 70B is beyond 8B"}],
}


def _reading(family: Family, **more: Any) -> Situations:
    """``more``: arguments for which it tells more of what it finds."""
    module = f"{family.module}_info"

    def situations(api: FakeApi, run: Run, _folder: Path) -> Iterator[tuple[str, Result]]:
        yield "nothing there", run(module)
        api.controller = family.ready
        run(family.module, **family.task("a"))
        api.controller = family.pending
        run(family.module, **family.task("b"), wait=False)
        yield "found", run(module, namespace="models")
        if family.module == "model":
            api.controller = ome.becomes()
            run("model", api="ome", name="on-nodes", spec=ome.MODEL_SPEC)
            yield "on nodes", run(module, api="ome")
            depot.put_model(api, depot.FakeDepot())
            yield "waits for its upload", run(module, api="deckhouse")
        yield "predicted", run(module, check=True)
        yield "waited for in vain", run(module, name="none", wait=True, wait_timeout=0)
        _break_a_pod(api, family.pod_labels)
        api.controller = family.failed
        run(family.module, **family.task("bad"), wait=False)
        yield "failed", run(module, name="bad", wait=True, wait_timeout=60)
        api.set_status(family.held, **RUNTIMES)
        yield "told more", run(module, **more)
        yield "arguments that make no sense", run(module, api="none")
        yield from _without_an_api(api, lambda: run(module))

    return situations


def _read(_folder: Path) -> Object:
    return {"namespace": "models"}


# ---- modules that run on a node --------------------------------------------------------------------------------------

TOOLS = {
    "nvidia-smi": """case $1 in
      --query*) echo "00000000:3B:00.0, NVIDIA H100 80GB HBM3, GPU-8d6c, 81559, Enabled" ;;
      *) printf 'GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-8d6c)\\n  MIG 1g.10gb     Device  0: (UUID: MIG-1111)\\n' ;;
    esac""",
    "modinfo": "echo version: 580.95.05",
}


def _a_node_with_a_gpu(_api: FakeApi, _run: Run, folder: Path) -> None:
    machine = Machine(folder / "root").has_device("0000:3b:00.0", "10de:2330", driver="nvidia")
    machine.has_module("nvidia", "580.95.05").has({"var/lib/dkms/mok.pub": b"no certificate"})


def _on_a_node(folder: Path) -> Object:
    return {"node": True, "root": str(folder / "root"), "tools": False}


def _nodes(api: FakeApi, run: Run, folder: Path) -> Iterator[tuple[str, Result]]:
    yield "no GPU", run("gpu_info", **_on_a_node(folder))
    _a_node_with_a_gpu(api, run, folder)
    yield "no tools", run("gpu_info", **_on_a_node(folder))
    yield "predicted", run("gpu_info", check=True, **_on_a_node(folder))
    (folder / "bin").mkdir()
    for name, script in TOOLS.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / "bin" / name).chmod(0o755)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
        yield "asked by tools", run("gpu_info", **{**_on_a_node(folder), "tools": True})


# ---- the module that uploads -----------------------------------------------------------------------------------------


def _a_model_to_upload(api: FakeApi, _run: Run, _folder: Path) -> None:
    depot.put_model(api, depot.FakeDepot())


def _uploads(api: FakeApi, run: Run, folder: Path) -> Iterator[tuple[str, Result]]:
    task = {"name": "tiny", "namespace": "models", "src": __file__}
    yield "no such model", run("model_upload", **task)
    yield "predicted without a model", run("model_upload", check=True, **task)
    _a_model_to_upload(api, run, folder)
    yield "another checksum", run("model_upload", **task, checksum="sha256:0")
    yield "predicted", run("model_upload", check=True, **task)
    yield "uploaded", run("model_upload", **task)
    yield "uploaded already", run("model_upload", **task)


# ---- all -------------------------------------------------------------------------------------------------------------

SUBJECTS: dict[str, Subject] = {
    "model": Subject(
        _preparation(MODEL),
        changing=_changing(MODEL, {"name": "there", "namespace": "models", "spec": {**krypton.SPEC, "port": 9090}}),
        situations=_situations(MODEL),
    ),
    "model_info": Subject(_preparation(MODEL), reading=_read, situations=_reading(MODEL)),
    "inference_service": Subject(
        _preparation(SERVICE),
        changing=_changing(
            SERVICE,
            {
                "name": "there",
                "namespace": "models",
                "spec": {**llmkube.SPEC, "modelRef": "there", "contextSize": 8192},
            },
        ),
        situations=_situations(SERVICE),
    ),
    "benchmark_job": Subject(
        _preparation(BENCHMARK),
        changing=_changing(
            BENCHMARK,
            {"name": "there", "namespace": "models", "spec": {**ome.BENCHMARK_SPEC, "maxRequestsPerIteration": 20}},
        ),
        situations=_situations(BENCHMARK),
    ),
    "inference_service_info": Subject(_preparation(SERVICE), reading=_read, situations=_reading(SERVICE, why=True)),
    "model_upload": Subject(
        _a_model_to_upload,
        changing={"uploads": {"name": "tiny", "namespace": "models", "src": __file__}},
        situations=_uploads,
    ),
    "gpu_info": Subject(_a_node_with_a_gpu, reading=_on_a_node, situations=_nodes),
}
