"""The report of the role status, and its messages about objects that the account may not read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROLE = Path(__file__).parents[3] / "roles/status"
GOLDEN = Path(__file__).parent / "golden/status.txt"
Object = dict[str, Any]
READY = [{"type": "Ready", "status": "True"}]


def part(kind: str, name: str, image: str, version: str = "", **status: int) -> Object:
    labels = {"slipway.inference/version": version} if version else {}
    spec = {"replicas": 2, "template": {"spec": {"containers": [{"image": image}]}}}
    return {"metadata": {"name": name, "namespace": "slipway-system", "labels": labels}, "spec": spec, "status": status}


def node(name: str, address: str, *, ready: bool = True, **allocatable: str) -> Object:
    resources = {key.replace("__", "."): value for key, value in allocatable.items()}
    status = {
        "conditions": READY if ready else [],
        "nodeInfo": {"kubeletVersion": "v1.36.4"},
        "allocatable": {"cpu": "8", **{f"{key}/gpu": value for key, value in resources.items()}},
        "addresses": [{"type": "InternalIP", "address": address}],
    }
    return {"metadata": {"name": name}, "status": status}


def model(name: str, *, kind: str = "Model", ready: bool = True, **fields: Any) -> Object:
    usual = {"phase": "Ready" if ready else "Failed", "url": "", "reason": "", "message": "", "conditions": []}
    return {"kind": kind, "namespace": "models", "name": name, "ready": ready, **usual, **fields}


def collect(**read: Any) -> Object:
    """What the role keeps, where these objects are read by kind; those of a kind that is None may not be."""
    loader = DataLoader()
    role_vars: Object = {}
    for file in (ROLE / "defaults/main.yml", *sorted((ROLE / "vars/main").glob("*.yml"))):
        role_vars |= loader.load_from_file(str(file), trusted_as_template=True)
    kinds = [row["kind"] for row in role_vars["__status_kinds_anywhere"] + role_vars["__status_kinds_of_openshift"]]
    results = [
        {"item": {"kind": kind}}
        | ({"msg": "Forbidden"} if read.get(kind, []) is None else {"resources": read.get(kind, [])})
        for kind in kinds
    ]
    models = [
        {"item": api}
        | ({"msg": "Forbidden"} if read.get(api, []) is None else {"resources": [], "models": read.get(api, [])})
        for api in ("krypton", "kubeai", "llmkube", "ome", "deckhouse")
    ]
    registered = {
        "__status_objects": {"results": results},
        "__status_models_read": {"results": models},
        "__status_services_read": {
            "results": [{"item": "llmkube", "resources": [], "inference_services": read.get("services", [])}]
        },
    }
    kept: Object = Templar(loader=loader, variables=role_vars | registered).template(
        trust_as_template("{{ __status_facts }}")
    )
    return kept


def report(kept: Object) -> str:
    templar = Templar(loader=DataLoader(), variables={"status_found": kept, "status_models_shown": 4})
    text = trust_as_template((ROLE / "templates/report.txt.j2").read_text())
    shown: str = templar.copy_with_new_env(trim_blocks=True).template(text, escape_backslashes=False)
    return shown.strip() + "\n"


def definition(name: str, owner: str) -> Object:
    return {"metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": owner}}}


def test_the_report_reads_well() -> None:
    service = {
        "metadata": {"name": "slipway-gateway", "namespace": "slipway-system"},
        "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]},
        "status": {},
    }
    asleep = {"conditions": [{"type": "Available", "status": "False", "reason": "ScaledToZero"}]}
    lost = {"reason": "Unschedulable", "message": "no node has\nnvidia.com/gpu: 8"}
    kept = collect(
        Deployment=[
            part("Deployment", "slipway-gateway", "slipway/slipway:0.4.0", "0.4.0", readyReplicas=2),
            part("Deployment", "slipway-controller", "slipway/slipway:0.4.0", "0.4.0", readyReplicas=1),
        ],
        DaemonSet=[part("DaemonSet", "slipway-nvidia", "plugin:1", numberReady=1, desiredNumberScheduled=1)],
        Service=[service],
        Node=[
            node("a", "10.0.0.7"),
            node("b", "10.0.0.8", nvidia__com="4"),
            node("c", "10.0.0.9", ready=False, nvidia__com="4"),
        ],
        CustomResourceDefinition=[
            definition("models.krypton.ai", "slipway"),
            definition("models.kubeai.org", "kubeai"),
            definition("models.inference.llmkube.dev", "slipway"),
        ],
        krypton=[model("tiny"), model("large", ready=False, **lost)],
        kubeai=[model("sleeper", **asleep)],
        llmkube=[model("weights")],
        services=[model("chat", kind="InferenceService")],
    )
    assert kept["answering"] == ["chat", "tiny"]
    assert report(kept) == GOLDEN.read_text()


def test_the_report_counts_1k_as_a_thousand() -> None:
    kept = collect(Node=[node("a", "10.0.0.7", nvidia__com="1k"), node("b", "10.0.0.8", nvidia__com="8")])
    assert kept["accelerators"] == {"nvidia.com/gpu": 1008}


def test_models_that_serve_nothing_are_not_suggested() -> None:
    gateway = part("Deployment", "slipway-gateway", "slipway/slipway:0.4.0", readyReplicas=2)
    kept = collect(
        Deployment=[gateway],
        ome=[model("base", kind="BaseModel"), model("shared", kind="ClusterBaseModel", namespace="")],
        deckhouse=[model("published")],
    )
    assert kept["answering"] == []
    assert '"model": "NAME"' in report(kept)
    assert (
        "Models: 0 of 0 ready\n"
        "  ome      weights models/base: ready\n"
        "  ome      weights shared: ready\n"
        "  deckhouse weights models/published: ready\n"
    ) in report(kept)


def test_unreadable_objects_are_not_called_missing() -> None:
    kept = collect(CustomResourceDefinition=None, Node=None)
    assert set(kept["apis"].values()) == {"unknown"}
    assert kept["unknown"] == ["Node: Forbidden", "CustomResourceDefinition: Forbidden"]
    assert "Could not be read:\n  Node: Forbidden\n" in report(kept)


def test_the_report_names_the_lists_that_could_not_be_read() -> None:
    text = report(collect(Deployment=None, krypton=None))
    assert text.startswith("What is installed in namespace slipway-system could not be read.\n")
    assert "Models: could not be read\n" in text


def test_an_installation_in_another_namespace_is_not_this_one() -> None:
    gateway = part("Deployment", "slipway-gateway", "slipway/slipway:0.4.0")
    gateway["metadata"]["namespace"] = "elsewhere"
    kept = collect(Deployment=[gateway])
    assert kept["parts"] == []
    assert "The gateway answers" not in report(kept)


def test_an_empty_cluster_is_reported_as_such() -> None:
    kept = collect()
    assert report(kept).startswith("Slipway is not installed in namespace slipway-system.\n")
    assert kept["answering"] == []


def test_a_model_whose_short_id_leads_to_another_is_reported_beside_its_state() -> None:
    lost = {"type": "Routed", "status": "False", "reason": "NameConflict", "message": "tiny is served by a/tiny."}
    kept = collect(krypton=[model("tiny", conditions=[lost]), model("other")])
    assert "tiny: ready, NameConflict: tiny is served by a/tiny.\n" in report(kept)
    assert "other: ready\n" in report(kept)
