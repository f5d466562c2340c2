"""A node is drained as its pods' budgets allow, and is not left cordoned."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .node_api import MARK, NodeApi
from .role_run import run_play
from .test_gpu_node_run import Machine

pytestmark = pytest.mark.plays

NODE = "gpu-1"
NOBODYS_PACKAGE = {
    "gpu_node_name": NODE,
    "gpu_node_nvidia_repository": "none",
    "gpu_node_repository_epel_url": "",
    "gpu_node_driver_packages": ["no-such-package-of-anybody"],
}


@pytest.fixture
def api() -> Iterator[NodeApi]:
    server = NodeApi()
    yield server
    server.stop()


def play(folder: Path, api: NodeApi, entry: str, *flags: str, failing: bool = False, **variables: object) -> str:
    """Output of a play on a node that can be reached by no connection, in one line."""
    role = {"ansible.builtin.import_role": {"name": "slipway.inference.gpu_node", "tasks_from": entry}}
    node = {
        "hosts": NODE,
        "gather_facts": False,
        "become": True,
        "environment": {"K8S_AUTH_HOST": api.url, "K8S_AUTH_API_KEY": "no-rights"},
        "vars": {"gpu_node_drain_timeout": 200, **variables},
        "tasks": [role],
    }
    # Who has localhost in the inventory does not mean to log in to it.
    return run_play(folder, node, *flags, inventory=f"{NODE},localhost,", failing=failing)


def test_pods_go_but_for_those_that_belong_to_the_node(tmp_path: Path, api: NodeApi) -> None:
    api.node(NODE)
    api.pod("one", NODE)
    api.pod("plugin", NODE, owner="DaemonSet")
    api.pod("elsewhere", "gpu-2")

    play(tmp_path, api, "drain")

    assert api.events == [f"cordon {NODE}", "evict one"]
    assert set(api.pods) == {"plugin", "elsewhere"}

    play(tmp_path, api, "uncordon")
    assert api.events[-1] == f"uncordon {NODE}"
    assert api.nodes[NODE]["metadata"]["annotations"] == {}
    assert api.nodes[NODE]["spec"] == {"unschedulable": False}


def test_completed_work_is_not_repeated(tmp_path: Path, api: NodeApi) -> None:
    api.node(NODE)
    play(tmp_path, api, "drain")
    api.events.clear()

    assert "changed=0 " in play(tmp_path, api, "drain")
    assert api.events == []

    play(tmp_path, api, "uncordon")
    assert "changed=0 " in play(tmp_path, api, "uncordon")


def test_a_node_is_empty_when_its_pods_say_so_and_not_the_words_of_a_module(tmp_path: Path, api: NodeApi) -> None:
    """One that is there again is evicted again, though the first answer spoke of an end."""
    api.node(NODE)
    api.pod("one", NODE)
    api.returning = {"one"}

    play(tmp_path, api, "drain")

    assert api.events == [f"cordon {NODE}", "evict one", "evict one"]
    assert api.pods == {}


def test_a_budget_is_waited_for(tmp_path: Path, api: NodeApi) -> None:
    api.node(NODE)
    api.pod("one", NODE)
    api.pod("two", NODE)
    api.held["one"] = 2

    play(tmp_path, api, "drain")

    assert api.events == [f"cordon {NODE}", "hold one", "hold one", "evict one", "evict two"]


def test_a_budget_that_never_allows_it_is_named_and_the_node_is_as_before(tmp_path: Path, api: NodeApi) -> None:
    api.node(NODE)
    api.pod("one", NODE)
    api.budget("always-two", healthy=2)
    api.held["one"] = 1000

    output = play(tmp_path, api, "drain", failing=True, gpu_node_drain_timeout=3)

    assert f"{NODE} is not drained after 3 s" in output
    assert "Cannot evict pod as it would violate the pod's disruption budget" in output
    assert "Remaining: models/one" in output
    assert "models/always-two allows no disruption: it requires 2 healthy pods and has 2" in output
    assert (api.events[0], api.events[-1]) == (f"cordon {NODE}", f"uncordon {NODE}")
    assert set(api.pods) == {"one"}


@pytest.mark.parametrize(
    ("pod", "allowed"),
    [({"owner": ""}, "gpu_node_drain_force"), ({"empty_dir": True}, "gpu_node_drain_delete_emptydir")],
    ids=["no-rights", "with-data"],
)
def test_a_drain_fails_at_once_if_it_would_lose_pods_or_data(
    tmp_path: Path, api: NodeApi, pod: dict[str, object], allowed: str
) -> None:
    api.node(NODE)
    api.pod("one", NODE, **pod)  # type: ignore[arg-type]

    assert allowed in play(tmp_path, api, "drain", failing=True, gpu_node_drain_timeout=600)
    assert api.events == [f"cordon {NODE}", f"uncordon {NODE}"]

    play(tmp_path, api, "drain", **{allowed: True})
    assert api.pods == {}


def test_consent_to_lose_data_does_not_cover_pods_that_nothing_recreates(tmp_path: Path, api: NodeApi) -> None:
    api.node(NODE)
    api.pod("one", NODE, owner="", empty_dir=True)

    output = play(tmp_path, api, "drain", failing=True, gpu_node_drain_delete_emptydir=True)

    assert "Pods that no controller would recreate: models/one" in output
    assert api.events == [f"cordon {NODE}", f"uncordon {NODE}"]


def test_a_drain_deletes_downloads_of_models_without_a_setting(tmp_path: Path, api: NodeApi) -> None:
    api.node(NODE)
    api.pod("krypton", NODE, empty_dir=True, **{"krypton.ai/model": "one"})
    api.pod("kubeai", NODE, empty_dir=True, **{"app.kubernetes.io/managed-by": "kubeai"})
    api.pod("llmkube", NODE, empty_dir=True, **{"inference.llmkube.dev/service": "one"})
    api.pod("gateway", NODE, empty_dir=True, **{"app.kubernetes.io/part-of": "slipway"})

    play(tmp_path, api, "drain")

    assert api.pods == {}


def test_a_failed_drain_lists_pods_with_data_but_no_models(tmp_path: Path, api: NodeApi) -> None:
    api.node(NODE)
    api.pod("model", NODE, empty_dir=True, **{"krypton.ai/model": "one"})
    api.pod("database", NODE, empty_dir=True)
    api.pod("plugin", NODE, owner="DaemonSet", empty_dir=True)

    output = play(tmp_path, api, "drain", failing=True)

    assert "Pods whose data would be lost: models/database gpu_node_drain_force" in output
    assert set(api.pods) == {"model", "database", "plugin"}


def test_a_node_that_a_person_has_cordoned_stays_so(tmp_path: Path, api: NodeApi) -> None:
    api.node(NODE, unschedulable=True)
    api.pod("one", NODE)
    api.held["one"] = 1000

    play(tmp_path, api, "drain", failing=True, gpu_node_drain_timeout=2)

    assert {event.split()[0] for event in api.events} == {"hold"}
    assert api.nodes[NODE]["metadata"]["annotations"] == {}


def test_a_node_that_an_earlier_run_has_left_cordoned_is_known_by_its_mark(tmp_path: Path, api: NodeApi) -> None:
    api.node(NODE, unschedulable=True, **{MARK: "slipway.inference.gpu_node"})
    api.pod("one", NODE)
    api.held["one"] = 1000

    play(tmp_path, api, "drain", failing=True, gpu_node_drain_timeout=2)

    assert api.events[-1] == f"uncordon {NODE}"


def test_a_drained_node_stays_drained_after_reboots(tmp_path: Path, api: NodeApi) -> None:
    """Also where a reboot that did not come to its end had cordoned it before."""
    api.node(NODE)
    play(tmp_path, api, "drain", __gpu_node_for_a_reboot=True)
    assert api.nodes[NODE]["metadata"]["annotations"] == {MARK: "slipway.inference.gpu_node"}

    for further in ({}, {"__gpu_node_for_a_reboot": True}):
        play(tmp_path, api, "drain", **further)
        assert api.nodes[NODE]["metadata"]["annotations"] == {}
        assert api.nodes[NODE]["spec"] == {"unschedulable": True}


def test_check_mode_predicts_changes_and_makes_none(tmp_path: Path, api: NodeApi) -> None:
    api.node(NODE)
    api.pod("one", NODE)

    assert "changed=1 " in play(tmp_path, api, "drain", "--check")
    assert api.events == []


def test_a_machine_that_is_no_node_has_nothing_to_drain(tmp_path: Path, api: NodeApi) -> None:
    assert f"{NODE} is not a node of the cluster" in play(tmp_path, api, "drain")


def node_status(boot: str, gpus: str, ready: str = "True") -> dict[str, object]:
    """What a kubelet says of its node. It has not spoken since the reboot where the boot is the earlier one."""
    condition = {"type": "Ready", "status": ready, "lastHeartbeatTime": f"of-{boot}"}
    return {
        "nodeInfo": {"bootID": boot},
        "conditions": [condition],
        "allocatable": {"cpu": "8", "nvidia.com/gpu": gpus},
    }


def recorded_facts(before: dict[str, object]) -> dict[str, object]:
    """What the role has kept of a node that had all its GPUs first, and none when its driver was replaced."""
    had = node_status("first", "8")["allocatable"]
    return {"__gpu_node_before": {**before, "status": node_status("first", "0")}, "__gpu_node_had": had}


def test_a_node_is_back_when_its_kubelet_has_spoken_and_it_has_all_its_gpus(tmp_path: Path, api: NodeApi) -> None:
    before = {**api.node(NODE), "status": node_status("first", "8")}
    api.statuses = [
        node_status("first", "8"),
        node_status("second", "8", "False"),
        node_status("second", "0"),
        node_status("second", "8"),
    ]

    play(tmp_path, api, "wait_ready", **recorded_facts(before), gpu_node_reboot_timeout=200)

    assert api.statuses == [node_status("second", "8")]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (node_status("first", "8"), "its kubelet is not ready"),
        (node_status("second", "7"), "it no longer offers 8 nvidia.com/gpu"),
    ],
    ids=["silent", "with-fewer-gpus"],
)
def test_a_node_that_is_not_back_in_time_is_reported(
    tmp_path: Path, api: NodeApi, status: dict[str, object], expected: str
) -> None:
    before = {**api.node(NODE), "status": node_status("first", "8")}
    api.statuses = [status]

    output = play(tmp_path, api, "wait_ready", failing=True, **recorded_facts(before), gpu_node_reboot_timeout=1)

    assert f"{NODE} is not ready 1 s after its reboot: {expected}" in output


@pytest.fixture
def found_api(api: NodeApi, monkeypatch: pytest.MonkeyPatch) -> NodeApi:
    """The server that plays use by default."""
    monkeypatch.setenv("K8S_AUTH_HOST", api.url)
    monkeypatch.setenv("K8S_AUTH_API_KEY", "no-rights")
    return api


def test_if_another_driver_cannot_be_installed_pods_may_return(tmp_path: Path, found_api: NodeApi) -> None:
    """They are evicted before the driver is changed. No repository provides the package."""
    found_api.node(NODE)
    found_api.pod("one", NODE, empty_dir=True, **{"krypton.ai/model": "one"})

    machine = Machine(tmp_path, "rocky9").has_gpu("nvidia").runs_driver()
    output = machine.plays("main", failing=True, **NOBODYS_PACKAGE, gpu_node_nvidia_branch="595")

    assert "Install the packages of the driver" in output
    assert found_api.events == [f"cordon {NODE}", "evict one", f"uncordon {NODE}"]


def test_nodes_that_an_interrupted_run_left_cordoned_are_uncordoned(tmp_path: Path, found_api: NodeApi) -> None:
    """Also where there is nothing to reboot for any more."""
    found_api.node(NODE, unschedulable=True, **{MARK: "slipway.inference.gpu_node"})

    Machine(tmp_path, "rocky9").has_gpu().plays("main", failing=True, **NOBODYS_PACKAGE)

    assert found_api.events == [f"uncordon {NODE}"]
