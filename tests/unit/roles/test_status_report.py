"""The report of the role status, as a person reads it, and what is told where something may not be read."""

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
        "nodeInfo": {"kubeletVersion": "v1.34.4"},
        "allocatable": {"cpu": "8", **{f"{key}/gpu": value for key, value in resources.items()}},
        "addresses": [{"type": "InternalIP", "address": address}],
    }
    return {"metadata": {"name": name}, "status": status}


def model(name: str, *, kind: str = "Model", ready: bool = True, **told: Any) -> Object:
    usual = {"phase": "Ready" if ready else "Failed", "url": "", "reason": "", "message": "", "conditions": []}
    return {"kind": kind, "namespace": "models", "name": name, "ready": ready, **usual, **told}


def found(**read: Any) -> Object:
    """What the role keeps, where these objects are read by kind; those of a kind that is None may not be."""
    loader = DataLoader()
    known: Object = {}
    for file in (ROLE / "defaults/main.yml", *sorted((ROLE / "vars/main").glob("*.yml"))):
        known |= loader.load_from_file(str(file), trusted_as_template=True)
    kinds = [row["kind"] for row in known["__status_kinds_anywhere"] + known["__status_kinds_of_openshift"]]
    results = [
        {"item": {"kind": kind}}
        | ({"msg": "Forbidden"} if read.get(kind, []) is None else {"resources": read.get(kind, [])})
        for kind in kinds
    ]
    models = [
        {"item": api}
        | ({"msg": "Forbidden"} if read.get(api, []) is None else {"resources": [], "models": read.get(api, [])})
        for api in ("krypton", "kubeai", "llmkube", "ome")
    ]
    published = read.get("deckhouse", [])
    states = [model(one["metadata"]["name"], ready=one["status"]["phase"] == "Ready") for one in published]
    models.append({"item": "deckhouse", "resources": published, "models": states})
    registered = {
        "__status_objects": {"results": results},
        "__status_claim_read": read.get("claim", {"skipped": True}),
        "__status_models_read": {"results": models},
        "__status_services_read": {
            "results": [{"item": "llmkube", "resources": [], "inference_services": read.get("services", [])}]
        },
    }
    kept: Object = Templar(loader=loader, variables=known | registered).template(
        trust_as_template("{{ __status_found }}")
    )
    return kept


def report(kept: Object) -> str:
    templar = Templar(loader=DataLoader(), variables={"status_found": kept, "status_models_shown": 4})
    text = trust_as_template((ROLE / "templates/report.txt.j2").read_text())
    shown: str = templar.copy_with_new_env(trim_blocks=True).template(text, escape_backslashes=False)
    return shown.strip() + "\n"


def store(name: str, *, ready: int = 1, claim: str = "") -> Object:
    """The registry, or its depot."""
    made = part("Deployment", name, f"{name}:3", readyReplicas=ready)
    made["spec"]["replicas"] = 1
    mounted = [{"name": "keys"}, {"name": "artifacts", "persistentVolumeClaim": {"claimName": claim}}]
    made["spec"]["template"]["spec"]["volumes"] = mounted if claim else []
    return made


def artifact(name: str, phase: str, size: int = 0) -> Object:
    status = {"phase": phase} | ({"artifact": {"digest": "sha256:1", "sizeBytes": size}} if size else {})
    return {"kind": "Model", "metadata": {"name": name, "namespace": "models"}, "status": status}


CLAIM = {
    "metadata": {"name": "slipway-registry"},
    "spec": {"resources": {"requests": {"storage": "10Gi"}}},
    "status": {"capacity": {"storage": "20Gi"}},
}


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
    kept = found(
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


def test_what_may_not_be_read_is_not_called_missing() -> None:
    kept = found(CustomResourceDefinition=None, Node=None)
    assert set(kept["apis"].values()) == {"unknown"}
    assert kept["unknown"] == ["Node: Forbidden", "CustomResourceDefinition: Forbidden"]
    assert "Not known, as it could not be read:\n  Node: Forbidden\n" in report(kept)


def test_what_runs_and_which_models_there_are_is_not_known_where_neither_may_be_read() -> None:
    told = report(found(Deployment=None, krypton=None))
    assert told.startswith("What is installed in namespace slipway-system could not be read.\n")
    assert "Models: could not be read\n" in told


def test_an_installation_in_another_namespace_is_not_this_one() -> None:
    gateway = part("Deployment", "slipway-gateway", "slipway/slipway:0.4.0")
    gateway["metadata"]["namespace"] = "elsewhere"
    kept = found(Deployment=[gateway])
    assert kept["parts"] == []
    assert "The gateway answers" not in report(kept)


def test_an_empty_cluster_is_told_as_such() -> None:
    kept = found()
    assert report(kept).startswith("Slipway is not installed in namespace slipway-system.\n")
    assert kept["answering"] == []


def test_artifacts_are_counted_and_held_against_the_claim_of_the_registry() -> None:
    kept = found(
        Deployment=[store("slipway-registry", claim="slipway-registry"), store("slipway-depot")],
        claim={"resources": [CLAIM]},
        deckhouse=[
            artifact("a", "Ready", 2 << 30),
            artifact("b", "Ready", 1 << 30),
            artifact("c", "Failed"),
            artifact("d", "WaitForUpload"),
        ],
    )
    assert kept["artifacts"] == {
        "phases": {"Ready": 2, "Failed": 1, "WaitForUpload": 1},
        "bytes": 3 << 30,
        "claim": "slipway-registry",
        "capacity_bytes": 20 << 30,
        "used_percent": 15,
        "registry": "ready",
        "depot": "ready",
    }
    assert kept["answering"] == [], "nobody is to ask the gateway for what serves nothing"
    assert (
        "\nArtifacts: 2 published, 1 failed, 1 to be uploaded\n"
        "  stored                     3.0 GiB of 20.0 GiB, 15 % of the claim slipway-registry\n"
    ) in report(kept)


def test_a_registry_or_depot_that_is_not_ready_is_told() -> None:
    served = [definition("models.ai.deckhouse.io", "slipway")]
    told = report(found(CustomResourceDefinition=served))
    assert "Artifacts: none yet\n  stored                     0 Bytes\n  The registry is not installed:" in told
    assert "  The depot is not installed:" in told
    starting = found(Deployment=[store("slipway-registry", ready=0), store("slipway-depot", ready=0)])
    assert [starting["artifacts"][one] for one in ("registry", "depot")] == ["starting", "starting"]
    assert "  The registry is not ready:" in report(starting)


def test_a_registry_elsewhere_is_not_called_missing() -> None:
    kept = found(Deployment=[store("slipway-depot")])
    assert kept["artifacts"]["registry"] == "external"
    assert "The registry is" not in report(kept)


def test_a_claim_that_may_not_be_read_is_named() -> None:
    kept = found(
        Deployment=[store("slipway-registry", claim="mine"), store("slipway-depot")], claim={"msg": "Forbidden"}
    )
    assert kept["unknown"] == ["PersistentVolumeClaim: Forbidden"]
    assert "  stored                     0 Bytes\n" in report(kept)


def test_nothing_is_told_of_artifacts_where_none_are_published() -> None:
    assert found()["artifacts"] == {}
