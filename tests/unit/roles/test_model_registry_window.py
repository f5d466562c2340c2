"""The collector's window: when it opens, and that it closes however it ends."""

from __future__ import annotations

import importlib.util
import threading
from pathlib import Path
from typing import Any

import pytest

from slipway.kube.objects import Object

FILE = Path(__file__).parents[3] / "roles/model_registry/files/window.py"
spec = importlib.util.spec_from_file_location("window", FILE)
assert spec
assert spec.loader
window: Any = importlib.util.module_from_spec(spec)
spec.loader.exec_module(window)


class Registry:
    """A Deployment that reaches its desired state after a few requests."""

    def __init__(self, looks: int) -> None:
        self.looks, self.left = looks, 0
        self.read_only: list[bool] = []

    def __call__(self, patch: Object | None = None) -> Object:
        if patch is None:
            self.left -= 1
        else:
            [container] = patch["spec"]["template"]["spec"]["containers"]
            [variable] = container["env"]
            assert (container["name"], variable["name"]) == ("registry", "REGISTRY_STORAGE_MAINTENANCE_READONLY")
            self.read_only.append(variable.get("$patch") != "delete")
            self.left = self.looks
        count = 1 if self.left <= 0 else 0
        status = {"observedGeneration": 7, "replicas": 1, "updatedReplicas": 1, "availableReplicas": count}
        return {"metadata": {"generation": 7}, "spec": {"replicas": 1}, "status": status}


class Stop(threading.Event):
    """Is set at the first wait of length 0, when ``file`` must exist."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file, self.waits = file, 0

    def wait(self, timeout: float | None = None) -> bool:
        self.waits += 1
        if timeout is None:
            assert self.file.exists()
            self.set()
        return self.is_set()


@pytest.fixture
def given(tmp_path: Path) -> dict[str, Any]:
    folders = [str(tmp_path / "v2/blobs")]
    given = {"container": "registry", "open": str(tmp_path / "open"), "seconds": 60, "folders": folders}
    return {**given, "depot": {"seconds": 60}}


class Depot:
    """Answers with these, an exception among them, one after the other, and with the last one from then on."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.calls = list(answers), 0

    def __call__(self) -> Any:
        self.calls += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


DONE, MORE = {"removed": 3, "complete": True}, {"removed": 9, "complete": False}


@pytest.mark.parametrize(
    ("depot", "calls"),
    [
        (Depot(DONE), 1),
        (Depot(MORE, MORE, DONE), 3),
        (Depot(OSError("away"), DONE), 2),
        (Depot(OSError("away")), window.TRIES),
        (Depot([]), window.TRIES),
        (Depot({}), window.TRIES),
    ],
    ids=["at once", "in parts", "later", "never", "a list", "nothing"],
)
def test_the_depot_sweeps_before_the_registry_becomes_read_only(
    given: dict[str, Any], depot: Depot, calls: int
) -> None:
    registry, order = Registry(looks=1), []

    def first() -> Any:
        order.append(list(registry.read_only))
        return depot()

    assert window.hold(registry, given, Stop(Path(given["open"])), first) == 0
    assert depot.calls == calls
    assert not any(order)
    assert registry.read_only == [True, False]


def test_it_opens_when_every_pod_is_read_only_and_closes_on_a_signal(given: dict[str, Any]) -> None:
    registry, stop = Registry(looks=3), Stop(Path(given["open"]))
    assert window.hold(registry, given, stop, Depot(DONE)) == 0
    assert registry.read_only == [True, False]
    assert stop.waits == 3 + 1
    assert Path(given["folders"][0]).is_dir()


def test_a_registry_that_does_not_come_up_read_only_is_writable_again(given: dict[str, Any]) -> None:
    registry = Registry(looks=1000)
    assert window.hold(registry, {**given, "seconds": -1}, Stop(Path(given["open"])), Depot(DONE)) == 1
    assert registry.read_only == [True, False]
    assert not Path(given["open"]).exists()


def test_a_signal_before_it_is_open_also_closes_it(given: dict[str, Any]) -> None:
    registry, stop = Registry(looks=1000), threading.Event()
    stop.set()
    assert window.hold(registry, given, stop, Depot(DONE)) == 1
    assert registry.read_only == [True, False]


def test_restarted_while_the_collector_works_it_leaves_the_registry_as_it_is(given: dict[str, Any]) -> None:
    Path(given["open"]).touch()
    registry = Registry(looks=3)
    depot = Depot(DONE)
    assert window.hold(registry, given, Stop(Path(given["open"])), depot) == 0
    assert registry.read_only == [False]
    assert not depot.calls


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"observedGeneration": 6, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1},
        {"observedGeneration": 7, "replicas": 2, "updatedReplicas": 1, "availableReplicas": 1},
        {"observedGeneration": 7, "replicas": 1, "updatedReplicas": 0, "availableReplicas": 1},
    ],
)
def test_nothing_is_settled_while_other_pods_are_there_or_none_was_looked_at(status: Object) -> None:
    assert not window.settled({"metadata": {"generation": 7}, "spec": {"replicas": 1}, "status": status})
